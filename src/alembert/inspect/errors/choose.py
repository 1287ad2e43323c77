"""Errors of the task `choose`: which places and how many choices they gather at; the most confident errors first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alembert.inspect.errors import ErrorAnalysis, ErrorCase
from alembert.inspect.tables import Table
from alembert.tasks.choose.data import ChooseExample
from alembert.tasks.choose.scores import ChoosePrediction

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, slots=True)
class _ScoredChoice:
    """A question whose answer is known, beside the guess."""

    example: ChooseExample
    guess: ChoosePrediction
    gold: int

    @property
    def is_right(self) -> bool:
        return self.guess.choice == self.gold

    @property
    def rank(self) -> int:
        """Place of the right choice among all, the most likely first, from 1."""
        return 1 + sum(each > self.guess.probabilities[self.gold] for each in self.guess.probabilities)

    @property
    def windows(self) -> int:
        """Rows of a choice, on average, rounded up."""
        return -(-self.guess.coverage.windows // len(self.example.choices))


def analyse_errors(
    model: TaskModel, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]
) -> ErrorAnalysis:
    """Sort the errors of a model that chooses."""
    pairs = zip(examples, predictions, strict=True)
    found = [_ScoredChoice(example, guess, example.gold) for example, guess in pairs if example.gold is not None]
    wrong = sorted((each for each in found if not each.is_right), key=lambda each: -each.guess.score)
    second = sum(each.rank == 2 for each in wrong)
    return ErrorAnalysis(
        summary=f"{len(wrong):,} of {len(found):,} questions are answered wrong; for {second:,} of them the right choice is "
        "the second best",
        tables=(
            _group_table(found, "by_choices", "By number of choices", "choices", lambda e: len(e.example.choices)),
            _position_table(found),
            _group_table(found, "by_windows", "By windows of a choice", "windows", lambda each: each.windows),
        ),
        cases=tuple(map(_case, wrong)),
    )


def _group_table(
    found: Sequence[_ScoredChoice], name: str, title: str, of: str, value: Callable[[_ScoredChoice], int]
) -> Table:
    groups: dict[int, list[_ScoredChoice]] = {}
    for each in sorted(found, key=value):
        groups.setdefault(value(each), []).append(each)
    rows = tuple((str(key), len(part), _accuracy(part)) for key, part in groups.items())
    return Table(name=name, title=title, header=(of, "questions", "accuracy"), rows=rows)


def _position_table(found: Sequence[_ScoredChoice]) -> Table:
    """Compare how often each place is right and guessed: a model may have learnt the place instead of the answer."""
    rows = []
    for place in range(max((len(each.example.choices) for each in found), default=0)):
        right = [each for each in found if each.gold == place]
        guessed = sum(each.guess.choice == place for each in found)
        rows.append((str(place + 1), len(right), guessed, _accuracy(right)))
    header = ("place", "right", "guessed", "accuracy")
    return Table(name="by_place", title="By the place of the right choice", header=header, rows=tuple(rows))


def _accuracy(part: Sequence[_ScoredChoice]) -> float | None:
    return sum(each.is_right for each in part) / len(part) if part else None


def _case(each: _ScoredChoice) -> ErrorCase:
    guess = each.guess
    told = f"right: {each.gold + 1}; guessed: {guess.choice + 1} ({guess.score:.2f})"
    choices = (f"{number}. {text}" for number, text in enumerate(each.example.choices, start=1))
    texts = (*each.example.texts[: 1 + each.example.has_passage], *choices)
    return ErrorCase(id=each.example.id, where=each.example.where, told=told, texts=texts)
