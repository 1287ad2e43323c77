"""Answers of a model with how sure it is of each and whether it is right: what calibration is computed from.

An answer is what was guessed: the label of an example, each of its labels, each entity. What the model did not say is not
among them: recall is a matter of scores. A task whose answers have no probability, such as regression, has none.
"""

# N answers
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics.classes import codes, confusion
from alembert.tasks.task import AnyTask


@dataclass(frozen=True, eq=False)
class Judged:
    """How sure and how right answers are."""

    what: str
    """What an answer is, in the plural."""
    sure_N: npt.NDArray[np.float64]
    right_N: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sure_N)


def judged(task: AnyTask, examples: Sequence[Any], predictions: Sequence[Any]) -> Judged | None:
    """Compare each answer with the right ones; none if the task's answers have no probability."""
    if task.name not in _ANSWERS:
        return None
    what, answers = _ANSWERS[task.name]
    found = [
        answer
        for example, prediction in zip(examples, predictions, strict=True)
        for answer in answers(example, prediction)
    ]
    if not found:
        return None
    return Judged(what, np.array([sure for sure, _ in found]), np.array([right for _, right in found]))


def _entities(example: Any, prediction: Any) -> Iterator[tuple[float, bool]]:
    gold = set(example.entities or ())
    for entity in prediction.entities:
        if example.types is None or entity.label in example.types:
            yield entity.score, (entity.start, entity.end, entity.label) in gold


def _labels(example: Any, prediction: Any) -> Iterator[tuple[float, bool]]:
    for gold, answer in zip(example.golds, prediction.answers, strict=True):
        if answer.labels is not None:
            right = {gold} if isinstance(gold, str) else set(gold)
            yield from ((answer.probabilities[label], label in right) for label in answer.labels)
        elif answer.label is not None:
            yield answer.score, answer.label == gold


_ANSWERS = {"tag": ("entities", _entities), "classify": ("labels", _labels)}


def confusion_of(
    task: AnyTask, examples: Sequence[Any], predictions: Sequence[Any]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]] | None:
    """Count answers by right label (rows) and guessed label (columns); none unless each answer is one label."""
    if task.name != "classify" or getattr(task, "kind", None) != "single":
        return None
    gold = [str(gold) for example in examples for gold in example.golds]
    guess = [answer.label for prediction in predictions for answer in prediction.answers]
    counts = confusion(codes(gold, task.labels), codes(guess, task.labels), len(task.labels))
    return task.labels, tuple(map(tuple, counts.tolist()))
