"""Errors of the task `choose`: by position and number of choices; the most confident first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alembert.inspect.errors import ErrorAnalysis, ErrorCase, ErrorQuestion
from alembert.inspect.tables import Table
from alembert.tasks.choose.data import ChooseExample, ChoosePrediction

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, slots=True)
class _ScoredChoice:
    """A question with a right answer, beside the guess."""

    example: ChooseExample
    guess: ChoosePrediction
    gold: int

    @property
    def is_right(self) -> bool:
        return self.guess.choice == self.gold

    @property
    def rank(self) -> int:
        """Rank of the right choice, 1 for the likeliest."""
        return 1 + sum(other > self.guess.probabilities[self.gold] for other in self.guess.probabilities)

    @property
    def windows(self) -> int:
        """Rows of a choice, on average, rounded up."""
        return -(-self.guess.coverage.windows // len(self.example.choices))


def analyse_errors(
    model: TaskModel, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]
) -> ErrorAnalysis:
    """Sort the errors of a model that chooses."""
    pairs = zip(examples, predictions, strict=True)
    scored = [_ScoredChoice(example, guess, example.gold) for example, guess in pairs if example.gold is not None]
    wrong = sorted((choice for choice in scored if not choice.is_right), key=lambda choice: -choice.guess.score)
    second = sum(choice.rank == 2 for choice in wrong)
    return ErrorAnalysis(
        summary=f"{len(wrong):,} of {len(scored):,} questions are answered wrong; for {second:,} of them the right choice is "
        "the second best",
        tables=(
            _group_table(
                scored, "by_choices", "By number of choices", "choices", lambda choice: len(choice.example.choices)
            ),
            _position_table(scored),
            _group_table(scored, "by_windows", "By windows of a choice", "windows", lambda choice: choice.windows),
        ),
        cases=tuple(map(_case, wrong)),
        totals={"questions": len(scored), "wrong answers": len(wrong)},
    )


def _group_table(
    scored: Sequence[_ScoredChoice], name: str, title: str, unit: str, value: Callable[[_ScoredChoice], int]
) -> Table:
    groups: dict[int, list[_ScoredChoice]] = {}
    for choice in sorted(scored, key=value):
        groups.setdefault(value(choice), []).append(choice)
    rows = tuple((str(key), len(part), _accuracy(part)) for key, part in groups.items())
    header = (unit, "questions", "accuracy")
    return Table(name=name, title=title, header=header, rows=rows, shares={"accuracy": "questions"})


def _position_table(scored: Sequence[_ScoredChoice]) -> Table:
    """Compare how often each position is right and guessed: a model may have learnt the position, not the answer."""
    rows = []
    for position in range(max((len(choice.example.choices) for choice in scored), default=0)):
        right = [choice for choice in scored if choice.gold == position]
        guessed = sum(choice.guess.choice == position for choice in scored)
        rows.append((str(position + 1), len(right), guessed, _accuracy(right)))
    header = ("place", "right", "guessed", "accuracy")
    title = "By the place of the right choice"
    return Table(name="by_place", title=title, header=header, rows=tuple(rows), shares={"accuracy": "right"})


def _accuracy(part: Sequence[_ScoredChoice]) -> float | None:
    return sum(choice.is_right for choice in part) / len(part) if part else None


def _case(choice: _ScoredChoice) -> ErrorCase:
    example, guess = choice.example, choice.guess
    problem = f"right: {choice.gold + 1}; guessed: {guess.choice + 1} ({guess.score:.2f})"
    choices = (f"{number}. {text}" for number, text in enumerate(example.choices, start=1))
    texts = (*example.texts[: 1 + example.has_passage], *choices)
    question = ErrorQuestion(example=example)
    return ErrorCase(id=example.id, where=example.where, problem=problem, texts=texts, question=question)
