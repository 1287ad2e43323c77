"""The lesson of several tasks on one encoder: each micro-batch is of one of them, and each has a head of its own.

In: a lesson for each task. Out: their portions in turn, their losses, and one verdict. The loss of a step is the mean of
each task's loss in it, weighted by the share of the step's micro-batches that the task has, and by its own weight: so
the turns decide how much a task counts, whatever the number of micro-batches in a step. (A plain sum of the means would
move the model twice as far in a step that happens to hold two tasks.) The model is chosen by the mean of the tasks' main
scores on the development data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from torch import Tensor

from alembert.data.example_sampler import MultiTaskBatchPlan, MultiTaskSampler
from alembert.data.feed import Cursor
from alembert.nn.dropout import DropoutSeed
from alembert.nn.model import Model
from alembert.tasks.example import Coverage
from alembert.tasks.task import TaskScores
from alembert.train.finetune_settings import FinetuneSettings
from alembert.train.lesson import Micro, Verdict
from alembert.train.task_lesson import DEV, TaskLesson

MEAN: Final = "mean"
"""The measure that models of several tasks are chosen by."""


class SeveralLesson:
    """Learn several tasks in turn."""

    def __init__(self, lessons: Sequence[TaskLesson], settings: FinetuneSettings, weights: Mapping[str, float]) -> None:
        self.lessons = {lesson.name: lesson for lesson in lessons}
        self.weights = weights
        self.feed = MultiTaskSampler(
            {name: lesson.feed for name, lesson in self.lessons.items()},
            seed=settings.seed,
            temperature=settings.several.sharpness,
        )

    def take(self, cursor: Cursor, count: int, progress: float) -> tuple[list[MultiTaskBatchPlan], Cursor]:
        return self.feed.take(cursor, count)

    def micro(self, portion: MultiTaskBatchPlan) -> Micro:
        micro = self.lessons[portion.owner].micro(portion.items)
        return replace(micro, weight=self.weights[portion.owner] * portion.share)

    def loss(
        self, model: Model, micro: Micro, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        owner = next(name for name in micro.targets if name in self.lessons)
        loss, sums = self.lessons[owner].loss(model, micro, totals, noise)
        return micro.weight * loss, sums

    def examine(self, model: Model, part: int = 0, parts: int = 1) -> dict[str, Any]:
        """Predict a part of the development examples of each task."""
        return {name: lesson.examine(model, part, parts) for name, lesson in self.lessons.items()}

    def verdict(self, found: Sequence[Mapping[str, Any]]) -> Verdict:
        each = {name: lesson.verdict([part[name] for part in found]) for name, lesson in self.lessons.items()}
        scores = {name: verdict.scores[DEV] for name, verdict in each.items()}
        return Verdict(scores, fmean(verdict.loss for verdict in each.values()))


def together(scores: Mapping[str, TaskScores]) -> TaskScores:
    """Put the scores of several tasks into one table, with the mean of the main ones, which models are chosen by.

    >>> one = TaskScores(main="f1", measures={"f1": 0.5, "recall": 0.4})
    >>> together({"ner": one, "topic": TaskScores(main="accuracy", measures={"accuracy": 1.0})}).measures
    {'mean': 0.75, 'ner.f1': 0.5, 'ner.recall': 0.4, 'topic.accuracy': 1.0}
    """
    measures = {f"{name}.{measure}": value for name, one in scores.items() for measure, value in one.measures.items()}
    return TaskScores(
        main=MEAN,
        measures={MEAN: fmean(one.value for one in scores.values()), **measures},
        by_label={f"{name}.{label}": row for name, one in scores.items() for label, row in one.by_label.items()},
        coverage=Coverage.total(one.coverage for one in scores.values()),
        notes=tuple(f"{name}: {note}" for name, one in scores.items() for note in one.notes),
    )
