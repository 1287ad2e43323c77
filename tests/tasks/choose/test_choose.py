"""The task choose: rows of any length, a softmax over any number of choices, scores beside chance, what is saved."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from transformers import AutoModelForMultipleChoice

from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.task_model import TaskModel
from alembert.nn.config import EncoderConfig, preset
from alembert.nn.model import new_model
from alembert.tasks.choose.data import ChooseExample, ChoosePrediction, fit_choice_temperature
from alembert.tasks.choose.task import ChooseSettings, ChooseTask
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.files import write_tasks
from alembert.tasks.losses import grouped_log_softmax
from alembert.tasks.metrics.calibration import fit_temperature
from alembert.tasks.runtime.torch import ModelRunner, TaskBatch, collate_rows
from alembert.tasks.settings import LossSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz.,?"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)
    ),
    lowercase=True,
)
SMALL = ChooseSettings(max_length=24, overlap=4)
PLAIN = LossSettings()
NONE = torch.nn.Identity()
SCORE = st.integers(-2000, 2000).map(lambda number: number / 100)


def example(choices: Sequence[str], gold: int | None = 0, passage: str | None = None) -> ChooseExample:
    before = () if passage is None else (passage,)
    texts = (*before, "which?", *choices)
    return ChooseExample(id="1", texts=texts, where="q.jsonl, line 1", has_passage=passage is not None, gold=gold)


def task_of(settings: ChooseSettings = SMALL) -> ChooseTask:
    return ChooseTask.learn([example("abcd"), example("abcde")], settings)


def encoded(task: ChooseTask, *examples: ChooseExample) -> list[EncodedExample]:
    return task.encode(examples, TOKENIZER, 512)


def target_for(parts: Sequence[EncodedExample]) -> TaskBatch:
    rows = [(number, row) for number, each in enumerate(parts) for row in each.rows]
    return collate_rows([row for _, row in rows], [number for number, _ in rows], len(parts))


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


def prediction(choice: int, count: int) -> ChoosePrediction:
    return ChoosePrediction(tuple(float(n == choice) for n in range(count)), Coverage(examples=1), choice)


# -- rows


def test_without_passage_the_question_stands_before_the_choice() -> None:
    (found,) = encoded(task_of(), example(["ab", "c"]))
    cls, sep = TOKENIZER.cls_id, TOKENIZER.sep_id
    assert [row.ids.tolist() for row in found.rows] == [
        [cls, *ids_of("which?"), sep, *ids_of(choice), sep] for choice in ("ab", "c")
    ]
    assert found.rows[0].segments is not None
    assert found.rows[0].segments.tolist() == [0] * (len(ids_of("which?")) + 2) + [1] * 3


def test_with_a_passage_the_question_goes_with_the_choice() -> None:
    (found,) = encoded(task_of(), example(["ab", "c"], passage="so"))
    cls, sep = TOKENIZER.cls_id, TOKENIZER.sep_id
    assert found.rows[1].ids.tolist() == [cls, *ids_of("so"), sep, *ids_of("which? c"), sep]


@settings(deadline=None)
@given(words=st.lists(st.text("abcdef", min_size=1, max_size=9), min_size=1, max_size=60))
def test_a_long_passage_is_read_whole_with_each_choice(words: list[str]) -> None:
    passage = " ".join(words)
    (found,) = encoded(task_of(), example(["ab", "c"], passage=passage))
    for number, choice in enumerate(("ab", "c")):
        rows = [row for row, owner in zip(found.rows, found.layout.owners, strict=True) if owner == number]
        tail = [TOKENIZER.sep_id, *ids_of(f"which? {choice}"), TOKENIZER.sep_id]
        wanted, reached = ids_of(passage), 0
        for row in rows:
            assert row.length <= 24
            assert row.ids[-len(tail) :].tolist() == tail
            inside = row.ids[1 : -len(tail)].tolist()
            start = next(n for n in range(reached, -1, -1) if wanted[n : n + len(inside)] == inside)
            reached = max(reached, start + len(inside))
        assert reached == len(wanted)


def test_the_first_row_of_each_choice_says_whether_it_is_right() -> None:
    (found,) = encoded(task_of(), example(["ab", "c", "d"], gold=1, passage="word " * 20))
    labels = [None if row.labels is None else row.labels.tolist() for row in found.rows]
    firsts = np.flatnonzero(np.diff(found.layout.owners, prepend=-1))
    assert [labels[place] for place in firsts] == [[0], [1], [0]]
    assert sum(label is not None for label in labels) == 3 < len(labels)


def test_an_example_is_counted_once() -> None:
    given_ = example(["ab", "c"], passage="word " * 20)
    coverage = encoded(task_of(), given_)[0].coverage
    assert (coverage.examples, coverage.gold, coverage.split_examples) == (1, 1, 1)
    assert coverage.characters == sum(map(len, given_.texts))
    assert coverage.cut_characters == 0


def test_a_cut_is_made_in_training_alone_and_counted() -> None:
    task = task_of(ChooseSettings(max_length=24, overlap=4, train_windows=1))
    long = example(["ab", "c"], passage="word " * 20)
    (trained,) = encoded(task.for_training(), long)
    assert (len(trained.rows), trained.coverage.cut_characters > 0) == (2, True)
    assert encoded(task, long)[0].coverage.cut_characters == 0


# -- losses


@settings(deadline=None)
@given(groups=st.lists(st.lists(SCORE, min_size=2, max_size=6), min_size=1, max_size=6))
def test_softmax_within_examples_is_that_of_each(groups: list[list[float]]) -> None:
    owners = torch.tensor([number for number, group in enumerate(groups) for _ in group])
    scores = torch.tensor([score for group in groups for score in group])
    expected = torch.cat([torch.tensor(group).log_softmax(0) for group in groups])
    torch.testing.assert_close(grouped_log_softmax(scores, owners, len(groups)), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy_of_each_question(smoothing: float) -> None:
    task = task_of()
    golds, counts = [3, 0, 4], [4, 2, 5]
    examples = [example("abcde"[:count], gold) for gold, count in zip(golds, counts, strict=True)]
    outputs = torch.randn(sum(counts), 1, generator=torch.Generator().manual_seed(3))
    target = target_for(encoded(task, *examples))
    expected = sum(
        functional.cross_entropy(scores[None], torch.tensor([gold]), label_smoothing=smoothing)
        for scores, gold in zip(outputs[:, 0].split(counts), golds, strict=True)
    )
    found = task.loss(NONE, outputs, target, LossSettings(label_smoothing=smoothing))
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_focal_loss_counts_sure_answers_less() -> None:
    task, outputs = task_of(), torch.tensor([[2.0], [0.0]])
    target = target_for(encoded(task, example("ab")))
    sure = math.exp(2) / (math.exp(2) + 1)
    found = task.loss(NONE, outputs, target, LossSettings(focal=2.0))
    assert float(found) == pytest.approx(-math.log(sure) * (1 - sure) ** 2, rel=1e-5)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_training_and_prediction_pool_windows_alike(pool: Any) -> None:
    task = task_of(ChooseSettings(max_length=24, overlap=4, pool=pool))
    parts = encoded(task, example(["ab", "c"], 1, passage="word " * 20), example("abc", 2))
    outputs = torch.randn(sum(len(each.rows) for each in parts), 1, generator=torch.Generator().manual_seed(5))
    rows = iter(outputs[:, None].numpy())
    found = [task.decode(each, [next(rows) for _ in each.rows]) for each in parts]
    expected = -sum(math.log(p.probabilities[gold]) for p, gold in zip(found, (1, 2), strict=True))
    loss = task.loss(NONE, outputs, target_for(parts), PLAIN)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_choices_have_no_class_weights() -> None:
    task = task_of()
    target = target_for(encoded(task, example("ab")))
    with pytest.raises(BadSetting, match="choices have no labels"):
        task.loss(NONE, torch.zeros(2, 1), target, LossSettings(class_weights="balanced"))


# -- answers and scores


def test_a_temperature_fits_questions_of_all_sizes() -> None:
    draw = np.random.default_rng(1)
    rows = [draw.normal(size=4) * 3 for _ in range(40)]
    golds = draw.integers(4, size=40).tolist()
    alone = fit_temperature(np.array(rows), golds)
    assert fit_choice_temperature(rows, golds) == pytest.approx(alone)
    # A choice that is never likely changes nothing, whether it is there or not.
    mixed = [np.append(row, -1e9) if number % 2 else row for number, row in enumerate(rows)]
    assert fit_choice_temperature(mixed, golds) == pytest.approx(alone)


def test_scores_stand_beside_chance() -> None:
    examples = [example("abcd", 0), example("abcd", 1), example("abcde", 2)]
    predictions = [prediction(0, 4), prediction(3, 4), prediction(2, 5)]
    found = task_of().score(examples, predictions)
    assert found.measures["accuracy"] == pytest.approx(2 / 3)
    assert found.measures["chance"] == pytest.approx((1 / 4 + 1 / 4 + 1 / 5) / 3)
    assert found.by_label == {
        "4 choices": {"accuracy": 0.5, "chance": 0.25, "support": 2},
        "5 choices": {"accuracy": 1.0, "chance": 0.2, "support": 1},
    }


@pytest.mark.parametrize(("right", "is_near"), [(13, True), (30, False)])
def test_a_score_near_chance_is_called_so(right: int, is_near: bool) -> None:
    examples = [example("abcd", 0)] * 50
    predictions = [prediction(0 if number < right else 1, 4) for number in range(50)]
    notes = task_of().score(examples, predictions).notes
    assert [note.startswith("Near chance") for note in notes] == [True] * is_near


def test_a_record_numbers_choices_from_one() -> None:
    asked = example(["ab", "c"], passage="so")
    found = ChoosePrediction.of(np.array([0.0, math.log(3)]), 1.0, Coverage())
    record = task_of().to_record(asked, found)
    assert (record["choice"], record["text"], record["passage"]) == (2, "c", "so")
    assert [choice["probability"] for choice in record["choices"]] == pytest.approx([0.25, 0.75])
    assert task_of().to_lines(asked, found) == ["2  0.75  c", "1  0.25  ab"]


# -- texts


def test_texts_are_parted_by_tabs() -> None:
    (found,) = ChooseTask.examples_from_texts(["Which?\ta drug\ta gene\ta cell"])
    assert (found.question, found.choices, found.gold) == ("Which?", ("a drug", "a gene", "a cell"), None)


def test_a_text_may_be_json_with_a_passage() -> None:
    record = {"passage": "So.", "question": "Which?", "choices": ["a", "b"], "answer": 1}
    (found,) = ChooseTask.examples_from_texts([json.dumps(record)])
    assert (found.passage, found.choices, found.gold) == ("So.", ("a", "b"), None)


@pytest.mark.parametrize(
    "text",
    ["Which?", "Which?\tone", "Which?\ta\t\tb", "\ta\tb", "{", '{"question": "Which?", "choices": []}'],
)
def test_what_cannot_be_chosen_from_is_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match=r"choices|JSON"):
        ChooseTask.examples_from_texts([text])


# -- the task


def test_what_was_told_is_said() -> None:
    assert task_of().describe() == [
        "Each question has 4 to 5 choices.",
        "Models are chosen by accuracy.",
    ]


def test_questions_about_one_passage_are_kin() -> None:
    one, other = (example(choices, passage="The  same.") for choices in ("ab", "cd"))
    assert one.group_id == other.group_id != example("ab", passage="Another.").group_id
    assert example("ab").group_id != example("cd").group_id


@pytest.mark.parametrize(("choices", "gold"), [("a", 0), ("ab", 2), ("ab", -1)])
def test_the_check_names_the_line(choices: str, gold: int) -> None:
    with pytest.raises(BadInput, match=r"q\.jsonl, line 1 has"):
        task_of().check([example(choices, gold)])


def test_nothing_to_learn_from_is_a_sentence() -> None:
    with pytest.raises(BadInput, match="no questions with an answer"):
        ChooseTask.learn([example("ab", None)], SMALL)


@pytest.mark.parametrize("wrong", [{"max_length": 8}, {"overlap": 200}, {"pool": "sum"}, {"train_windows": 0}])
def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        ChooseSettings(**wrong)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, and its task."""
    folder = tmp_path_factory.mktemp("choose") / "model"
    task = task_of(ChooseSettings())
    config = preset("tiny", vocab_size=TOKENIZER.vocab_size)
    Checkpoint.new(Blueprint(config=config, heads={"choice": task.head()}), TOKENIZER).save(folder)
    write_tasks(folder, {task.name: (task, {})})
    return folder


