"""Errors of the task answer: what is counted, what is marked, and which question comes first."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from alembert.corpus.examples.questions import GoldAnswer
from alembert.inspect.errors.answer import analyse_errors
from alembert.inspect.tables import EntityMark
from alembert.tasks.answer.data import AnswerExample, AnswerSettings
from alembert.tasks.answer.scores import AnswerSpan, SpanAnswerPrediction
from alembert.tasks.answer.task import AnswerTask
from alembert.tasks.example import Coverage
from scripted_models import answer, classifier

MODEL: Any = SimpleNamespace(task=AnswerTask(AnswerSettings(), True, "squad2"))
PASSAGE = "Aspirin helps old men. Fever fell."


def asked(
    name: str, right: tuple[int, int] | None, guess: tuple[int, int] | None, score: float
) -> tuple[AnswerExample, SpanAnswerPrediction]:
    answers = () if right is None else (GoldAnswer(PASSAGE[slice(*right)], (right,)),)
    example = AnswerExample(id=name, texts=("What helps?", PASSAGE), where=name, answers=answers)
    best = () if guess is None else (AnswerSpan(PASSAGE[slice(*guess)], *guess, score),)
    return example, SpanAnswerPrediction(best, 0.0, score, guess is None, Coverage(windows=1))


PAIRS = [
    asked("right", (0, 7), (0, 7), 0.9),
    asked("borders", (0, 7), (0, 13), 0.8),
    asked("place", (0, 7), (23, 28), 0.95),
    asked("invented", None, (0, 7), 0.4),
    asked("silent", (0, 7), None, 0.3),
]
FOUND = analyse_errors(MODEL, [example for example, _ in PAIRS], [guess for _, guess in PAIRS])


def test_errors_are_counted_by_what_is_wrong() -> None:
    assert FOUND.summary == "4 of 5 questions are not answered word for word"
    assert [row[:2] for row in FOUND.tables[0].rows] == [(example.id, 1) for example, _ in PAIRS]


def test_the_surest_error_comes_first_and_is_marked_in_the_passage() -> None:
    first = FOUND.cases[0]
    assert (first.id, first.problem) == ("place", "place: right: Aspirin; answered: Fever (0.95)")
    assert first.texts[0] == PASSAGE
    assert first.marks == (
        EntityMark(0, 7, "answer", "gold", "place"),
        EntityMark(23, 28, "answer", "guess", "place", 0.95),
    )


def test_groups_have_scores() -> None:
    by_word = next(table for table in FOUND.tables if table.name == "by_first_word")
    assert by_word.rows[0][:3] == ("what", 5, 0.2)


def test_labels_are_surveyed_as_pairs() -> None:
    task = AnswerTask.learn(
        [AnswerExample(id=name, texts=("q?", "p"), label=name) for name in ("yes", "no")], AnswerSettings()
    )
    model = classifier({}, folder=Path("qa"))
    example = AnswerExample(id="1", texts=("q?", "p"), where="f:1", label="no")
    said = model.say(answer("yes", 0.9), Coverage())
    found = analyse_errors(model.with_task(task), [example], [said])
    assert found.cases[0].id == "1"
