"""The lessons of distillation: rows or plain text in, the distance between student and teacher out.

`TaskImitation` has the rows of a task, whose answers and insides are imitated in any mixture, with right answers beside
them if wanted. `TextImitation` has plain text without masks, and insides alone. What the teacher says comes from a
`Record` on the disk, or is computed with each micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor

from alembert.data.example_sampler import ExampleBatchPlan
from alembert.data.feed import (
    Cursor,
    HeldOutSplit,
    SequenceBatchPlan,
    SequenceSampler,
    SequenceSpec,
    batch_sequences,
)
from alembert.nn.dropout import DropoutSeed
from alembert.nn.model import Model
from alembert.tasks.runtime.torch import TaskBatch
from alembert.train.distill_settings import GeneralSettings, StageSettings
from alembert.train.exercises import Assembler
from alembert.train.held_out import held_out_stretches
from alembert.train.inside import Inside, weighted
from alembert.train.lesson import Micro, Verdict
from alembert.train.task_lesson import TaskLesson
from alembert.train.teacher import Said, Teacher, Wanted
from alembert.train.teacher_record import Record

TEACHER: Final = "teacher"
HELD_OUT: Final = "imitation"
LOOKED_AT: Final = 16_384
"""Tokens of development rows on which a stage without answers is judged."""
Tallies = dict[str, tuple[float, float]]
"""By loss: its sum, and what it is a mean over."""


@dataclass(frozen=True)
class Counted:
    """How many answers, tokens or pairs of them one loss of a micro-batch is a sum over."""

    count: int

    def to(self, device: torch.device) -> Counted:
        return self


@dataclass(frozen=True, eq=False)
class Lecture:
    """What the teacher says about a micro-batch; none: it is asked when the loss is computed."""

    said: Said | None

    @property
    def count(self) -> int:
        return 1

    def to(self, device: torch.device) -> Lecture:
        return self if self.said is None else Lecture(self.said.to(device))


def with_teacher(micro: Micro, counts: Mapping[str, int], said: Said | None) -> Micro:
    """Add what distillation needs to a micro-batch."""
    counted = {name: Counted(count) for name, count in counts.items()}
    return replace(micro, targets={**micro.targets, **counted, TEACHER: Lecture(said)})


class TaskImitation:
    """Imitate a teacher on the rows of a task."""

    def __init__(
        self,
        lesson: TaskLesson,
        teacher: Teacher,
        inside: Inside,
        settings: StageSettings,
        record: Record | None = None,
    ) -> None:
        self.lesson = lesson
        self.teacher = teacher
        self.inside = inside
        self.settings = settings
        self.record = record
        self.weights = settings.losses.chosen()
        self.wanted = wanted_of(inside, settings)
        self._first_rows = [0, *accumulate(len(item) for item in lesson.items)]

    def take(self, cursor: Cursor, count: int, progress: float) -> tuple[Sequence[Any], Cursor]:
        return self.lesson.take(cursor, count, progress)

    def micro(self, portion: ExampleBatchPlan) -> Micro:
        micro = self.lesson.micro(portion)
        said = self._recorded(portion, micro)
        micro = micro if self.inside.watch() is None else replace(micro, wanted=None)
        return with_teacher(micro, self._counts(micro), said)

    def _recorded(self, portion: ExampleBatchPlan, micro: Micro) -> Said | None:
        if self.record is None:
            return None
        return self.record.said(self._rows_of(portion), micro.batch, inside=self.wanted.is_inside)

    def _rows_of(self, portion: ExampleBatchPlan) -> list[int]:
        return [
            self._first_rows[item] + place for item in portion.items for place in range(len(self.lesson.items[item]))
        ]

    def _counts(self, micro: Micro) -> dict[str, int]:
        answers = micro.targets[self.lesson.name].count
        counts = self.inside.counts(micro.batch)
        return counts | {name: answers for name in ("prediction", "hard") if name in self.weights}

    def loss(
        self, model: Model, micro: Micro, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return weighted(self.errors(model, micro, noise), self.weights, totals)

    def errors(self, model: Model, micro: Micro, noise: DropoutSeed | None) -> dict[str, Tensor]:
        """Let the student read a micro-batch, and give the sum of each loss."""
        target: TaskBatch = micro.targets[self.lesson.name]
        said = micro.targets[TEACHER].said or self.teacher.says(micro.batch, self.wanted, target)
        watch, task = self.inside.watch(), self.lesson.task
        answering = self.weights.keys() & {"prediction", "hard"}
        outputs = model(
            micro.batch,
            [self.lesson.head] if answering else [],
            places_P=target.places,
            only=watch is None,
            attention=task.attention,
            trace=watch,
            noise=noise,
        )
        errors = {} if watch is None else self.inside.errors(model, watch, said, micro.batch)
        if "prediction" in answering:
            assert said.answers_PC is not None
            taught, head = said.answers_PC.float(), model.head(self.lesson.head)
            errors["prediction"] = task.imitation(
                head, outputs[self.lesson.head], taught, target, self.settings.imitation
            )
        if "hard" in answering:
            head = model.head(self.lesson.head)
            errors["hard"] = task.loss(head, outputs[self.lesson.head], target, self.settings.loss)
        return errors

    def examine(self, model: Model, part: int = 0, parts: int = 1) -> Any:
        """Let the student do the task, if it learns answers; else see how far it is from the teacher."""
        if self._answers:
            return self.lesson.examine(model, part, parts)
        return _tallies(self, model, self._exams[part::parts])

    def verdict(self, found: Sequence[Any]) -> Verdict:
        return self.lesson.verdict(found) if self._answers else _verdict(found, self.weights)

    @property
    def _answers(self) -> bool:
        return bool(self.weights.keys() & {"prediction", "hard"})

    @cached_property
    def _exams(self) -> list[Micro]:
        """Micro-batches of development rows, with what the teacher says about them: it does not change from look to look."""
        dev = TaskLesson(
            self.lesson.task, self.lesson.dev, self.lesson.dev, self.lesson.settings, head=self.lesson.head
        )
        exams: list[Micro] = []
        for portion in dev.feed.of_pass(0):
            if sum(micro.tokens for micro in exams) >= LOOKED_AT:
                break
            micro = replace(dev.micro(portion), wanted=None)
            exams.append(with_teacher(micro, self.inside.counts(micro.batch), self._heard(micro)))
        return exams

    def _heard(self, micro: Micro) -> Said:
        """Let the teacher read a micro-batch, and bring what it says to where micro-batches are made."""
        there = micro.to(next(self.teacher.model.parameters()).device)
        said = self.teacher.says(there.batch, self.wanted, there.targets[self.lesson.name])
        return said.to(micro.batch.ids_N.device)


class TextImitation:
    """Imitate what happens inside a teacher while it reads plain text."""

    def __init__(self, assembler: Assembler, teacher: Teacher, inside: Inside, settings: GeneralSettings) -> None:
        self.assembler = assembler
        self.teacher = teacher
        self.inside = inside
        self.settings = settings
        self.weights = settings.losses.chosen()
        self.wanted = inside.wanted()
        self.split = HeldOutSplit(assembler.shards, settings.evaluation.share)
        self.feed = SequenceSampler(
            assembler.shards, self.split, seed=settings.seed, micro_tokens=settings.batch.micro_tokens
        )

    def take(self, cursor: Cursor, count: int, progress: float) -> tuple[list[SequenceBatchPlan], Cursor]:
        return self.feed.take(cursor, count, self.cutting(progress))

    def cutting(self, progress: float) -> SequenceSpec:
        """Say how documents are cut at this point of the run."""
        return self.settings.sequences.cutting(progress)

    def micro(self, portion: SequenceBatchPlan) -> Micro:
        return self._micro(portion.stretches)

    def _micro(self, stretches: Sequence[Any]) -> Micro:
        micro = self.assembler.micro(stretches, [], "", ())
        return with_teacher(micro, self.inside.counts(micro.batch), None)

    def loss(
        self, model: Model, micro: Micro, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return weighted(self.errors(model, micro, noise), self.weights, totals)

    def errors(self, model: Model, micro: Micro, noise: DropoutSeed | None) -> dict[str, Tensor]:
        said, watch = self.teacher.says(micro.batch, self.wanted), self.inside.watch()
        assert watch is not None
        model(micro.batch, [], trace=watch, noise=noise)
        return self.inside.errors(model, watch, said, micro.batch)

    def examine(self, model: Model, part: int = 0, parts: int = 1) -> Tallies:
        return _tallies(self, model, self._exams[part::parts])

    def verdict(self, found: Sequence[Tallies]) -> Verdict:
        return _verdict(found, self.weights)

    @cached_property
    def _exams(self) -> list[Micro]:
        tokens = self.settings.evaluation.tokens
        stretches = held_out_stretches(self.assembler, self.split, self.cutting(0.0), tokens)
        return [self._micro(part) for part in batch_sequences(stretches, self.settings.batch.micro_tokens)]


Imitation = TaskImitation | TextImitation


def wanted_of(inside: Inside, settings: StageSettings) -> Wanted:
    """Say what the teacher must tell in a stage."""
    return inside.wanted(answers="prediction" in settings.losses.chosen())


def _tallies(lesson: Imitation, model: Model, exams: Sequence[Micro]) -> Tallies:
    device = next(model.parameters()).device
    total: Tallies = {}
    with torch.no_grad():
        for micro in exams:
            errors = lesson.errors(model, micro.to(device), None)
            for name, error in errors.items():
                value, count = total.get(name, (0.0, 0.0))
                total[name] = (value + float(error), count + micro.targets[name].count)
    return total


def _verdict(found: Sequence[Tallies], weights: Mapping[str, float]) -> Verdict:
    means = {}
    for name in weights:
        parts = [part[name] for part in found if name in part]
        if count := sum(part[1] for part in parts):
            means[name] = sum(part[0] for part in parts) / count
    return Verdict({HELD_OUT: means}, sum(weights[name] * mean for name, mean in means.items()) if means else 0.0)