def test_transformers_gives_the_same_logits(folder: Path) -> None:
    model = TaskModel.open(folder)
    asked = example(["ab", "c", "d e f", "g"], passage="so it is.")
    (each,) = model.task.encode([asked], TOKENIZER, 512)
    ours = np.concatenate(model.only.runner.outputs([each])[0])[:, 0]
    theirs = AutoModelForMultipleChoice.from_pretrained(folder).eval()
    widest = max(row.length for row in each.rows)
    inputs = torch.zeros(3, 1, 4, widest, dtype=torch.long)
    for number, row in enumerate(each.rows):
        assert row.segments is not None
        for place, values in enumerate((row.ids, row.segments, np.ones_like(row.ids))):
            inputs[place, 0, number, : row.length] = torch.from_numpy(values)
    with torch.inference_mode():
        ids, segments, mask = inputs
        logits = theirs(input_ids=ids, token_type_ids=segments, attention_mask=mask).logits[0]
    np.testing.assert_allclose(ours, logits.numpy(), atol=1e-5)


def test_a_tiny_model_learns_which_choice_is_right() -> None:
    task = task_of(ChooseSettings())
    examples = [example(["aaa" if n == gold else "bbb" for n in range(3 + gold % 2)], gold) for gold in range(3)]
    config = EncoderConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    model = new_model(config, {"choice": task.head()}, seed=1)
    parts = encoded(task, *examples)
    target = target_for(parts)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        loss = task.loss(NONE, model(target.batch, ["choice"], only=True)["choice"], target, PLAIN)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    outputs = ModelRunner(model.eval(), "choice").outputs(parts)
    assert [task.decode(*each).choice for each in zip(parts, outputs, strict=True)] == [0, 1, 2]
