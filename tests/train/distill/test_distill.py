"""The verb from end to end on the embedded sample: both stages, what comes out, what is refused, and going on."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from alembert import hardware
from alembert.errors import AlreadyDone, BadFile, BadSetting, Interrupted
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.family import Blueprint
from alembert.files.student_shape import StudentSettings
from alembert.infer.task_model import TaskModel
from alembert.nn.config import EncoderConfig
from alembert.tasks.tag.data import TagSettings
from alembert.tasks.task import get_task_class
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from alembert.train.augment import AugmentSettings
from alembert.train.distill.distill import distill, distill_general
from alembert.train.distill.settings import (
    GENERAL_PRESETS,
    PRESETS,
    DistillSettings,
    GeneralDistillSettings,
    LayerLossWeights,
    StageLossWeights,
    StageSettings,
    TeacherCacheSettings,
    build_controls,
    get_preset,
)
from alembert.train.distill.stages import DistillJob
from alembert.train.finetune.data import DataFiles, TaskSpec
from alembert.train.finetune.finetune import FinetuneJob, finetune
from alembert.train.finetune.settings import FinetuneSettings
from alembert.train.run import RunContext
from alembert.train.runlog import TrainingProgress
from alembert.train.settings import BatchSettings, OptimiserSettings, SavingSettings
from sample_lines import labelled, write_lines

LONGEST = 160  # characters of a text: what is tested does not need more
RATE = OptimiserSettings(learning_rate=1e-3)
SETTINGS = DistillSettings(
    intermediate=StageSettings(
        epochs=2,
        losses=StageLossWeights(hidden=1, attention=1, embeddings=1),
        optimiser=RATE,
        saving=SavingSettings(keep="last"),
    ),
    prediction=StageSettings(epochs=2, losses=StageLossWeights(prediction=1, labels=0.5), optimiser=RATE),
)


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "measure_matmul_peak", lambda dtype="float32": 100.0, raising=False)


def config(tokenizer: Tokenizer, layers: int = 4) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=128,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A folder with `plain`, the taggers `teacher` and `crf`, `train.jsonl` and `dev.jsonl`."""
    folder = tmp_path_factory.mktemp("distill")
    Checkpoint.new(Blueprint(config=config(tokenizer)), tokenizer, seed=3).save(folder / "plain")
    data = data_of(folder, write_all=True)
    settings = FinetuneSettings(epochs=3, optimiser=OptimiserSettings(learning_rate=2e-3))
    for name, of_task in (("teacher", TagSettings()), ("crf", TagSettings(head="crf"))):
        job = FinetuneJob(model=str(folder / "plain"), tasks={"tag": TaskSpec(task="tag", data=data, settings=of_task)})
        finetune(job, folder / name, settings)
    return folder


def data_of(place: Path, *, write_all: bool = False) -> DataFiles:
    if write_all:
        write_lines(place / "train.jsonl", labelled("train", 24, LONGEST))
        write_lines(place / "dev.jsonl", labelled("dev", 8, LONGEST))
    return DataFiles(train=(place / "train.jsonl",), dev=(place / "dev.jsonl",))


def wish(place: Path, **changes: Any) -> DistillJob:
    usual = {"teacher": str(place / "teacher"), "student": "2x24", "data": data_of(place)}
    return DistillJob(**{**usual, **changes})


def context(tmp_path: Path, **changes: Any) -> RunContext:
    return RunContext(**{"cache": tmp_path / "cache", **changes})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return open_checkpoint(folder).model.state_dict()


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_narrow_student_has_the_teachers_task_and_no_projections(place: Path, tmp_path: Path) -> None:
    done = distill(wish(place), tmp_path / "out", SETTINGS, context=context(tmp_path))
    student, teacher = TaskModel.open(tmp_path / "out"), TaskModel.open(place / "teacher")
    assert student.task.labels == teacher.task.labels
    assert set(open_checkpoint(tmp_path / "out").blueprint.heads) == {"tag"}
    shape = open_checkpoint(tmp_path / "out").blueprint.config
    assert (shape.num_hidden_layers, shape.hidden_size) == (2, 24)
    assert 0 <= done.measures["f1"] <= 1


