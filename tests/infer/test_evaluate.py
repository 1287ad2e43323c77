"""`evaluate` with models that say what they are told: scores, intervals, seeds, overlaps, confidence, comparison."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alembert.corpus.readers.contract import ReadOptions, SetAside
from alembert.errors import BadFile, BadSetting, UserError
from alembert.infer.evaluate import Evaluation, evaluate
from alembert.infer.task_model import TaskModel
from alembert.inspect.reports import evaluation_sentences
from alembert.tasks.example import Example
from alembert.tasks.reading import parse_split, split_examples
from scripted_models import Scripted, answer, classifier, tagger, write_labelled, write_tagged

DOCUMENTS: dict[str, Any] = {
    "1": ("breast cancer", [(0, 13, "Disease")]),
    "2": ("aspirin helps", [(0, 7, "Drug")]),
    "3": ("the patient has cancer", [(16, 22, "Disease")]),
    "4": ("aspirin helps against cancer", [(0, 7, "Drug"), (22, 28, "Disease")]),
}
GUESSES: dict[str, Any] = {
    "1": [(0, 13, "Disease", 0.9)],
    "2": [(0, 7, "Drug", 0.8)],
    "3": [(0, 11, "Disease", 0.4)],
    "4": [(0, 7, "Drug", 0.95), (22, 28, "Disease", 0.85)],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tagged(tmp_path / "test.jsonl", DOCUMENTS)


def keys_of(*names: str) -> frozenset[int]:
    return frozenset(Example(id=name, texts=(DOCUMENTS[name][0],)).key for name in names)


def test_scores_are_those_of_the_task(file: Path) -> None:
    found = evaluate(tagger(GUESSES), [file])
    assert (found.task, found.examples, found.scores.main) == ("tag", 4, "f1")
    assert found.scores.measures["precision"] == found.scores.measures["recall"] == 0.8
    assert found.scores.by_label["Drug"]["f1"] == 1.0
    assert found.scores.coverage.gold == 5


def test_the_interval_holds_the_score_and_repeats_with_its_seed(file: Path) -> None:
    one, again, other = (evaluate(tagger(GUESSES), [file], seed=seed, rounds=200) for seed in (1, 1, 2))
    assert one.interval.low <= one.scores.value <= one.interval.high
    assert one.interval == again.interval
    assert (one.rounds, other.rounds) == (200, 200)


@pytest.mark.parametrize(
    ("documents", "warning"),
    [
        (1, "All examples are from one document, so the interval says nothing about other documents."),
        (9, "The interval is from samples of 9 documents and says little about others"),
        (10, None),
    ],
)
def test_an_interval_from_few_documents_comes_with_a_warning(
    documents: int, warning: str | None, tmp_path: Path
) -> None:
    texts = {str(number): (f"aspirin {number}", [(0, 7, "Drug")]) for number in range(documents)}
    file = write_tagged(tmp_path / "test.jsonl", texts)
    found = evaluate(tagger({name: [] for name in texts}), [file], rounds=2)
    warned = [sentence for sentence in evaluation_sentences(found) if "interval" in sentence]
    assert len(warned) == (warning is not None)
    assert warning is None or warned[0].startswith(warning)


def test_a_perfect_model_has_an_interval_without_width(tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", {"1": DOCUMENTS["1"], "2": DOCUMENTS["2"]})
    found = evaluate(tagger(GUESSES), [file], rounds=50)
    assert (found.interval.low, found.interval.high) == (1.0, 1.0)


def test_examples_that_were_trained_on_are_counted_and_left_out(file: Path) -> None:
    seen = evaluate(tagger(GUESSES, keys=keys_of("1", "4")), [file]).seen
    assert seen is not None
    assert (seen.count, seen.value_without) == (2, 0.5)


def test_the_key_of_an_example_ignores_case_and_space(tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", {"1": ("Breast  CANCER", [(0, 14, "Disease")])})
    seen = evaluate(tagger(GUESSES, keys=keys_of("1")), [file], rounds=1).seen
    assert seen is not None
    assert (seen.count, seen.value_without) == (1, None)


def test_a_model_that_does_not_say_what_it_saw_has_no_overlap(file: Path) -> None:
    found = evaluate(tagger(GUESSES), [file], rounds=1)
    assert found.seen is None
    assert any(each.startswith("Overlap with the training data is not known: ") for each in evaluation_sentences(found))


def test_seeds_are_scored_each(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse = {**GUESSES, "1": []}
    members = {"1": tagger(GUESSES), "2": tagger(worse)}
    monkeypatch.setattr(Scripted, "open", classmethod(lambda _, folder, *rest: members[folder.name]))
    found = evaluate(tagger(GUESSES, others=(tmp_path / "1", tmp_path / "2")), [file], rounds=1).spread
    assert found is not None
    assert [seed.name for seed in found.seeds] == ["1", "2"]
    first, second = (seed.value for seed in found.seeds)
    assert (first, second) == (pytest.approx(0.8), pytest.approx(6 / 9))
    assert found.mean == pytest.approx((first + second) / 2)
    assert found.deviation == pytest.approx(abs(first - second) / math.sqrt(2))


def test_confidence_of_entities_is_compared_with_their_precision(file: Path) -> None:
    trust = evaluate(tagger(GUESSES), [file], rounds=1).trust
    assert trust is not None
    assert (trust.what, trust.answers) == ("entities", 5)
    # 0.8, 0.85, 0.9, 0.95 are right and 0.4 is not
    assert trust.ece == pytest.approx((0.2 + 0.15 + 0.1 + 0.05 + 0.4) / 5)
    assert trust.curve[-1].coverage == 1.0
    assert trust.curve[-1].accuracy == pytest.approx(0.8)
    kept = trust.find_operating_point(1.0)
    assert kept is not None
    assert (kept.threshold, kept.coverage) == (0.8, 0.8)


def test_guesses_of_types_that_are_not_annotated_do_not_count(file: Path) -> None:
    class OneType(Scripted):
        def read(self, files: Any, options: Any) -> Any:
            reading = super().read(files, options)
            kept = tuple(replace(each, types=frozenset({"Disease"})) for each in reading.examples[:1])
            return replace(reading, examples=kept)

    model = tagger({"1": [(0, 13, "Disease", 0.9), (0, 6, "Drug", 0.9)]})
    found = evaluate(OneType(**vars(model)), [file], rounds=1)
    assert found.trust is not None
    assert (found.scores.value, found.trust.answers) == (1.0, 1)


@pytest.mark.parametrize("order", [("1", "2", "3"), ("3", "1", "2")])
@pytest.mark.parametrize("partial", [False, True])
def test_documents_in_several_files_have_the_scores_of_one_file(
    tmp_path: Path, order: tuple[str, ...], partial: bool
) -> None:
    documents = {name: DOCUMENTS[name] for name in order}
    one = write_tagged(tmp_path / "all.jsonl", documents)
    each = [write_tagged(tmp_path / f"{name}.jsonl", {name: DOCUMENTS[name]}) for name in order]
    model = tagger({name: [(0, 2, "Drug", 0.9), *GUESSES[name]] for name in order})
    model = model.with_task(replace(model.task, partial=partial))
    alone, apart = (evaluate(model, files, rounds=1).scores for files in ([one], each))
    assert alone.measures == apart.measures
    assert alone.measures["precision"] == 2 / 6


def test_the_order_of_documents_does_not_change_the_interval(tmp_path: Path) -> None:
    names = list(DOCUMENTS)
    files = [write_tagged(tmp_path / f"{name}.jsonl", {name: DOCUMENTS[name]}) for name in names]
    model = tagger(GUESSES)
    intervals = [evaluate(model, order, rounds=50).interval for order in (files, files[::-1], files[1:] + files[:1])]
    assert intervals[0].low < intervals[0].high
    assert intervals[1:] == intervals[:1] * 2


def test_types_that_a_file_does_not_annotate_are_left_out_if_it_is_said(tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", {"1": DOCUMENTS["1"], "4": DOCUMENTS["4"]})
    model = tagger({**GUESSES, "1": [*GUESSES["1"], (0, 6, "Drug", 0.9)]})
    found = evaluate(model, [file], ReadOptions(types=("Disease",)), rounds=1)
    assert found.scores.measures["precision"] == found.scores.measures["recall"] == 1.0
    assert set(found.scores.by_label) == {"Disease"}
    assert found.scores.notes == (
        "In 2 of 2 examples only Disease counts: guesses of other types are not scored there.",
    )
    assert ("entities of other types than Disease were left out: Drug", 1) in [
        (remark.reason, remark.count) for remark in found.remarks
    ]


def test_guesses_of_a_type_that_no_file_has_are_counted_and_said(tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", {"1": DOCUMENTS["1"]})
    model = tagger({"1": [(0, 13, "Disease", 0.9), (0, 6, "Drug", 0.9)]})
    found = evaluate(model, [file], rounds=1)
    assert found.scores.measures["precision"] == 0.5
    assert "Drug (1)" in found.scores.notes[0]


@pytest.mark.parametrize(
    ("types", "sentence"),
    [
        (("Gene",), "Gene"),
        (("other.jsonl=Disease",), r"other\.jsonl"),
        (("",), "expected"),
        (("test.jsonl=",), "expected"),
    ],
)
def test_types_that_cannot_be_meant_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, types: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(BadSetting, match=sentence):
        evaluate(tagger(GUESSES), [file], ReadOptions(types=types), rounds=1)


def test_only_taggers_are_told_types(tmp_path: Path) -> None:
    file = write_labelled(tmp_path / "test.jsonl", {"1": ("a text", "good")})
    with pytest.raises(BadSetting, match="tag"):
        evaluate(classifier({"1": "good"}), [file], ReadOptions(types=("good",)), rounds=1)


def test_a_tagger_that_finds_nothing_is_said_to(file: Path) -> None:
    found = evaluate(tagger({}), [file], rounds=1)
    assert any("finds no entity" in sentence for sentence in evaluation_sentences(found))


def test_another_model_is_compared_on_the_same_examples(file: Path) -> None:
    found = evaluate(
        tagger(GUESSES), [file], against=tagger({**GUESSES, "1": []}, folder=Path("old")), rounds=100
    ).against
    assert found is not None
    assert (found.model, found.difference) == ("old", pytest.approx(0.8 - 6 / 9))
    assert found.difference_interval.low <= found.difference <= found.difference_interval.high
    assert 0 < found.p_value <= 1


def test_a_model_is_no_better_than_itself(file: Path) -> None:
    found = evaluate(tagger(GUESSES), [file], against=tagger(GUESSES), rounds=20).against
    assert found is not None
    assert (found.difference, found.p_value) == (0.0, 1.0)


def test_taggers_with_other_heads_can_be_compared(file: Path) -> None:
    model = tagger(GUESSES)
    settings = replace(model.task.settings, scheme="bioes")
    other = model.with_task(replace(model.task, settings=settings))
    assert evaluate(model, [file], against=other, rounds=1).against is not None


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (classifier({}), "only models for the same task can be compared"),
        (
            tagger({}, types=("Disease", "Gene")),
            "they differ in their types, Disease, Drug against Disease, Gene",
        ),
    ],
    ids=["task", "labels"],
)
def test_models_for_other_questions_are_not_compared(file: Path, other: TaskModel, sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        evaluate(tagger(GUESSES), [file], against=other)
    assert sentence in str(refused.value)


def test_classifiers_that_are_judged_differently_are_not_compared(file: Path) -> None:
    one = classifier({})
    other = one.with_task(replace(one.task, settings=replace(one.task.settings, main="macro_f1")))
    with pytest.raises(BadSetting, match="measure"):
        evaluate(one, [file], against=other)


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ({}, "has no example that can be scored"),
        ({"1": ("breast cancer", [])}, "None of the 1 examples"),
        ({"1": ("braf gene", [(0, 4, "Gene")])}, "'Gene'"),
    ],
    ids=["empty", "no gold", "strange label"],
)
def test_what_cannot_be_scored_is_refused(documents: Any, sentence: str, tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", documents)
    with pytest.raises(UserError) as refused:
        evaluate(tagger(GUESSES), [file])
    assert sentence in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"The input .*none\.jsonl"):
        evaluate(tagger(GUESSES), [tmp_path / "none.jsonl"])


def test_rows_that_cannot_be_read_are_named(file: Path) -> None:
    file.write_text(f"{file.read_text()}not JSON\n")
    (aside,) = evaluate(tagger(GUESSES), [file], rounds=1).set_aside
    assert (Path(aside.source).name, aside.position) == ("test.jsonl", "line 5")


def test_a_part_is_what_fine_tuning_kept_apart(tmp_path: Path) -> None:
    rows = {str(number): (f"aspirin {number}", [(0, 7, "Drug")]) for number in range(20)}
    file = write_tagged(tmp_path / "all.jsonl", rows)
    model = tagger({}, facts={"split": {"shares": "80/10/10", "seed": 3}})
    wanted = split_examples(model.read([file], _options()).examples, parse_split("80/10/10"), 3)[2]
    found = evaluate(model, [file], part="test", rounds=1)
    assert found.examples == len(wanted) == 2


def test_a_part_that_cannot_be_checked_is_remarked_on(tmp_path: Path) -> None:
    rows = {str(number): (f"aspirin {number}", [(0, 7, "Drug")]) for number in range(20)}
    file = write_tagged(tmp_path / "all.jsonl", rows)
    model = tagger({}, facts={"split": {"shares": "80/10/10", "seed": 3}})
    (remark,) = evaluate(model, [file], part="test", rounds=1).remarks
    assert "cannot be checked: the model's folder has no hashes" in remark.reason


def test_a_part_of_other_files_is_refused(tmp_path: Path) -> None:
    rows = {str(number): (f"aspirin {number}", [(0, 7, "Drug")]) for number in range(20)}
    file = write_tagged(tmp_path / "all.jsonl", rows)
    keys = frozenset(Example(id=name, texts=(text,)).key for name, (text, _) in rows.items())
    model = tagger({}, keys=keys, facts={"split": {"shares": "80/10/10", "seed": 3}})
    with pytest.raises(BadFile, match="4 texts that ner was trained on are not in the training part"):
        evaluate(model, [file], part="test")


def test_a_text_of_two_documents_does_not_make_a_part_strange(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(n),
            "pmid": f"d{n // 2}",
            "text": "more is needed" if n % 2 else f"text {n}",
            "label": "no",
        }
        for n in range(40)
    ]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    facts = {"split": {"shares": "80/10/10", "seed": 3}}
    train = split_examples(classifier({}).read([file], _options()).examples, parse_split("80/10/10"), 3)[0]
    keys = frozenset(example.key for example in train)
    said = {row["id"]: answer("no", 0.9) for row in rows}
    found = evaluate(classifier(said, keys=keys, facts=facts), [file], part="test", rounds=1)
    assert found.seen is not None
    assert (found.examples, found.seen.count) == (4, 2)


@pytest.mark.parametrize(
    ("part", "facts", "sentence"),
    [
        ("middle", {}, "There is no part 'middle'"),
        ("test", {}, "task.json has no split"),
        ("test", {"split": {"shares": "90/10", "seed": 1}}, "leaves no example in the part 'test'"),
    ],
)
def test_a_part_that_there_is_not_is_refused(part: str, facts: Any, sentence: str, file: Path) -> None:
    with pytest.raises(UserError) as refused:
        evaluate(tagger(GUESSES, facts=facts), [file], part=part)
    assert sentence in str(refused.value)


def test_a_classifier_has_confusion_and_confidence(tmp_path: Path) -> None:
    rows = {"1": ("breast", "yes"), "2": ("cancer", "no"), "3": ("aspirin", "no")}
    said = {"1": answer("yes", 0.9), "2": answer("yes", 0.6), "3": answer("no", 0.7)}
    found = evaluate(classifier(said), [write_labelled(tmp_path / "test.jsonl", rows)], rounds=10)
    assert found.scores.value == pytest.approx(2 / 3)
    assert found.confusion is not None
    assert (found.confusion.labels, found.confusion.counts) == (("no", "yes"), ((1, 1), (0, 1)))
    assert found.trust is not None
    assert found.trust.what == "labels"


def test_numbers_have_neither_confusion_nor_confidence(tmp_path: Path) -> None:
    from alembert.tasks.classify.scores import ClassifyAnswer

    rows = {"1": ("breast", 0.5), "2": ("cancer", 1.5), "3": ("aspirin", 2.5)}
    said = {name: ClassifyAnswer(value=float(name)) for name in rows}
    file = write_labelled(tmp_path / "test.jsonl", rows)
    found = evaluate(classifier(said, (), "number"), [file], rounds=5)
    assert (found.scores.main, found.scores.value) == ("spearman", pytest.approx(1.0))
    assert (found.confusion, found.trust) == (None, None)


def test_the_table_is_json(file: Path) -> None:
    found = evaluate(tagger(GUESSES), [file], against=tagger(GUESSES), rounds=5)
    table = json.loads(json.dumps(found.to_table()))
    assert table["scores"]["measures"]["f1"] == pytest.approx(0.8)
    assert set(table) == set(Evaluation.__dataclass_fields__)


def _options() -> Any:
    from alembert.corpus.readers.contract import ReadOptions

    return ReadOptions()


def test_why_nothing_can_be_scored_is_said(tmp_path: Path) -> None:
    broken = tmp_path / "test.jsonl"
    broken.write_text('{"text": "a", "entities": []}x\n')
    with pytest.raises(BadFile, match=r"1 set aside; line 1: the line is not JSON"):
        evaluate(tagger(GUESSES), [broken])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("record", "set aside and are not in the scores"), ("annotation", "of examples that are scored")],
)
def test_annotations_that_are_left_out_leave_their_example(kind: Any, sentence: str, file: Path) -> None:
    aside = SetAside("test.jsonl", "line 1", "1", "why", kind)
    found = replace(evaluate(tagger(GUESSES), [file]), set_aside=(aside,))
    assert sentence in [*evaluation_sentences(found)][-1]
