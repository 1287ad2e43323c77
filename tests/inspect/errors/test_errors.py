"""The error atlas: kinds, groups, the worst examples, and how they are shown."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadSetting
from alembert.html import EntityMark, split_runs
from alembert.infer.task_model import TaskModel
from alembert.inspect.errors import ErrorReport, find_errors, render_errors_page
from alembert.inspect.errors.entity_matches import match_entities
from alembert.inspect.errors.tag import WindowAlignment
from alembert.inspect.tables import choose_excerpts, format_run
from alembert.tasks.classify.scores import ClassifyAnswer
from alembert.tasks.example import surface_key
from alembert.tasks.metrics import spans
from alembert.tasks.tag.data import TagExample
from page_checks import check_page
from scripted_models import answer, classifier, tagger, write_labelled, write_tagged
from small_checkpoints import fine_tuned

ENTITIES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 5), st.sampled_from("ab")).map(
        lambda made: (made[0], made[0] + made[1], made[2])
    ),
    max_size=8,
)


# -- kinds


@pytest.mark.parametrize(
    ("gold", "guess", "kinds"),
    [
        ([(0, 3, "a")], [(0, 3, "a")], ["right"]),
        ([(0, 3, "a")], [(1, 3, "a")], ["boundary"]),
        ([(0, 3, "a")], [(0, 3, "b")], ["type"]),
        ([(0, 3, "a")], [(2, 5, "b")], ["both"]),
        ([(0, 3, "a")], [], ["missed"]),
        ([], [(0, 3, "a")], ["spurious"]),
        ([(0, 3, "a")], [(3, 5, "a")], ["missed", "spurious"]),
        ([(0, 9, "a")], [(0, 3, "a"), (4, 9, "a")], ["boundary", "spurious"]),
        ([(0, 3, "a"), (0, 3, "b")], [(0, 3, "b")], ["right", "missed"]),
    ],
)
def test_each_pair_has_its_kind(gold: Any, guess: Any, kinds: list[str]) -> None:
    assert [found.kind for found in match_entities(gold, guess)] == kinds


@given(ENTITIES, ENTITIES)
def test_every_entity_is_in_one_finding_and_right_ones_are_those_of_the_strict_score(gold: Any, guess: Any) -> None:
    found = match_entities(gold, guess)
    assert sorted(each.gold for each in found if each.gold) == sorted(set(gold))
    assert sorted(each.guess for each in found if each.guess) == sorted(set(guess))
    assert sum(each.kind == "right" for each in found) == spans.span_scores([gold], [guess]).strict.tp


# -- where entities stand


def ground_of(text: str, **settings: int) -> WindowAlignment:
    model = tagger({}, **settings)
    (encoded,) = model.task.encode([TagExample(id="1", texts=(text,))], model.engine.tokenizer, 512)
    return WindowAlignment.from_encoded(encoded)


def test_words_and_pieces_of_an_entity() -> None:
    ground = ground_of("the braf patient")
    assert (ground.words_of((4, 8, "x")), ground.pieces_of((4, 8, "x"))) == ((1, 2), (1, 5))
    assert ground.pieces_of((4, 16, "x")) == (1, 6)
    assert ground.words_of((5, 7, "x")) == (1, 2)


def test_a_text_of_one_window_has_no_border() -> None:
    assert ground_of("the braf patient").distance_to_border((4, 8, "x")) is None


def test_distance_is_to_where_the_window_was_cut() -> None:
    text = " ".join(["aspirin"] * 40)
    ground = ground_of(text, length=22, overlap=8)
    assert len(ground.windows) > 2
    distances = [ground.distance_to_border((8 * word, 8 * word + 7, "x")) for word in range(40)]
    # The first window ends after 20 words, and its last four words of the overlap belong to the next one.
    assert distances[:3] == [19, 18, 17]
    assert min(distance for distance in distances if distance is not None) == 4
    assert distances[-1] == 39 - ground.windows[-1].start


# -- tables of a tagger

TEXTS: dict[str, Any] = {
    "1": ("breast cancer and cancer", [(0, 13, "Disease"), (18, 24, "Disease")]),
    "2": ("aspirin helps", [(0, 7, "Drug")]),
    "3": ("the patient has", []),
}
GUESSES: dict[str, Any] = {
    "1": [(7, 13, "Disease", 0.9), (18, 24, "Disease", 0.8)],
    "2": [(0, 7, "Disease", 0.7)],
    "3": [(4, 11, "Drug", 0.6)],
}
KNOWN = {surface_key("Cancer", "Disease"): 7, surface_key("aspirin", "Drug"): 1}


@pytest.fixture
def atlas(tmp_path: Path) -> ErrorReport:
    return find_errors(tagger(GUESSES, known=KNOWN), [write_tagged(tmp_path / "test.jsonl", TEXTS)])


def table(atlas: ErrorReport, name: str) -> dict[Any, Any]:
    (found,) = [each for each in atlas.tables if each.name == name]
    return {row[0]: row[1:] for row in found.rows}


def test_kinds_are_counted(atlas: ErrorReport) -> None:
    counts = {kind: row[0] for kind, row in table(atlas, "kinds").items()}
    assert counts == {"right": 1, "boundary": 1, "type": 1, "both": 0, "missed": 0, "spurious": 1}


def test_recall_is_by_the_right_entity_and_precision_by_the_guess(atlas: ErrorReport) -> None:
    words = table(atlas, "by_words")
    assert words["2"] == (1, 0.0, 0, None, 0.0)
    assert words["1"][:4] == (2, 0.5, 4, 0.25)


def test_groups_by_training(atlas: ErrorReport) -> None:
    assert table(atlas, "by_seen")["seen"][:3] == (2, 0.5, 2)
    assert table(atlas, "by_seen")["unseen"][:3] == (1, 0.0, 2)
    assert set(table(atlas, "by_times")) == {"0", "1", "5-9"}


def test_every_breakdown_adds_up_to_all_entities(atlas: ErrorReport) -> None:
    for found in atlas.tables:
        if found.name.startswith("by_"):
            assert (sum(row[1] for row in found.rows), sum(row[3] for row in found.rows)) == (3, 4)


def test_types_taken_for_others(atlas: ErrorReport) -> None:
    assert table(atlas, "confusions") == {"Drug": ("Disease", 1)}


def test_without_counts_of_training_it_says_so(tmp_path: Path) -> None:
    atlas = find_errors(tagger(GUESSES), [write_tagged(tmp_path / "test.jsonl", TEXTS)])
    assert "by_seen" not in {found.name for found in atlas.tables}
    (note,) = atlas.notes
    assert note.startswith("Which entities were seen in training is not known: the model's folder has no hashes")


def test_entities_in_parts_are_missed() -> None:
    from alembert.inspect.errors.tag import analyse_errors

    model = tagger({})
    example = TagExample(id="1", texts=("breast and cancer",), entities=(), discontinuous=((0, 17, "Disease"),))
    found = analyse_errors(model, [example], model.predict([example]))
    assert {row[0]: row[1] for row in found.tables[0].rows}["missed"] == 1


# -- examples


def test_the_worst_come_first_and_right_ones_not_at_all(tmp_path: Path) -> None:
    said = {**GUESSES, "2": [(0, 7, "Drug", 0.9)], "3": [(0, 3, "Drug", 0.5), (4, 11, "Drug", 0.6)]}
    file = write_tagged(tmp_path / "test.jsonl", TEXTS)
    assert [case.id for case in find_errors(tagger(said), [file]).worst] == ["3", "1"]
    assert [case.id for case in find_errors(tagger(said), [file], top=1).worst] == ["3"]


def test_json_has_tables_and_examples_with_offsets(atlas: ErrorReport) -> None:
    record = json.loads(json.dumps(atlas.to_dict()))
    assert record["tables"]["kinds"][0] == {
        "kind": "right",
        "count": 1,
        "what it is": "borders and type are right",
    }
    for case in record["worst"]:
        for mark in case["marks"]:
            assert case["texts"][0][mark["start"] : mark["end"]] == mark["text"]


def test_a_page_shows_both_sides_and_fetches_nothing(atlas: ErrorReport) -> None:
    html = render_errors_page(atlas)
    check_page(html)
    assert html.index("Kinds of errors") < html.index("The worst examples") < html.index("By length of the entity")
    assert html.startswith("<!doctype html>")
    classes = {name for names in re.findall(r'<mark class="([^"]*)"', html) for name in names.split()}
    assert {"gold", "guess"} <= classes
    assert "guessed: Disease (0.70), type" in html
    assert "http" not in html
    assert "<script" not in html


def test_text_cannot_break_the_page(tmp_path: Path) -> None:
    file = write_tagged(tmp_path / "test.jsonl", {"1": ("<b>cancer", [(3, 9, "Disease")])})
    assert "&lt;b&gt;" in render_errors_page(find_errors(tagger({}), [file]))


def test_a_long_text_is_shown_around_its_errors() -> None:
    text = "a" * 5000
    marks = [EntityMark(10, 20, "x", "gold", "right"), EntityMark(3000, 3010, "x", "gold", "missed")]
    assert choose_excerpts(text, marks) == [(2880, 3130)]
    assert choose_excerpts(text[:100], marks) == [(0, 100)]


@given(st.text("ab ", min_size=13, max_size=20), ENTITIES, ENTITIES)
def test_runs_hold_the_whole_text_and_each_mark_once(text: str, gold: Any, guess: Any) -> None:
    marks = [EntityMark(s, min(e, len(text)), t, "gold", "right") for s, e, t in set(gold)]
    marks += [EntityMark(s, min(e, len(text)), t, "guess", "right") for s, e, t in set(guess)]
    cut = list(split_runs(text, marks))
    assert "".join(run.text for run in cut) == text
    assert sum(len(run.opens) for run in cut) == sum(len(run.closes) for run in cut) == len(marks)
    shown = "".join(format_run(run) for run in cut)
    assert (shown.count("["), shown.count("{")) == (shown.count("]"), shown.count("}"))


# -- classifiers


def test_confident_errors_come_first(tmp_path: Path) -> None:
    rows = {"1": ("breast", "yes"), "2": ("cancer", "no"), "3": ("aspirin", "no"), "4": ("the", "yes")}
    said = {name: answer("yes", score) for name, score in zip(rows, (0.9, 0.6, 0.95, 0.7), strict=True)}
    atlas = find_errors(classifier(said), [write_labelled(tmp_path / "test.jsonl", rows)])
    assert [case.id for case in atlas.worst] == ["3", "2"]
    assert atlas.worst[0].problem == "right: no; guessed: yes (0.95)"
    assert atlas.summary == "2 of 4 answers are wrong"
    assert table(atlas, "confusions") == {"no": ("yes", 2)}
    assert table(atlas, "by_confidence") == {
        "0.5 to 0.7": (1, 0.0),
        "0.7 to 0.9": (1, 1.0),
        "0.9 to 0.99": (2, 0.5),
    }
    assert table(atlas, "by_label")["yes"] == (2, 1.0, 4, 0.5, pytest.approx(2 / 3))
    assert table(atlas, "by_windows") == {"1": (4, 0.5)}
    assert "http" not in render_errors_page(atlas)


def test_of_several_labels_all_must_be_right(tmp_path: Path) -> None:
    rows = {"1": ("breast", ["a", "b"]), "2": ("cancer", ["a"])}
    sure = {"a": 0.8, "b": 0.3, "c": 0.7}
    said = {
        "1": ClassifyAnswer(labels=("a", "c"), probabilities=sure, score=0.7),
        "2": ClassifyAnswer(labels=("a",), probabilities=sure, score=0.7),
    }
    model = classifier(said, ("a", "b", "c"), "multi")
    atlas = find_errors(model, [write_labelled(tmp_path / "test.jsonl", rows)])
    assert [case.problem for case in atlas.worst] == ["right: a, b; guessed: a, c (0.70)"]
    assert table(atlas, "confusions") == {"b": ("c", 1)}


def test_of_numbers_the_largest_error_comes_first(tmp_path: Path) -> None:
    rows = {"1": ("breast", 0.5), "2": ("cancer", 1.5)}
    said = {"1": ClassifyAnswer(value=0.75), "2": ClassifyAnswer(value=4.5)}
    atlas = find_errors(classifier(said, (), "number"), [write_labelled(tmp_path / "test.jsonl", rows)])
    assert [case.problem for case in atlas.worst] == ["right: 1.5; guessed: 4.5", "right: 0.5; guessed: 0.75"]
    assert table(atlas, "by_value") == {"0.5 to 0.5": (1, 0.25), "1.5 to 1.5": (1, 3.0)}


def test_a_task_without_an_atlas_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tagger({})
    monkeypatch.setattr(type(model.task), "name", "sing")
    with pytest.raises(BadSetting, match="no error atlas for the task sing"):
        find_errors(model, [tmp_path])


# -- why


EXPLAINED = ("tag, crf", "tag, span", "classify", "classify, several", "answer", "answer, label", "choose", "relate")


@pytest.mark.parametrize("case", [*EXPLAINED, "relate, documents"])
def test_the_worst_examples_say_why(case: str, tmp_path: Path) -> None:
    fine_tuned(case, tmp_path / "model", tmp_path / "examples.jsonl")
    report = find_errors(TaskModel.open(tmp_path / "model"), [tmp_path / "examples.jsonl"], explain=2)
    assert [each.why is not None for each in report.worst[:3]] == [True, True, False][: len(report.worst)]
    for each in report.worst[:2]:
        assert each.why is not None
        assert each.why.method == "occlusion"
        assert each.to_dict()["why"]["question"] == each.why.question
        assert each.why.label in each.problem or report.task == "tag"
    check_page(page := render_errors_page(report))
    assert all(f"{escape(each.why.question[1:])}?" in page for each in report.worst if each.why)


def test_a_tagger_is_asked_about_the_wrong_guess_that_it_is_surest_of(tmp_path: Path) -> None:
    fine_tuned("tag, crf", tmp_path / "model", tmp_path / "examples.jsonl")
    report = find_errors(TaskModel.open(tmp_path / "model"), [tmp_path / "examples.jsonl"], explain=1)
    worst = report.worst[0]
    wrong = [mark for mark in worst.marks if mark.kind != "right" and mark.side == "guess"]
    surest = max(wrong, key=lambda mark: mark.score or 0)
    assert worst.why is not None
    assert (worst.why.span, worst.why.label) == ((surest.start, surest.end), surest.label)


def test_explanations_cost_no_more_than_half_of_the_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine_tuned("tag, crf", tmp_path / "model", tmp_path / "examples.jsonl")
    model = TaskModel.open(tmp_path / "model")
    costs = iter([1500, 1000, 9000, 200, *[9000] * 30])
    monkeypatch.setattr("alembert.inspect.errors.estimate_tokens", lambda *_: next(costs))
    monkeypatch.setattr("alembert.inspect.errors._SMALL_BUDGET", 1000)
    report = find_errors(model, [tmp_path / "examples.jsonl"], explain=None)
    assert 2500 <= report.coverage.tokens / 2 < 2700
    assert [each.why is not None for each in report.worst[:5]] == [True, True, False, False, False]
    assert report.notes[-1].startswith(f"2 of the {len(report.worst)} worst examples are explained")


def test_nothing_is_explained_unless_it_is_asked_for(tmp_path: Path) -> None:
    fine_tuned("tag, crf", tmp_path / "model", tmp_path / "examples.jsonl")
    report = find_errors(TaskModel.open(tmp_path / "model"), [tmp_path / "examples.jsonl"])
    assert not any(each.why for each in report.worst)