@pytest.mark.parametrize("teacher", ["teacher", "crf"])
def test_half_of_a_teacher_learns_its_answers(teacher: str, place: Path, tmp_path: Path) -> None:
    losses: dict[str, list[float]] = {}

    def hear(progress: TrainingProgress) -> None:
        losses.setdefault(progress.phase, []).append(progress.loss or 0.0)

    job = wish(place, teacher=str(place / teacher), student="half")
    settings = replace(
        SETTINGS,
        intermediate=replace(SETTINGS.intermediate, epochs=8),
        prediction=replace(SETTINGS.prediction, epochs=6, losses=StageLossWeights(prediction=1)),
    )
    distill(job, tmp_path / "out", settings, context=context(tmp_path, on_progress=hear))
    assert all(found[-1] < 0.7 * found[0] for found in losses.values())
    assert set(losses) == {"intermediate layers", "distillation"}


def test_what_a_student_was_trained_on_can_be_forgotten(place: Path, tmp_path: Path) -> None:
    distill(wish(place), tmp_path / "out", replace(SETTINGS, forget_training=True), context=context(tmp_path))
    names = {path.name for path in (tmp_path / "out").rglob("*")}
    assert "scores.json" in names
    assert not names & {"train.keys.npy", "surfaces.json"}


def test_a_teacher_is_asked_once_for_several_seeds(place: Path, tmp_path: Path) -> None:
    asked: list[int] = []
    surroundings = context(tmp_path, on_reading=lambda progress: asked.append(progress.done))
    distill(wish(place), tmp_path / "out", SETTINGS, seeds=2, context=surroundings)
    assert len(asked) == 1  # one record for both stages
    assert not same(tmp_path / "out" / "seeds" / "1", tmp_path / "out" / "seeds" / "2")


def test_training_files_are_read_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = get_task_class("tag")
    paths: list[Path] = []
    read = kind.read

    def note(files: Sequence[Path], *rest: Any) -> Any:
        paths.extend(files)
        return read(files, *rest)

    monkeypatch.setattr(kind, "read", staticmethod(note))
    settings = replace(SETTINGS, intermediate=replace(SETTINGS.intermediate, skip=True))
    distill(wish(place), tmp_path / "out", settings, context=context(tmp_path))
    assert sorted(path.name for path in paths) == ["dev.jsonl", "train.jsonl"]


def test_the_cache_changes_nothing(place: Path, tmp_path: Path) -> None:
    distill(wish(place), tmp_path / "cached", SETTINGS, context=context(tmp_path))
    live = replace(SETTINGS, cache=TeacherCacheSettings(use="never"))
    distill(wish(place), tmp_path / "live", live, context=context(tmp_path))
    one, other = weights(tmp_path / "cached"), weights(tmp_path / "live")
    # The teacher reads rows in other company, which moves a few numbers by a half-precision step.
    assert all(torch.allclose(one[name], other[name], atol=2e-3) for name in one)


def kill_in(phase: str) -> Callable[[TrainingProgress], None]:
    def hear(progress: TrainingProgress) -> None:
        if progress.phase == phase and progress.step == 2:
            signal.raise_signal(signal.SIGTERM)

    return hear


