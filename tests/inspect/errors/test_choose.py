"""Errors of the task choose: what is counted, and which example comes first."""

from types import SimpleNamespace
from typing import Any

from alembert.inspect.errors.choose import analyse_errors
from alembert.tasks.choose.data import ChooseExample, ChoosePrediction
from alembert.tasks.example import Coverage

MODEL: Any = SimpleNamespace()


def asked(name: str, gold: int, *probabilities: float) -> tuple[ChooseExample, ChoosePrediction]:
    choices = "abcde"[: len(probabilities)]
    example = ChooseExample(id=name, texts=("which?", *choices), where=name, gold=gold)
    best = max(range(len(choices)), key=probabilities.__getitem__)
    return example, ChoosePrediction(probabilities, Coverage(windows=len(choices)), best)


PAIRS = [
    asked("right", 0, 0.6, 0.4),
    asked("unsure", 1, 0.5, 0.4, 0.1),
    asked("sure", 2, 0.9, 0.08, 0.02),
]
FOUND = analyse_errors(MODEL, [example for example, _ in PAIRS], [guess for _, guess in PAIRS])


def test_errors_are_counted() -> None:
    assert FOUND.summary == ("2 of 3 questions are answered wrong; for 1 of them the right choice is the second best")


def test_the_surest_error_comes_first_with_its_choices() -> None:
    first = FOUND.cases[0]
    assert (first.where, first.problem) == ("sure", "right: 3; guessed: 1 (0.90)")
    assert first.texts == ("which?", "1. a", "2. b", "3. c")


def test_places_that_are_guessed_too_often_are_seen() -> None:
    by_place = next(table for table in FOUND.tables if table.name == "by_place")
    assert by_place.rows == (("1", 1, 3, 1.0), ("2", 1, 0, 0.0), ("3", 1, 0, 0.0))


def test_numbers_of_choices_are_told_apart() -> None:
    by_choices = next(table for table in FOUND.tables if table.name == "by_choices")
    assert by_choices.rows == (("2", 1, 1.0), ("3", 2, 0.0))
