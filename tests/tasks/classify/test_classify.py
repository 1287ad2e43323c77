"""The task classify: kinds told from data, answers, scores, tuning, and what is saved."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from alembert.corpus.readers import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.classify.data import ClassifyExample, ClassifySettings
from alembert.tasks.classify.scores import ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.runtime import Outputs
from alembert.tasks.task import TaskScores, get_task_class
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz.,"
TOKENIZER = Tokenizer.from_vocabulary(
    Vocabulary.from_pieces(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)
    ),
    lowercase=True,
)
USUAL = ClassifySettings()


def example(number: int, gold: Any, *texts: str) -> ClassifyExample:
    return ClassifyExample(id=str(number), texts=texts or (f"text {number}",), where=f"t.tsv:{number}", golds=(gold,))


def examples_of(golds: Sequence[Any], *texts: str) -> list[ClassifyExample]:
    return [example(number, gold, *texts) for number, gold in enumerate(golds, start=1)]


def learnt(golds: Sequence[Any], settings: ClassifySettings = USUAL, *texts: str) -> ClassifyTask:
    return ClassifyTask.learn(examples_of(golds, *texts), settings)


def outputs_for(encoded: Sequence[EncodedExample], columns: int, seed: int = 0) -> list[list[Outputs]]:
    draw = np.random.default_rng(seed)
    return [
        [draw.normal(size=(len(row.positions), columns)).astype(np.float32) for row in each.rows] for each in encoded
    ]


def predicted(task: ClassifyTask, examples: Sequence[ClassifyExample], seed: int = 0) -> list[ClassifyPrediction]:
    encoded = task.encode(examples, TOKENIZER, 512)
    outputs = outputs_for(encoded, task.head().columns, seed)
    return [task.decode(each, parts) for each, parts in zip(encoded, outputs, strict=True)]


# -- what the data is


@pytest.mark.parametrize(
    ("golds", "kind", "labels"),
    [
        (["b", "a", "b"], "single", ("a", "b")),
        (["10", "9", "2"], "single", ("2", "9", "10")),
        ([("x", "y"), ()], "multi", ("x", "y")),
        ([3.8, "5"], "number", ()),
    ],
)
def test_the_kind_is_told_from_the_data(golds: list[Any], kind: str, labels: tuple[str, ...]) -> None:
    task = learnt(golds)
    assert (task.kind, task.labels) == (kind, labels)


def test_what_was_told_is_said() -> None:
    assert learnt(["a", "b"], USUAL, "x", "y").describe() == [
        "Each pair of texts has one label of 2: a, b.",
        "Models are chosen by accuracy.",
    ]


def test_numbers_are_standardised_by_the_training_values() -> None:
    task = learnt([1.5, 2.5, 3.5])
    assert (task.mean, task.deviation) == (2.5, pytest.approx(np.std([1.5, 2.5, 3.5])))


@pytest.mark.parametrize(
    ("golds", "other", "sentence"),
    [
        (["a", "b"], "c", "t.tsv:7 has the label 'c', which this task does not know; it knows a, b"),
        (["a", "b"], 2.5, "t.tsv:7 has the number 2.5, and this task expects one label"),
        ([1.5, 2.5], "high", "t.tsv:7 has the label 'high', and this task expects a number"),
        (["a", "b"], ("a", "b"), "t.tsv:7 has 2 labels, and this task expects one label"),
    ],
)
def test_answers_of_another_task_are_refused(golds: list[Any], other: Any, sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        learnt(golds).check([example(7, other)])
    assert sentence in str(wrong.value)


def test_pairs_are_refused_where_texts_are_expected() -> None:
    with pytest.raises(BadInput, match=r"t\.tsv:7 is 2 texts; this task classifies one text"):
        learnt(["a", "b"]).check([example(7, "a", "x", "y")])


def test_one_label_alone_teaches_nothing() -> None:
    with pytest.raises(BadInput, match="All examples have the label 'a'"):
        learnt(["a", "a"])


def test_equal_numbers_teach_nothing() -> None:
    with pytest.raises(BadInput, match=r"All examples have the number 2\.5"):
        learnt([2.5, 2.5])


def test_no_examples_at_all() -> None:
    with pytest.raises(BadInput, match="no labelled examples"):
        ClassifyTask.learn([], USUAL)


def test_a_measure_of_another_kind_is_refused() -> None:
    with pytest.raises(BadSetting, match="expected one of spearman, pearson"):
        learnt([1.5, 2.5], ClassifySettings(main="accuracy"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "both"},
        {"max_length": 8},
        {"overlap": 200},
        {"train_windows": 0},
        {"separator": " "},
        {"kind": "number", "main": "accuracy"},
        {"context": "document", "pooling": "mean"},
    ],
)
def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        ClassifySettings(**wrong)


# -- reading


def read(tmp_path: Path, name: str, content: str, **settings: Any) -> Any:
    (tmp_path / name).write_text(content, encoding="utf-8")
    return ClassifyTask.read([tmp_path / name], ClassifySettings(**settings), ReadOptions())


def test_labels_of_a_table_are_parted_if_there_are_several(tmp_path: Path) -> None:
    reading = read(tmp_path, "t.tsv", "text\tlabel\none\ta|b\ntwo\tb\n", kind="multi")
    assert [each.gold for each in reading.examples] == [("a", "b"), ("b",)]


JOINED = "text\tlabel\none\ta\ntwo\tb|c\nthree\ta|b\nfour\tc\nfive\t\nsix\ta | c\n"


def test_cells_of_several_labels_are_recognised(tmp_path: Path) -> None:
    reading = read(tmp_path, "t.tsv", JOINED)
    golds = [("a",), ("b", "c"), ("a", "b"), ("c",), (), ("a", "c")]
    assert [each.gold for each in reading.examples] == golds
    assert not reading.set_aside
    assert any("| separates the labels of a text" in remark.reason for remark in reading.remarks)
    assert [remark.count for remark in reading.remarks if "no label" in remark.reason] == [1]
    assert ClassifyTask.learn(reading.examples, USUAL).kind == "multi"


@pytest.mark.parametrize(
    "labels",
    [
        ["yes|no", "maybe", "yes|no", "maybe"],  # a name with a bar in it
        ["x|good", "x|bad", "y|good", "y|bad"],  # aspect and opinion: always two, never one alone
        ["a", "b", "a|b", *["a", "b"] * 200],  # one row of hundreds
    ],
)
def test_a_label_that_has_the_separator_in_it_is_one_label(tmp_path: Path, labels: list[str]) -> None:
    rows = "".join(f"text {number}\t{label}\n" for number, label in enumerate(labels))
    reading = read(tmp_path, "t.tsv", f"text\tlabel\n{rows}")
    assert [each.gold for each in reading.examples] == labels
    assert any('kind = "multi"' in remark.reason for remark in reading.remarks)


def test_several_files_are_told_together(tmp_path: Path) -> None:
    lines = JOINED.splitlines(keepends=True)
    for name, part in (("a.tsv", lines[1:3]), ("b.tsv", lines[3:])):
        (tmp_path / name).write_text(lines[0] + "".join(part), encoding="utf8")
    whole = read(tmp_path, "t.tsv", JOINED)
    parts = ClassifyTask.read([tmp_path / "a.tsv", tmp_path / "b.tsv"], USUAL, ReadOptions())
    assert [each.gold for each in parts.examples] == [each.gold for each in whole.examples]


def test_files_after_training_are_read_as_training_was(tmp_path: Path) -> None:
    train = read(tmp_path, "t.tsv", JOINED).examples
    task = ClassifyTask.learn(train, USUAL)
    again = ClassifyTask.from_table(task.to_table())
    assert isinstance(again, ClassifyTask)
    for settings in (ClassifyTask.resolve_settings(train, USUAL), again.settings):
        reading = read(tmp_path, "dev.tsv", "text\tlabel\none\ta|b\ntwo\t\n", **asdict(settings))
        assert [each.gold for each in reading.examples] == [("a", "b"), ()]


def test_a_row_without_a_label_is_set_aside_where_each_has_one(tmp_path: Path) -> None:
    reading = read(tmp_path, "t.tsv", "text\tlabel\none\ta\ntwo\t\nthree\tb\n")
    assert [each.gold for each in reading.examples] == ["a", "b"]
    assert [(item.position, item.reason) for item in reading.set_aside] == [("line 3", "the label is empty")]


def test_a_row_that_is_not_of_the_kind_asked_for_is_set_aside(tmp_path: Path) -> None:
    reading = read(tmp_path, "t.tsv", "text\tlabel\none\t1\ntwo\tx\n", kind="number")
    assert [each.gold for each in reading.examples] == [1.0]
    assert [(item.position, item.kind) for item in reading.set_aside] == [("line 3", "record")]


def test_sentences_of_a_document_come_together(tmp_path: Path) -> None:
    content = "###1\nA\tone\nB\ttwo\n\n###2\nB\tthree\n"
    reading = read(tmp_path, "t.txt", content, context="document")
    assert [(each.id, each.texts, each.golds) for each in reading.examples] == [
        ("1", ("one", "two"), ("A", "B")),
        ("2", ("three",), ("B",)),
    ]


@pytest.mark.parametrize(
    ("content", "settings", "advised"),
    [
        ("###1\nA\tone\nB\ttwo\n\n###2\nA\tthree\nB\tfour\n", {}, True),
        ("###1\nA\tone\nB\ttwo\n\n###2\nA\tthree\nB\tfour\n", {"context": "document"}, False),
        ("###1\nA\tone\n\n###2\nB\ttwo\n", {}, False),
    ],
    ids=["sentences", "with context", "one sentence a document"],
)
def test_sentences_of_documents_that_are_read_alone_are_mentioned(
    tmp_path: Path, content: str, settings: dict[str, Any], advised: bool
) -> None:
    examples = read(tmp_path, "train.txt", content, **settings).examples
    advice = list(ClassifyTask.learn(examples, ClassifySettings(**settings)).advice(examples, ()))
    assert bool(advice) == advised
    assert all('context = "document"' in sentence for sentence in advice)


def test_rows_without_a_document_have_no_context(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not say which document it belongs to"):
        read(tmp_path, "t.tsv", "text\tlabel\none\ta\n", context="document")


def test_the_line_of_a_sentence_is_named(tmp_path: Path) -> None:
    content = "###1\nA\tone\nB\ttwo\n"
    document = read(tmp_path, "t.txt", content, context="document").examples
    task = ClassifyTask.learn(document, ClassifySettings(context="document"))
    strange = read(tmp_path, "u.txt", content.replace("B", "C"), context="document").examples
    with pytest.raises(BadInput, match=r"u\.txt:3 has the label 'C'"):
        task.check(strange)


def test_real_sections_with_context(shared: Path) -> None:
    settings = ClassifySettings(context="document")
    reading = ClassifyTask.read([shared / "classify/pubmed-sections/dev.txt"], settings, ReadOptions())
    task = ClassifyTask.learn(reading.examples, settings)
    assert (sum(len(each.golds) for each in reading.examples), len(task.labels)) == (5_285, 5)


def test_train_and_test_of_other_layouts_are_one_task(shared: Path) -> None:
    train, test = (
        ClassifyTask.read([shared / f"relation/GAD/{part}.tsv"], USUAL, ReadOptions()).examples
        for part in ("train", "test")
    )
    ClassifyTask.learn(train, USUAL).check(test)


# -- answers


def test_the_most_probable_label_is_given() -> None:
    task = learnt(["a", "b", "c"])
    (encoded,) = task.encode(task.examples_from_texts(["x"]), TOKENIZER, 512)
    answer = task.decode(encoded, [np.array([[0.0, 2.0, 1.0]], np.float32)]).answer
    assert (answer.label, answer.score) == ("b", pytest.approx(np.exp(2) / (1 + np.exp(2) + np.exp(1))))
    assert sum(answer.probabilities.values()) == pytest.approx(1)


def test_labels_above_their_thresholds_are_given() -> None:
    task = learnt([("a", "b"), ("c",)])
    (encoded,) = task.encode(task.examples_from_texts(["x"]), TOKENIZER, 512)
    assert task.decode(encoded, [np.array([[0.1, -0.1, 3.0]], np.float32)]).answer.labels == ("a", "c")


def test_values_are_on_the_scale_of_the_data() -> None:
    task = learnt([1.5, 2.5, 3.5])
    (encoded,) = task.encode(examples_of([3.5]), TOKENIZER, 512)
    outputs = np.array([encoded.rows[0].labels], np.float32)
    assert task.decode(encoded, [outputs]).answer.value == pytest.approx(3.5)


def test_the_temperature_changes_no_label() -> None:
    examples = examples_of(["a", "b", "c", "a", "b"] * 20)
    task = ClassifyTask.learn(examples, USUAL)
    encoded = task.encode(examples, TOKENIZER, 512)
    outputs = outputs_for(encoded, 3)
    tuned = task.tune(examples, encoded, outputs)
    before, after = (
        [each.decode(row, parts).answer.label for row, parts in zip(encoded, outputs, strict=True)]
        for each in (task, tuned)
    )
    assert tuned.calibration.temperature != 1.0
    assert before == after


def test_thresholds_are_the_best_of_each_label_on_development_data() -> None:
    draw = np.random.default_rng(1)
    golds = [tuple(name for name in "abc" if draw.random() < share) or ("a",) for share in draw.random(80)]
    examples = examples_of(golds)
    task = ClassifyTask.learn(examples, USUAL)
    encoded = task.encode(examples, TOKENIZER, 512)
    outputs = outputs_for(encoded, 3)
    tuned = task.tune(examples, encoded, outputs)

    def scored(which: ClassifyTask) -> TaskScores:
        found = [which.decode(row, parts) for row, parts in zip(encoded, outputs, strict=True)]
        return which.score(examples, found)

    before, after = scored(task), scored(tuned)
    assert all(after.by_label[name]["f1"] >= scores["f1"] for name, scores in before.by_label.items())
    assert after.value != before.value
    assert (before.selection_score, after.selection_score) == (
        pytest.approx(after.value),
        after.value,
    )  # steps are compared as tuned


def test_tuning_without_answers_changes_nothing() -> None:
    task = learnt(["a", "b"])
    texts = task.examples_from_texts(["x", "y"])
    encoded = task.encode(texts, TOKENIZER, 512)
    assert task.tune(texts, encoded, outputs_for(encoded, 2)) is task


# -- scores


def test_scores_of_one_label_are_those_of_scikit_learn() -> None:
    golds = ["a", "b", "c", "a", "b", "a", "c"] * 5
    task, examples = learnt(golds), examples_of(golds)
    found = predicted(task, examples)
    guess = [each.answer.label for each in found]
    scores = task.score(examples, found)
    assert (scores.main, scores.value) == ("accuracy", sklearn.accuracy_score(golds, guess))
    assert scores.measures["macro_f1"] == pytest.approx(sklearn.f1_score(golds, guess, average="macro"))
    assert scores.measures["mcc"] == pytest.approx(sklearn.matthews_corrcoef(golds, guess))
    assert scores.by_label["a"]["support"] == 15


def test_scores_of_several_labels_are_those_of_scikit_learn() -> None:
    golds = [("a",), ("a", "b"), (), ("c", "b")] * 5
    task, examples = learnt(golds), examples_of(golds)
    found = predicted(task, examples)
    one, other = (
        [[name in names for name in "abc"] for names in each]
        for each in (golds, [each.answer.labels for each in found])
    )
    scores = task.score(examples, found)
    assert scores.value == pytest.approx(sklearn.f1_score(one, other, average="micro"))
    assert scores.measures["subset_accuracy"] == pytest.approx(sklearn.accuracy_score(one, other))


@pytest.mark.parametrize(
    ("golds", "main"),
    [
        (["a", "b", "c"], "accuracy"),
        (["a", "b", "c"], "macro_f1"),
        (["a", "b", "c"], "mcc"),
        ([("a",), ("a", "b"), ()], "micro_f1"),
        ([("a",), ("a", "b"), ()], "macro_f1"),
        ([("a",), ("a", "b"), ()], "subset_accuracy"),
        ([1.5, 2.5, 4.0], "spearman"),
        ([1.5, 2.5, 4.0], "pearson"),
    ],
)
def test_the_measure_of_all_examples_is_the_main_score(golds: list[Any], main: Any) -> None:
    task, examples = learnt(golds * 6, ClassifySettings(main=main)), examples_of(golds * 6)
    found = predicted(task, examples)
    whole = task.sample_metric(examples, found)(np.arange(len(examples)))
    assert whole == pytest.approx(task.score(examples, found).value)


def document(number: int, golds: Sequence[str]) -> ClassifyExample:
    texts = tuple(f"sentence {place} of {number}." for place in range(len(golds)))
    return ClassifyExample(id=str(number), texts=texts, golds=tuple(golds), is_document=True)


def test_a_sample_of_documents_stands_for_all_their_sentences() -> None:
    examples = [document(1, "ab"), document(2, "aabbb"), document(3, "b")]
    task = ClassifyTask.learn(examples, ClassifySettings(context="document", main="macro_f1"))
    found = predicted(task, examples)
    sample = [2, 1, 1]
    expected = task.score([examples[n] for n in sample], [found[n] for n in sample]).value
    assert task.sample_metric(examples, found)(np.array(sample)) == pytest.approx(expected)


# -- for programs and people


def test_a_record_is_json() -> None:
    task, examples = learnt(["a", "b"]), examples_of(["a"])
    record = json.loads(json.dumps(task.to_record(examples[0], predicted(task, examples)[0])))
    assert record["label"] in ("a", "b")
    assert record["text"] == "text 1"


def test_a_plain_text_is_read_as_a_document_with_offsets() -> None:
    task = ClassifyTask.learn([document(1, "ab")], ClassifySettings(context="document"))
    text = "We looked at mice. They were small."
    (example,) = task.examples_from_texts([text])
    task.check([example])
    record = task.to_record(example, predicted(task, [example])[0])
    assert [text[each["start"] : each["end"]] for each in record["sentences"]] == [
        "We looked at mice.",
        "They were small.",
    ]


def test_a_tab_parts_the_texts_of_a_pair() -> None:
    task = learnt(["a", "b"], USUAL, "x", "y")
    assert len(predicted(task, task.examples_from_texts(["one\ttwo"]))) == 1
    with pytest.raises(BadInput, match="two texts, parted by one tab"):
        task.encode(task.examples_from_texts(["one"]), TOKENIZER, 512)


@pytest.mark.parametrize(("golds", "line"), [(["a", "b"], "  text 1"), ([1.5, 2.5], "  text 1")])
def test_lines_for_people(golds: list[Any], line: str) -> None:
    task, examples = learnt(golds), examples_of(golds)
    assert task.to_lines(examples[0], predicted(task, examples)[0])[0].endswith(line)


# -- files


@pytest.mark.parametrize("golds", [["a", "b"], [("x", "y"), ()], [1.5, 3.0]])
def test_what_is_saved_is_the_task(golds: list[Any]) -> None:
    examples = examples_of(golds)
    task = ClassifyTask.learn(examples, ClassifySettings(max_length=64))
    encoded = task.encode(examples, TOKENIZER, 512)
    tuned = task.tune(examples, encoded, outputs_for(encoded, task.head().columns))
    again = ClassifyTask.from_table(json.loads(json.dumps(tuned.to_table())))
    assert again.to_table() == tuned.to_table()
    assert predicted(again, examples) == predicted(tuned, examples)


@given(names=st.sets(st.text(min_size=1), min_size=2, max_size=6))
def test_any_labels_survive_the_file(names: set[str]) -> None:
    task = learnt(sorted(names))
    assert ClassifyTask.from_table(json.loads(json.dumps(task.to_table()))).labels == task.labels


@pytest.mark.parametrize(
    "damage", [{"kind": "other"}, {"labels": []}, {"settings": {"lenth": 3}}, {"settings": {"max_length": 1}}]
)
def test_a_damaged_table_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        ClassifyTask.from_table({**learnt(["a", "b"]).to_table(), **damage})


def test_the_task_loads_no_torch() -> None:
    check = "import sys, alembert.tasks.classify.task; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=300)


def test_the_task_is_found_by_its_name() -> None:
    assert get_task_class("classify") is ClassifyTask
