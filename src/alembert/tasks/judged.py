"""Answers of a model with how sure it is of each and whether it is right: what calibration is computed from.

An answer is what was guessed: the label of an example, each of its labels, each entity. What the model did not say is not
among them: recall is a matter of scores. A task whose answers have no probability, such as regression, has none.
"""

# N answers
from __future__ import annotations

from collections.abc import Sequence
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
    found = [
        answer
        for example, prediction in zip(examples, predictions, strict=True)
        for answer in task.confidences(example, prediction)
    ]
    if not found:
        return None
    sure, right = (np.array(column) for column in zip(*found, strict=True))
    return Judged(task.answer_name, sure, right)


def confusion_of(
    task: AnyTask, examples: Sequence[Any], predictions: Sequence[Any]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]] | None:
    """Count answers by right label (rows) and guessed label (columns); none unless each answer is one label."""
    found = task.labelled_as(examples, predictions)
    if found is None:
        return None
    gold, guess = (codes(labels, task.labels) for labels in found)
    counts = confusion(gold, guess, len(task.labels))
    return task.labels, tuple(map(tuple, counts.tolist()))
