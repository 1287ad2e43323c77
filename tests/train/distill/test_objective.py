"""The lessons of distillation: a student equal to its teacher, the teacher's record, and what a step adds up to."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alembert import sample
from alembert.corpus.readers.contract import ReadOptions
from alembert.corpus.shards import Shards
from alembert.data.feed import Cursor
from alembert.errors import BadFile, BadSetting, FolderBusy
from alembert.hardware import check_dtype
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.task import get_task_class
from alembert.text.tokenizer import Tokenizer
from alembert.train.distill.layers import LOSSES, LayerLosses, map_layers
from alembert.train.distill.objective import (
    TaskDistillObjective,
    TextDistillObjective,
    build_teacher_request,
    fit_projections,
)
from alembert.train.distill.settings import (
    LAYER_LOSSES,
    GeneralDistillSettings,
    LayerLossWeights,
    StageLossWeights,
    StageSettings,
)
from alembert.train.distill.teacher import Teacher, TeacherRequest
from alembert.train.distill.teacher_cache import TeacherCacheWriter, hash_contents
from alembert.train.finetune.objective import EncodedExamples, TaskObjective
from alembert.train.objective import MicroBatch
from alembert.train.pretrain.objectives import Collator

EVERYTHING = StageLossWeights(attention=1, hidden=1, embeddings=1, relations=1, prediction=1, relation_heads=2)


def config(tokenizer: Tokenizer, layers: int = 2, width: int = 32) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.2,
    )


@pytest.fixture(scope="module")
def tagging(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> TaskObjective:
    path = tmp_path_factory.mktemp("tagging") / "train.jsonl"
    lines = [
        {
            "id": passage.id,
            "text": passage.text[: 60 + 17 * number],
            "entities": [
                {"id": f"T{n}", "label": each.label, "spans": [[each.start, each.end]]}
                for n, each in enumerate(passage.entities)
                if each.end <= 60
            ],
        }
        for number, passage in enumerate(sample.load_passages("en")[:12])
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf8")
    kind = get_task_class("tag")
    settings = kind.settings_class()
    examples = kind.read([path], settings, ReadOptions()).examples
    task = kind.learn(examples, settings)
    ready = EncodedExamples(examples, task.encode(examples, tokenizer, 128))
    return TaskObjective(task, ready, ready, StageSettings())


def model_of(shape: EncoderConfig, heads: dict[str, HeadSpec], seed: int) -> Model:
    return new_model(shape, heads, seed=seed)


def imitation(
    tagging: TaskObjective, student: Model, teacher: Model, weights: StageLossWeights = EVERYTHING
) -> TaskDistillObjective:
    inside = LayerLosses(weights, student.config, teacher.config)
    return TaskDistillObjective(
        tagging, Teacher(teacher, tagging.task, tagging.head), inside, StageSettings(losses=weights)
    )


def first_micro(lesson: TaskDistillObjective) -> MicroBatch:
    (portion,), _ = lesson.sample(Cursor(), 1, 0.0)
    return lesson.collate(portion)


def value(loss: torch.Tensor) -> float:
    return loss.detach().item()


def totals(*micros: MicroBatch) -> dict[str, float]:
    found: dict[str, float] = {}
    for micro in micros:
        for name, target in micro.targets.items():
            found[name] = found.get(name, 0) + target.count
    return found


def test_each_weight_has_its_loss() -> None:
    assert sorted(loss.name for loss in LOSSES) == sorted(LAYER_LOSSES)


def test_a_student_equal_to_its_teacher_has_no_loss(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, 1).eval() for _ in range(2))
    lesson = imitation(tagging, student, teacher)
    micro = first_micro(lesson)
    _, sums = lesson.loss(student, micro, totals(micro), None)
    # Half precision of what the teacher says is all that is between them.
    assert {name: value / totals(micro)[name] for name, value in sums.items()} == pytest.approx(
        dict.fromkeys(EVERYTHING.chosen(), 0.0), abs=1e-4
    )


def test_a_teacher_in_half_precision_gives_nearly_the_same_answers(
    tagging: TaskObjective, tokenizer: Tokenizer
) -> None:
    try:
        check_dtype("bfloat16")
    except BadSetting as error:
        pytest.skip(str(error))
    model = model_of(config(tokenizer), {tagging.head: tagging.spec}, 1)
    micro = tagging.collate(tagging.sample(Cursor(), 1, 0.0)[0][0])
    full, half = (
        Teacher(model, tagging.task, tagging.head, half=precision)
        .forward(micro.batch, TeacherRequest(answers=True), micro.targets[tagging.name])
        .answers_PC
        for precision in (None, "bfloat16")
    )
    assert full is not None
    assert half is not None
    assert not torch.equal(full, half)
    assert torch.allclose(full.float(), half.float(), atol=0.1)


def test_the_loss_is_the_weighted_sum_of_means(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    weights = replace(EVERYTHING, attention=0.5, hidden=2, prediction=3)
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, seed).eval() for seed in (1, 2))
    lesson = imitation(tagging, student, teacher, weights)
    micro = first_micro(lesson)
    counts = totals(micro)
    loss, sums = lesson.loss(student, micro, counts, None)
    expected = sum(weight * sums[name] / counts[name] for name, weight in weights.chosen().items())
    assert value(loss) == pytest.approx(expected, rel=1e-5)


def test_parts_of_a_step_add_up_to_its_means(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, seed).eval() for seed in (1, 2))
    lesson = imitation(tagging, student, teacher)
    portions, _ = lesson.sample(Cursor(), 3, 0.0)
    joined = replace(
        portions[0],
        indices=tuple(item for portion in portions for item in portion.indices),
        tokens=sum(portion.tokens for portion in portions),
    )
    micros, whole = [lesson.collate(portion) for portion in portions], lesson.collate(joined)
    counts = totals(whole)
    apart = sum(value(lesson.loss(student, micro, counts, None)[0]) for micro in micros)
    assert apart == pytest.approx(value(lesson.loss(student, whole, counts, None)[0]), rel=1e-4)


def test_the_teacher_is_in_evaluation_mode(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    """The published code left it in training mode."""
    teacher = model_of(config(tokenizer), {tagging.head: tagging.spec}, 1).train()
    lesson = imitation(tagging, teacher, teacher)
    assert not lesson.teacher.model.training
    assert not any(weight.requires_grad for weight in lesson.teacher.model.parameters())


def test_a_teacher_of_whom_nothing_is_wanted_does_not_read(
    tagging: TaskObjective, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, seed).eval() for seed in (1, 2))
    lesson = imitation(tagging, student, teacher, StageLossWeights(labels=1))
    monkeypatch.setattr(teacher, "forward", None)
    micro = first_micro(lesson)
    loss, _ = lesson.loss(student, micro, totals(micro), None)
    assert value(loss) > 0


def test_a_narrower_student_is_projected_and_learns_the_projection(
    tagging: TaskObjective, tokenizer: Tokenizer
) -> None:
    weights = StageLossWeights(hidden=1, embeddings=1)
    teacher = model_of(config(tokenizer, 4), {tagging.head: tagging.spec}, 1)
    inside = LayerLosses(weights, config(tokenizer, 2, 24), teacher.config)
    student = model_of(config(tokenizer, 2, 24), inside.heads, 2)
    lesson = imitation(tagging, student, teacher, weights)
    micro = first_micro(lesson)
    loss, _ = lesson.loss(student, micro, totals(micro), DropoutSeed(1))
    loss.backward()
    slopes = {name for name, weight in student.named_parameters() if weight.grad is not None}
    assert {f"heads.projection-{state}.linear.weight" for state in range(3)} <= slopes


def test_fitted_projections_are_closer_than_random_ones(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    weights = StageLossWeights(hidden=1)
    teacher = model_of(config(tokenizer, 4), {tagging.head: tagging.spec}, 1)
    inside = LayerLosses(weights, config(tokenizer, 2, 24), teacher.config)
    student = model_of(config(tokenizer, 2, 24), inside.heads, 2).eval()
    lesson = imitation(tagging, student, teacher, weights)
    micro = first_micro(lesson)
    before, _ = lesson.loss(student, micro, totals(micro), None)
    fit_projections(student, lesson)
    after, _ = lesson.loss(student.eval(), micro, totals(micro), None)
    assert value(after) < 0.7 * value(before)


def recorder(folder: Path, lesson: TaskDistillObjective) -> TeacherCacheWriter:
    rows = [row for item in lesson.task_objective.items for row in item]
    return TeacherCacheWriter(folder, rows, lesson.teacher, lesson.request)


def test_a_record_gives_what_the_teacher_says_on_the_spot(
    tagging: TaskObjective, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, seed).eval() for seed in (1, 2))
    lesson = imitation(tagging, student, teacher)
    record = recorder(tmp_path / "record", lesson).write()
    recorded = TaskDistillObjective(tagging, lesson.teacher, lesson.layer_losses, lesson.settings, record)
    micros = first_micro(lesson), first_micro(recorded)
    assert micros[1].targets["teacher"].outputs is not None
    losses = [
        value(each.loss(student, micro, totals(micro), None)[0])
        for each, micro in zip((lesson, recorded), micros, strict=True)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_record_that_was_stopped_goes_on(
    tagging: TaskObjective, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembert.train.distill.teacher_cache.ROWS_PER_BLOCK", 3)
    teacher = model_of(config(tokenizer), {tagging.head: tagging.spec}, 2).eval()
    lesson = imitation(tagging, teacher, teacher)
    whole = recorder(tmp_path / "whole", lesson).write()
    stopped = recorder(tmp_path / "stopped", lesson)

    def stop(progress: Any) -> None:
        if progress.done >= 6:
            raise KeyboardInterrupt

    stopped.on_progress = stop
    with pytest.raises(KeyboardInterrupt):
        stopped.write()
    read: list[int] = []
    again = recorder(tmp_path / "stopped", lesson)
    again.on_progress = lambda progress: read.append(progress.done)
    found = again.write()
    assert read[0] == 9
    assert np.array_equal(found.tokens_NW, whole.tokens_NW)
    assert np.array_equal(found.answers_PC, whole.answers_PC)


@pytest.mark.parametrize("kept", [0, 10])
def test_a_stopped_record_that_has_lost_something_is_not_filled_with_zeros(
    kept: int, tagging: TaskObjective, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alembert.train.distill.teacher_cache.ROWS_PER_BLOCK", 3)
    teacher = model_of(config(tokenizer), {tagging.head: tagging.spec}, 2).eval()
    stopped = recorder(tmp_path / "record", imitation(tagging, teacher, teacher))

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    stopped.on_progress = stop
    with pytest.raises(KeyboardInterrupt):
        stopped.write()
    path = tmp_path / "record" / "tokens.f16"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadFile, match=r"tokens\.f16 has"):
        recorder(tmp_path / "record", imitation(tagging, teacher, teacher)).write()


def test_two_do_not_make_one_record_at_once(tagging: TaskObjective, tokenizer: Tokenizer, tmp_path: Path) -> None:
    teacher = model_of(config(tokenizer), {tagging.head: tagging.spec}, 2).eval()
    lesson = imitation(tagging, teacher, teacher)
    first, refused = recorder(tmp_path / "record", lesson), []

    def begin_another(progress: Any) -> None:
        if progress.done < progress.total:
            with pytest.raises(FolderBusy, match="is being written by process"):
                recorder(tmp_path / "record", lesson).write()
            refused.append(progress.done)

    first.on_progress = begin_another
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alembert.train.distill.teacher_cache.ROWS_PER_BLOCK", 3)
        first.write()
    assert refused


@pytest.mark.parametrize("name", ["tokens.f16", "answers.f16", "record.json"])
def test_an_unreadable_record_is_a_sentence(
    name: str, tagging: TaskObjective, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    teacher = model_of(config(tokenizer), {tagging.head: tagging.spec}, 2).eval()
    lesson = imitation(tagging, teacher, teacher)
    recorder(tmp_path / "record", lesson).write()
    path = tmp_path / "record" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BadFile, match="Delete that folder"):
        recorder(tmp_path / "record", lesson).write()


def test_a_record_is_named_by_teacher_rows_and_what_is_wanted(tagging: TaskObjective, tmp_path: Path) -> None:
    rows = [row for item in tagging.items for row in item]
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "model").write_text("one")
    pieces = np.arange(5)
    keys = {
        hash_contents(rows, pieces, tmp_path / "teacher", {"wanted": 1}),
        hash_contents(rows[1:], pieces, tmp_path / "teacher", {"wanted": 1}),
        hash_contents(rows, pieces[1:], tmp_path / "teacher", {"wanted": 1}),
        hash_contents(rows, pieces, tmp_path / "teacher", {"wanted": 2}),
    }
    (tmp_path / "teacher" / "model").write_text("other")
    keys.add(hash_contents(rows, pieces, tmp_path / "teacher", {"wanted": 1}))
    assert len(keys) == 5


def test_plain_text_is_read_without_masks(shards: Shards, tokenizer: Tokenizer) -> None:
    settings = GeneralDistillSettings(losses=LayerLossWeights(attention=1, hidden=1, embeddings=1))
    teacher = model_of(config(tokenizer), {}, 1)
    inside = LayerLosses(settings.losses, teacher.config, teacher.config)
    lesson = TextDistillObjective(Collator(shards, tokenizer), Teacher(teacher), inside, settings)
    (portion,), _ = lesson.sample(Cursor(), 1, 0.0)
    micro = lesson.collate(portion)
    assert tokenizer.mask_id not in micro.batch.ids_N.tolist()
    loss, _ = lesson.loss(teacher, micro, totals(micro), None)
    assert value(loss) == pytest.approx(0, abs=1e-4)


def test_held_out_text_tells_the_distance(shards: Shards, tokenizer: Tokenizer) -> None:
    settings = GeneralDistillSettings(losses=LayerLossWeights(hidden=2))
    teacher, student = model_of(config(tokenizer), {}, 1), model_of(config(tokenizer), {}, 2).eval()
    inside = LayerLosses(settings.losses, teacher.config, teacher.config)
    lesson = TextDistillObjective(Collator(shards, tokenizer), Teacher(teacher), inside, settings)
    verdict = lesson.summarise([lesson.evaluate(student, part, 2) for part in range(2)])
    assert verdict.loss == pytest.approx(2 * verdict.scores["imitation"]["hidden"])
    assert verdict.loss > 0.1


@pytest.mark.parametrize(
    ("weights", "student", "expected"),
    [
        (LayerLossWeights(), 4, (3, 6, 9, 12)),
        (LayerLossWeights(), 5, (2, 4, 7, 9, 12)),
        (LayerLossWeights(layer_map="last"), 3, (10, 11, 12)),
        (LayerLossWeights(layer_map="given", layers=(1, 5)), 2, (1, 5)),
    ],
)
def test_layers_are_mapped(weights: LayerLossWeights, student: int, expected: tuple[int, ...]) -> None:
    assert map_layers(weights, student, 12) == expected


@pytest.mark.parametrize(
    ("weights", "student", "message"),
    [
        (LayerLossWeights(), 13, "deeper than its teacher"),
        (LayerLossWeights(layer_map="given", layers=(1, 5)), 3, "3 rising numbers"),
        (LayerLossWeights(layer_map="given", layers=(5, 1)), 2, "2 rising numbers"),
        (LayerLossWeights(layer_map="given", layers=(0, 5)), 2, "2 rising numbers"),
    ],
)
def test_maps_that_do_not_fit_are_refused(weights: LayerLossWeights, student: int, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        map_layers(weights, student, 12)


def test_attention_of_other_heads_is_refused(tokenizer: Tokenizer) -> None:
    other = replace(config(tokenizer), num_attention_heads=8)
    with pytest.raises(BadSetting, match="`relations` instead"):
        LayerLosses(LayerLossWeights(attention=1), config(tokenizer), other)


def test_what_is_wanted_follows_the_layers(tokenizer: Tokenizer) -> None:
    weights = StageLossWeights(attention=1, hidden=1, embeddings=1, prediction=1)
    inside = LayerLosses(weights, config(tokenizer, 2), config(tokenizer, 6))
    wanted = build_teacher_request(inside, StageSettings(losses=weights))
    assert wanted == TeacherRequest(states=(0, 3, 6), attention=(2, 5), answers=True)


def test_contrastive_errors_take_whole_texts(tagging: TaskObjective, tokenizer: Tokenizer) -> None:
    heads = {tagging.head: tagging.spec}
    student, teacher = (model_of(config(tokenizer), heads, seed).eval() for seed in (1, 2))
    lesson = imitation(tagging, student, teacher, StageLossWeights(contrastive=1))
    micro = first_micro(lesson)
    assert micro.targets["contrastive"].count == len(micro.batch.lengths)
    loss, _ = lesson.loss(student, micro, totals(micro), None)
    assert torch.isfinite(loss)