@pytest.mark.parametrize("phase", ["intermediate layers", "distillation"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(phase: str, place: Path, tmp_path: Path) -> None:
    distill(wish(place), tmp_path / "whole", SETTINGS, context=context(tmp_path))
    with pytest.raises(Interrupted):
        distill(wish(place), tmp_path / "parts", SETTINGS, context=context(tmp_path, on_progress=kill_in(phase)))
    distill(wish(place), tmp_path / "parts", SETTINGS, context=context(tmp_path))
    assert same(tmp_path / "whole", tmp_path / "parts")
    assert not list((tmp_path / "parts").rglob(".state"))


def test_each_head_of_a_teacher_is_asked_for_itself(place: Path, tmp_path: Path) -> None:
    tasks = {name: TaskSpec(task="tag", data=data_of(place)) for name in ("one", "other")}
    job = FinetuneJob(model=str(place / "plain"), tasks=tasks)
    finetune(job, tmp_path / "teacher", FinetuneSettings(steps=3, optimiser=RATE))
    for name in tasks:
        asked = wish(place, teacher=str(tmp_path / "teacher"), task=name)
        distill(asked, tmp_path / name, SETTINGS, context=context(tmp_path))
    assert len([each for each in (tmp_path / "cache").glob("teacher-*") if each.is_dir()]) == 2


def test_the_same_command_again_says_so(place: Path, tmp_path: Path) -> None:
    distill(wish(place), tmp_path / "out", SETTINGS, context=context(tmp_path))
    with pytest.raises(AlreadyDone):
        distill(wish(place), tmp_path / "out", SETTINGS, context=context(tmp_path))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_whole(name: str) -> None:
    settings = PRESETS[name]()
    assert settings.prediction.losses.prediction == 1
    copied = replace(settings, augment=replace(settings.augment, copies=3))
    assert build_controls(copied).keys() == {"without distillation", "without augmentation"}


@pytest.mark.parametrize("name", PRESETS)
def test_without_its_teacher_a_student_has_right_answers_alone(name: str) -> None:
    settings = PRESETS[name]()
    found = build_controls(replace(settings, augment=replace(settings.augment, copies=0)), has_texts=True)
    assert found.keys() == {"without distillation", "without plain text"}
    assert not any(control.has_texts for control in found.values())
    assert found["without distillation"].settings.prediction.losses.chosen() == {"labels": 1}


def test_tinybert_is_as_published() -> None:
    settings = PRESETS["tinybert"]()
    inside = settings.intermediate
    assert inside.losses.chosen() == {"attention": 1, "hidden": 1, "embeddings": 1}
    assert (inside.schedule.kind, inside.optimiser.learning_rate) == ("constant", 5e-5)
    assert settings.prediction.losses.chosen() == {"prediction": 1}
    assert (settings.prediction.epochs, settings.prediction.optimiser.learning_rate) == (3, 3e-5)
    assert settings.prediction.imitation.temperature == 1
    assert settings.student == StudentSettings(start="scratch")
    assert (settings.augment.copies, settings.augment.replace_probability, settings.augment.candidates) == (20, 0.4, 15)


@pytest.mark.parametrize(("task", "tokens"), [("answer", 2048), ("tag", 512)])
def test_steps_of_a_student_are_as_large_as_is_usual_for_its_task(task: str, tokens: int) -> None:
    settings = get_preset("fast", task)
    assert {stage.batch.tokens for stage in (settings.intermediate, settings.prediction)} == {tokens}
    assert settings.prediction.optimiser == PRESETS["fast"]().prediction.optimiser


def test_a_student_that_knows_the_task_keeps_its_own_head(place: Path, tmp_path: Path) -> None:
    """The teacher's fits as well: it has the same width and the same labels."""
    job = FinetuneJob(model=str(place / "plain"), tasks={"tag": TaskSpec(task="tag", data=data_of(place))})
    finetune(job, tmp_path / "student", FinetuneSettings(steps=3, optimiser=RATE))
    still = replace(SETTINGS.prediction, steps=1, optimiser=OptimiserSettings(learning_rate=1e-12))
    settings = replace(SETTINGS, intermediate=replace(SETTINGS.intermediate, skip=True), prediction=still)
    distill(wish(place, student=str(tmp_path / "student")), tmp_path / "out", settings, context=context(tmp_path))
    own, found = (weights(tmp_path / name)["heads.tag.linear.weight"] for name in ("student", "out"))
    assert torch.allclose(found, own)
    assert not torch.allclose(found, weights(place / "teacher")["heads.tag.linear.weight"])


def test_other_seeds_learn_from_other_copies(place: Path, tmp_path: Path) -> None:
    copied = replace(SETTINGS, augment=AugmentSettings(copies=1), prediction=replace(SETTINGS.prediction, steps=1))
    for seed in (1, 2):
        distill(wish(place), tmp_path / f"{seed}", replace(copied, seed=seed), context=context(tmp_path))
    records = [each for each in (tmp_path / "cache").glob("teacher-*") if each.is_dir()]
    assert len(records) == 2  # the teacher has read both


def test_a_student_deeper_than_its_teacher_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="deeper"):
        distill(wish(place, student="6x24"), tmp_path / "out", SETTINGS, context=context(tmp_path))
    assert not (tmp_path / "out").exists()


def test_a_student_with_another_vocabulary_is_refused(place: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = Tokenizer.from_vocabulary(
        Vocabulary((*tuple(tokenizer.vocabulary)[:-9], "zebra", "##zebra")), lowercase=True
    )
    shape = replace(config(other, 2), vocab_size=other.vocab_size)
    Checkpoint.new(Blueprint(config=shape), other).save(tmp_path / "student")
    with pytest.raises((BadSetting, BadFile), match=r"vocabulary|tokenizer"):
        distill(
            wish(place, student=str(tmp_path / "student")),
            tmp_path / "out",
            SETTINGS,
            context=context(tmp_path),
        )


def test_a_teacher_without_a_task_is_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="Fine-tune it first"):
        distill(wish(place, teacher=str(place / "plain")), tmp_path / "out", SETTINGS)


def test_labels_that_the_teacher_does_not_know_are_refused(place: Path, tmp_path: Path) -> None:
    lines = labelled("train", 6)
    lines[0]["entities"] = [{"id": "T1", "label": "planet", "spans": [[0, 4]]}]
    data = DataFiles(train=(write_lines(tmp_path / "train.jsonl", lines),), dev=(place / "dev.jsonl",))
    with pytest.raises(BadFile, match="planet"):
        distill(wish(place, data=data), tmp_path / "out", SETTINGS, context=context(tmp_path))


def test_a_student_with_other_labels_is_refused(place: Path, tmp_path: Path) -> None:
    lines = [{"id": str(n), "text": f"Aspirin helps {n}.", "label": "no" if n % 2 else "yes"} for n in range(8)]
    data = DataFiles(train=(write_lines(tmp_path / "yes.jsonl", lines),))
    job = FinetuneJob(model=str(place / "plain"), tasks={"classify": TaskSpec(task="classify", data=data)})
    finetune(job, tmp_path / "student", FinetuneSettings(steps=1))
    with pytest.raises(BadSetting, match="labels no, yes"):
        distill(wish(place, student=str(tmp_path / "student")), tmp_path / "out", SETTINGS)


def test_a_student_may_have_a_vocabulary_of_its_own(place: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    own = Tokenizer.from_vocabulary(
        Vocabulary(tuple(p for n, p in enumerate(tokenizer.vocabulary) if n < 800 or len(p) < 4)),
        lowercase=True,
    )
    own.save(tmp_path / "vocab")
    short = [{**line, "text": line["text"][:60], "entities": []} for line in labelled("train", 12)]
    data = DataFiles(train=(write_lines(tmp_path / "short.jsonl", short),), dev=(place / "dev.jsonl",))
    settings = replace(SETTINGS, intermediate=replace(SETTINGS.intermediate, skip=True))
    distill(
        wish(place, student="half", vocabulary=tmp_path / "vocab", data=data),
        tmp_path / "out",
        settings,
        context=context(tmp_path),
    )
    assert open_checkpoint(tmp_path / "out").blueprint.config.vocab_size == own.vocab_size


GENERAL_SETTINGS = GeneralDistillSettings(
    steps=4,
    losses=LayerLossWeights(hidden=1, embeddings=1),
    batch=BatchSettings(tokens=512, micro_tokens=256),
    optimiser=RATE,
)


def test_the_general_stage_makes_a_student_that_learns_a_task(place: Path, home: Path, tmp_path: Path) -> None:
    done = distill_general(
        str(place / "plain"),
        "2x24",
        [home / "corpus"],
        tmp_path / "general",
        settings=GENERAL_SETTINGS,
        context=context(tmp_path),
    )
    assert done.after["hidden"] < done.before["hidden"]
    general = open_checkpoint(tmp_path / "general")
    assert not general.blueprint.heads
    distill(wish(place, student=str(tmp_path / "general")), tmp_path / "out", SETTINGS, context=context(tmp_path))
    assert open_checkpoint(tmp_path / "out").blueprint.config.hidden_size == 24


@pytest.mark.parametrize("name", GENERAL_PRESETS)
def test_general_presets_look_inside(name: str) -> None:
    assert GENERAL_PRESETS[name]().losses.chosen()
