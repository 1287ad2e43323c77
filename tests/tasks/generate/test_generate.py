"""The task `generate`: rows, what is learnt, what is written, and sentences that are chosen."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from alembert.data.windows import Row
from alembert.errors import BadInput, BadSetting
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.data_report import EncodedSplit, build_data_report
from alembert.tasks.example import EncodedExample, ReadResult
from alembert.tasks.generate.data import GenerateExample, GenerateSettings
from alembert.tasks.generate.decoding import DecodeSettings
from alembert.tasks.generate.extract import EXTRACT_LABELS, ExtractTask, select_oracle_sentences
from alembert.tasks.generate.task import (
    GenerateCandidates,
    GeneratePrediction,
    GenerateTask,
    ScoredText,
)
from alembert.tasks.runtime.torch import ModelRunner, collate_rows
from alembert.tasks.settings import LossSettings
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij床前明月光.,"), lowercase=True
)
LONGEST = 32
GREEDY = DecodeSettings(max_new_tokens=10)


def example(source: str, target: str | None = None, name: str = "1") -> GenerateExample:
    return GenerateExample(id=name, texts=(source,), target=target)


def encoded(examples: Sequence[GenerateExample], longest: int = LONGEST, **settings: Any) -> list[EncodedExample]:
    return GenerateTask(GenerateSettings(**settings)).encode(examples, TOKENIZER, longest)


def tokens(ids: Sequence[int]) -> str:
    return " ".join(TOKENIZER.tokens(ids))


def model_of(**changes: Any) -> Model:
    config = EncoderConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=LONGEST,
        **changes,
    )
    return new_model(config, {"masked_lm": HeadSpec(kind="masked_lm")}, seed=2).eval()


def train_step(model: Model, head: str, rows: Sequence[Row], optimiser: torch.optim.Optimizer, **loss: float) -> None:
    target = collate_rows(rows, range(len(rows)))
    asked = {"positions_P": target.positions, "attention": "prefix"}
    outputs = model(target.batch, [head], **asked, only=True)[head]
    optimiser.zero_grad()
    GenerateTask(GenerateSettings()).loss(model.head(head), outputs, target, LossSettings(**loss)).backward()
    optimiser.step()


# -- rows


def test_the_target_is_asked_for_from_the_end_of_the_source_on() -> None:
    (row,) = encoded([example("a b c", "d e")])[0].rows
    assert tokens(row.ids) == "[CLS] a b c [SEP] d e"
    assert row.prefix == 5
    assert tokens(row.ids[row.positions]) == "[SEP] d e"
    assert tokens(row.labels) == "d e [SEP]"
    assert row.segments is not None
    assert row.segments.tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_without_a_target_the_source_stands_alone() -> None:
    (row,) = encoded([example("a b c")])[0].rows
    assert (tokens(row.ids), row.prefix, row.positions.tolist(), row.labels) == (
        "[CLS] a b c [SEP]",
        5,
        [4],
        None,
    )


def test_what_has_no_room_is_cut_and_counted() -> None:
    (found,) = encoded([example("a b c d e f", "g h i j")], max_source_length=4, max_target_length=4, longest=10)
    assert tokens(found.rows[0].ids) == "[CLS] a b c d [SEP] g h i j"
    assert found.coverage.cut_characters == len("e f")
    (found,) = encoded([example("a b c d e f", "g h i j a b c")], max_target_length=4, longest=12)
    assert tokens(found.rows[0].ids) == "[CLS] a b c d e f [SEP] g h i j"
    assert found.coverage.cut_characters == len("a b c")


def test_what_is_cut_is_said_first_of_all() -> None:
    task, examples = (
        GenerateTask(GenerateSettings(max_source_length=4, max_target_length=4)),
        [example("a b c d e f", "g h i j a")],
    )
    part = EncodedSplit("train", ReadResult(tuple(examples)), task.encode(examples, TOKENIZER, LONGEST))
    said = build_data_report(task, [part], TOKENIZER, longest=LONGEST).decided
    assert said[0] == "characters that the model does not see, as the settings ask: 4 in 1 of train"


def test_a_long_source_leaves_room_for_the_target() -> None:
    (found,) = encoded([example("a " * 99, "b " * 99)])
    assert found.rows[0].length == LONGEST
    assert found.layout.max_new_tokens == LONGEST // 2


def test_only_some_development_examples_are_written_for_and_always_the_same() -> None:
    examples = [example(f"{'a ' * n}b", "c", name=str(n)) for n in range(1, 21)]
    task = GenerateTask.learn(examples, GenerateSettings(eval_examples=5))
    first, again = task.encode(examples, TOKENIZER, LONGEST), task.encode(examples[::-1], TOKENIZER, LONGEST)
    asked = [each.layout.is_asked for each in first]
    assert sum(asked) == 5
    assert [each.layout.is_asked for each in again[::-1]] == asked
    saved = GenerateTask.from_table(task.to_table())
    assert all(each.layout.is_asked for each in saved.encode(examples, TOKENIZER, LONGEST))


# -- loss


@torch.inference_mode()
def test_the_loss_is_that_of_the_next_tokens_under_prefix_attention() -> None:
    model, task = model_of(), GenerateTask(GenerateSettings())
    rows = [row for each in encoded([example("a b c", "d e"), example("f", "g h i")]) for row in each.rows]
    target = collate_rows(rows, [0, 1])
    outputs = model(target.batch, ["masked_lm"], positions_P=target.positions, attention="prefix", only=True)
    found = task.loss(model.head("masked_lm"), outputs["masked_lm"], target, LossSettings())
    expected = 0.0
    for row in rows:
        assert row.prefix is not None
        for n in range(row.prefix, row.length + 1):  # each next token, all before it computed anew
            alone = collate_rows([replace(row, ids=row.ids[:n], segments=row.segments[:n])], [0]).batch
            logs = model(alone, ["masked_lm"], attention="prefix")["masked_lm"][-1].log_softmax(-1)
            expected -= float(logs[int(row.labels[n - row.prefix])])
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_a_source_does_not_see_its_target() -> None:
    model = model_of(initializer_range=0.5)
    one, other = (collate_rows(each.rows, [0]) for each in encoded([example("a b", "c d"), example("a b", "e f")]))
    hidden = [model(each.batch, [], attention="prefix")["hidden"][:4] for each in (one, other)]
    torch.testing.assert_close(*hidden)


# -- writing

PAIRS = [("a b", "c d e"), ("b a", "e d c"), ("f f g", "床前明月光"), ("c", "a, b.")]


@pytest.fixture(scope="module")
def learnt() -> Model:
    model = model_of()
    rows = [row for each in encoded([example(*pair) for pair in PAIRS]) for row in each.rows]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        train_step(model, "masked_lm", rows, optimiser, label_smoothing=0.1)
    return model


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_model_writes_what_it_has_learnt(method: str, learnt: Model) -> None:
    task = GenerateTask(GenerateSettings(decoding=DecodeSettings(method=method, max_new_tokens=10)))
    examples = task.examples_from_texts([source for source, _ in PAIRS])
    rows = task.encode(examples, TOKENIZER, LONGEST)
    answers = task.run(ModelRunner(learnt, "masked_lm", task.attention_pattern), rows)
    found = [task.decode(each, answer) for each, answer in zip(rows, answers, strict=True)]
    assert [each.text for each in found] == [target for _, target in PAIRS]
    assert all(each.texts[0].finished for each in found)


def test_the_source_does_not_count_as_repeated(learnt: Model) -> None:
    how = DecodeSettings(max_new_tokens=10, no_repeat_ngram=1)
    task = GenerateTask(GenerateSettings(decoding=how))
    (row,) = task.encode([example("b a")], TOKENIZER, LONGEST)
    (answer,) = task.run(ModelRunner(learnt, "masked_lm", "prefix"), [row])
    assert task.decode(row, answer).text == "e d c"
    (row,) = task.encode([example("c")], TOKENIZER, LONGEST)  # the target is "a, b."
    (answer,) = task.run(ModelRunner(learnt, "masked_lm", "prefix"), [row])
    assert task.decode(row, answer).text == "a, b."


def test_several_texts_come_in_order(learnt: Model) -> None:
    how = DecodeSettings(method="beam", beams=4, count=3, max_new_tokens=6, length_penalty=0.0)
    task = GenerateTask(GenerateSettings(decoding=how))
    (row,) = task.encode([example("a b")], TOKENIZER, LONGEST)
    (answer,) = task.run(ModelRunner(learnt, "masked_lm", "prefix"), [row])
    record = task.to_record(example("a b"), task.decode(row, answer))
    scores = [record["score"], *(other["score"] for other in record["others"])]
    assert scores == sorted(scores, reverse=True)
    assert record["text"] == "c d e"


# -- copying

COMMON, RARE = ([chr(first + n) for n in range(count)] for first, count in ((0x4E00, 40), (0x5E00, 20)))
CHARACTERS = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *COMMON, *RARE), lowercase=True
)


def first_and_last(rng: np.random.Generator, wanted: Sequence[str]) -> GenerateExample:
    """A source whose first and last characters are the target; any may stand between them."""
    (first, last), between = rng.choice(wanted, 2), rng.choice(COMMON + RARE, 2)
    return example(first + "".join(between) + last, first + last)


def count_right(model: Model, head: str, wanted: Sequence[str], **decoding: Any) -> int:
    task = GenerateTask(GenerateSettings(decoding=DecodeSettings(max_new_tokens=4, **decoding)))
    examples = [first_and_last(np.random.default_rng(seed), wanted) for seed in range(20)]
    rows = task.encode(examples, CHARACTERS, LONGEST)
    answers = task.run(ModelRunner(model, head, "prefix"), rows)
    texts = [task.decode(row, answer).text for row, answer in zip(rows, answers, strict=True)]
    return sum(text == each.target for text, each in zip(texts, examples, strict=True))


@pytest.mark.parametrize(("copy", "right"), [(True, 20), (False, 0)])
def test_only_a_model_that_copies_writes_what_was_never_a_target(copy: bool, right: int) -> None:
    task = GenerateTask(GenerateSettings(copy=copy))
    head, rng = task.head().kind, np.random.default_rng(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = EncoderConfig(vocab_size=CHARACTERS.vocab_size, max_position_embeddings=LONGEST, **shape)
    model = new_model(config, {head: task.head()}, seed=2).eval()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        examples = task.encode([first_and_last(rng, COMMON) for _ in range(32)], CHARACTERS, LONGEST)
        train_step(model, head, [each.rows[0] for each in examples], optimiser)
    assert count_right(model, head, COMMON) == 20
    for decoding in ({}, {"method": "beam", "beams": 2}, {"method": "sample", "top_p": 0.5}):
        assert count_right(model, head, RARE, **decoding) == right


@torch.inference_mode()
def test_the_loss_is_that_of_the_mixture() -> None:
    model, task = (
        new_model(model_of().config, {"lm": HeadSpec(kind="copy_lm")}, seed=2).eval(),
        GenerateTask(GenerateSettings()),
    )
    rows = [row for each in encoded([example("a b a", "a e"), example("f", "g h i")]) for row in each.rows]
    target = collate_rows(rows, [0, 1])
    logs = model(target.batch, ["lm"], positions_P=target.positions, attention="prefix", only=True)["lm"]
    right = logs[torch.arange(len(logs)), target.labels]
    losses = [LossSettings(), LossSettings(label_smoothing=0.1), LossSettings(focal=2)]
    plain, smooth, focal = (task.loss(model.head("lm"), logs, target, each) for each in losses)
    torch.testing.assert_close(plain, -right.sum())
    torch.testing.assert_close(smooth, -(0.9 * right + 0.1 * logs.mean(-1)).sum())
    torch.testing.assert_close(focal, -((1 - right.exp()) ** 2 * right).sum())


def test_a_task_that_was_saved_before_does_not_copy() -> None:
    table = GenerateTask(GenerateSettings(copy=True)).to_table()
    assert GenerateTask.from_table(table).head().kind == "copy_lm"
    del table["settings"]["copy"]
    assert GenerateTask.from_table(table).head().kind == "masked_lm"


# -- scores


def written(text: str | None) -> GeneratePrediction:
    found = encoded([example("a")])[0].coverage
    return GeneratePrediction(found, () if text is None else (ScoredText(text, -1.0, finished=True),))


def test_scores_are_of_what_was_written_and_say_how_much_that_is() -> None:
    task = GenerateTask(GenerateSettings())
    examples = [example("a", "b c"), example("a", "b c"), example("a", "b c"), example("a")]
    predictions = [written("b c"), written("d"), written(None), written("b")]
    scores = task.score(examples, predictions)
    assert scores.measures == pytest.approx(
        {"rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5, "length_ratio": 3 / 4, "scored": 2}
    )
    measure = task.sample_metric(examples, predictions)
    assert [measure(np.array(sample)) for sample in ([0, 2], [0, 0, 1], [2, 3])] == pytest.approx([1, 2 / 3, 0])


def test_candidates_hold_texts_of_any_length() -> None:
    nothing = GenerateCandidates.of(())
    assert GenerateTask(GenerateSettings()).decode(encoded([example("a")])[0], nothing).text is None


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "sing"}, "`kind` of the task is 'sing'; expected write or extract"),
        ({"max_source_length": 3}, "`max_source_length` of the task is 3; expected 4 or more"),
        ({"eval_examples": 0}, "`eval_examples` of the task is 0"),
        ({"kind": "extract", "max_source_length": 99}, "`max_source_length` is a setting of the kind write"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSetting) as problem:
        GenerateSettings(**settings)
    assert sentence in str(problem.value)


def test_a_blank_source_is_refused() -> None:
    task = GenerateTask(GenerateSettings())
    with pytest.raises(BadInput, match="has no text to write for"):
        task.check(task.examples_from_texts([" "]))


def test_examples_without_targets_teach_nothing() -> None:
    with pytest.raises(BadInput, match="no examples with a target"):
        GenerateTask.learn([example("a")], GenerateSettings())


# -- extract

SOURCE = "  It rained a lot. Aspirin cured the pain.  The sky is blue. Aspirin is cheap. "
TARGET = "aspirin, which is cheap, cured the pain"


def test_the_oracle_chooses_what_adds_most() -> None:
    sentences = ["It rained a lot.", "Aspirin cured the pain.", "The sky is blue.", "Aspirin is cheap."]
    assert select_oracle_sentences(sentences, TARGET, 1) == {1}
    assert select_oracle_sentences(sentences, TARGET, 3) == {1, 3}
    assert select_oracle_sentences(sentences, "nothing shared", 2) == set()
    assert select_oracle_sentences([], TARGET, 2) == set()


def extract(count: int = 2) -> ExtractTask:
    task = GenerateTask.learn([example(SOURCE, TARGET)], GenerateSettings(kind="extract", sentences=count))
    assert isinstance(task, ExtractTask)
    return task


def test_sentences_are_labelled_by_the_oracle() -> None:
    (found,) = extract().encode([example(SOURCE, TARGET)], TOKENIZER, LONGEST)
    labels = np.concatenate([row.labels for row in found.rows])
    assert [EXTRACT_LABELS[label] for label in labels] == ["left out", "chosen", "left out", "chosen"]


def test_the_balance_is_that_of_sentences_not_of_targets() -> None:
    assert extract().gold_answers(example(SOURCE, TARGET)) == ["left out", "chosen", "left out", "chosen"]
    assert extract().gold_answers(example(SOURCE)) == []


def test_the_most_probable_sentences_come_in_the_order_of_the_text_with_exact_offsets() -> None:
    task = extract()
    (found,) = task.encode([example(SOURCE)], TOKENIZER, 64)
    outputs = [np.array([[0, -1], [0, 1], [0, -2], [0, 3]], np.float32)]
    prediction = task.decode(found, outputs)
    record = task.to_record(example(SOURCE), prediction)
    assert [each["text"] for each in record["sentences"]] == ["Aspirin cured the pain.", "Aspirin is cheap."]
    assert all(SOURCE[each["start"] : each["end"]] == each["text"] for each in record["sentences"])
    assert prediction.text == "Aspirin cured the pain.\nAspirin is cheap."


def test_fewer_sentences_than_wanted_are_all_given() -> None:
    task = extract(9)
    (found,) = task.encode([example("It rained.")], TOKENIZER, 64)
    assert len(task.decode(found, [np.zeros((1, 2), np.float32)]).sentences) == 1


def test_a_saved_extract_task_is_one_again() -> None:
    assert isinstance(GenerateTask.from_table(extract().to_table()), ExtractTask)
