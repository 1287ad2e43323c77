"""The lessons of distillation: rows or plain text in, the distance between student and teacher out.

`TaskDistillObjective` has the rows of a task, whose answers and insides are imitated in any mixture, with right answers beside
them if wanted. `TextDistillObjective` has plain text without masks, and insides alone. What the teacher says comes from a
`TeacherCache` on the disk, or is computed with each micro-batch.

Projections from a student's states to its teacher's, begun as what fits best on the first rows of a run.

A projection that begins at random spends the first part of the run being learnt, and sends noise into the student
meanwhile. Least squares over a few thousand tokens gives it at once; training goes on from there.
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
from alembert.train.distill.layers import LayerLosses, combine_losses
from alembert.train.distill.settings import GeneralDistillSettings, StageSettings
from alembert.train.distill.teacher import Teacher, TeacherOutputs, TeacherRequest
from alembert.train.distill.teacher_cache import TeacherCache
from alembert.train.finetune.objective import TaskObjective
from alembert.train.objective import EvalResult, MicroBatch
from alembert.train.pretrain.lm import Collator, cut_held_out_spans

TEACHER_TARGET: Final = "teacher"
SCORES_KEY: Final = "imitation"
EVAL_TOKENS: Final = 16_384
"""Tokens of development rows on which a stage without answers is judged."""
LossTallies = dict[str, tuple[float, float]]
"""By loss: its sum, and what it is a mean over."""


@dataclass(frozen=True)
class LossCount:
    """How many answers, tokens or pairs of them one loss of a micro-batch is a sum over."""

    count: int

    def to(self, device: torch.device) -> LossCount:
        return self


@dataclass(frozen=True, eq=False)
class TeacherTarget:
    """What the teacher says about a micro-batch; none: it is asked when the loss is computed."""

    outputs: TeacherOutputs | None

    @property
    def count(self) -> int:
        return 1

    def to(self, device: torch.device) -> TeacherTarget:
        return self if self.outputs is None else TeacherTarget(self.outputs.to(device))


def add_teacher_target(micro: MicroBatch, counts: Mapping[str, int], said: TeacherOutputs | None) -> MicroBatch:
    """Add what distillation needs to a micro-batch."""
    counted = {name: LossCount(count) for name, count in counts.items()}
    return replace(micro, targets={**micro.targets, **counted, TEACHER_TARGET: TeacherTarget(said)})


class TaskDistillObjective:
    """Imitate a teacher on the rows of a task."""

    def __init__(
        self,
        lesson: TaskObjective,
        teacher: Teacher,
        inside: LayerLosses,
        settings: StageSettings,
        record: TeacherCache | None = None,
    ) -> None:
        self.lesson = lesson
        self.teacher = teacher
        self.layer_losses = inside
        self.settings = settings
        self.cache = record
        self.weights = settings.losses.chosen()
        self.request = build_teacher_request(inside, settings)
        self._first_rows = [0, *accumulate(len(item) for item in lesson.items)]

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[Sequence[Any], Cursor]:
        return self.lesson.sample(cursor, count, progress)

    def collate(self, portion: ExampleBatchPlan) -> MicroBatch:
        micro = self.lesson.collate(portion)
        said = self._recorded(portion, micro)
        micro = micro if self.layer_losses.layer_recorder() is None else replace(micro, wanted=None)
        return add_teacher_target(micro, self._counts(micro), said)

    def _recorded(self, portion: ExampleBatchPlan, micro: MicroBatch) -> TeacherOutputs | None:
        if self.cache is None:
            return None
        return self.cache.lookup(self._rows_of(portion), micro.batch, inside=self.request.has_layers)

    def _rows_of(self, portion: ExampleBatchPlan) -> list[int]:
        return [
            self._first_rows[item] + place for item in portion.indices for place in range(len(self.lesson.items[item]))
        ]

    def _counts(self, micro: MicroBatch) -> dict[str, int]:
        answers = micro.targets[self.lesson.name].count
        counts = self.layer_losses.counts(micro.batch)
        return counts | {name: answers for name in ("prediction", "labels") if name in self.weights}

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return combine_losses(self.losses(model, micro, noise), self.weights, totals)

    def losses(self, model: Model, micro: MicroBatch, noise: DropoutSeed | None) -> dict[str, Tensor]:
        """Let the student read a micro-batch, and give the sum of each loss."""
        target: TaskBatch = micro.targets[self.lesson.name]
        said = micro.targets[TEACHER_TARGET].outputs or self.teacher.forward(micro.batch, self.request, target)
        watch, task = self.layer_losses.layer_recorder(), self.lesson.task
        answering = self.weights.keys() & {"prediction", "labels"}
        outputs = model(
            micro.batch,
            [self.lesson.head] if answering else [],
            places_P=target.positions,
            only=watch is None,
            attention=task.attention_pattern,
            trace=watch,
            noise=noise,
        )
        errors = {} if watch is None else self.layer_losses.losses(model, watch, said, micro.batch)
        if "prediction" in answering:
            assert said.answers_PC is not None
            taught, head = said.answers_PC.float(), model.head(self.lesson.head)
            errors["prediction"] = task.distillation_loss(
                head, outputs[self.lesson.head], taught, target, self.settings.imitation
            )
        if "labels" in answering:
            head = model.head(self.lesson.head)
            errors["labels"] = task.loss(head, outputs[self.lesson.head], target, self.settings.loss)
        return errors

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> Any:
        """Let the student do the task, if it learns answers; else see how far it is from the teacher."""
        if self._answers:
            return self.lesson.evaluate(model, part, parts)
        return _tally_losses(self, model, self._exams[part::parts])

    def summarise(self, found: Sequence[Any]) -> EvalResult:
        return self.lesson.summarise(found) if self._answers else _mean_losses(found, self.weights)

    @property
    def _answers(self) -> bool:
        return bool(self.weights.keys() & {"prediction", "labels"})

    @cached_property
    def _exams(self) -> list[MicroBatch]:
        """Micro-batches of development rows, with what the teacher says about them: it does not change from look to look."""
        dev = TaskObjective(
            self.lesson.task, self.lesson.dev, self.lesson.dev, self.lesson.settings, head=self.lesson.head
        )
        exams: list[MicroBatch] = []
        for portion in dev.feed.epoch_batches(0):
            if sum(micro.tokens for micro in exams) >= EVAL_TOKENS:
                break
            micro = replace(dev.collate(portion), wanted=None)
            exams.append(add_teacher_target(micro, self.layer_losses.counts(micro.batch), self._ask_teacher(micro)))
        return exams

    def _ask_teacher(self, micro: MicroBatch) -> TeacherOutputs:
        """Let the teacher read a micro-batch, and bring what it says to where micro-batches are made."""
        there = micro.to(next(self.teacher.model.parameters()).device)
        said = self.teacher.forward(there.batch, self.request, there.targets[self.lesson.name])
        return said.to(micro.batch.ids_N.device)


class TextDistillObjective:
    """Imitate what happens inside a teacher while it reads plain text."""

    def __init__(
        self, assembler: Collator, teacher: Teacher, inside: LayerLosses, settings: GeneralDistillSettings
    ) -> None:
        self.assembler = assembler
        self.teacher = teacher
        self.inside = inside
        self.settings = settings
        self.weights = settings.losses.chosen()
        self.wanted = inside.teacher_request()
        self.split = HeldOutSplit(assembler.shards, settings.evaluation.share)
        self.feed = SequenceSampler(
            assembler.shards, self.split, seed=settings.seed, micro_tokens=settings.batch.micro_tokens
        )

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[list[SequenceBatchPlan], Cursor]:
        return self.feed.take(cursor, count, self.cutting(progress))

    def cutting(self, progress: float) -> SequenceSpec:
        """Say how documents are cut at this point of the run."""
        return self.settings.sequences.cutting(progress)

    def collate(self, portion: SequenceBatchPlan) -> MicroBatch:
        return self._micro(portion.spans)

    def _micro(self, stretches: Sequence[Any]) -> MicroBatch:
        micro = self.assembler.micro(stretches, [], "", ())
        return add_teacher_target(micro, self.inside.counts(micro.batch), None)

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return combine_losses(self.losses(model, micro, noise), self.weights, totals)

    def losses(self, model: Model, micro: MicroBatch, noise: DropoutSeed | None) -> dict[str, Tensor]:
        said, watch = self.teacher.forward(micro.batch, self.wanted), self.inside.layer_recorder()
        assert watch is not None
        model(micro.batch, [], trace=watch, noise=noise)
        return self.inside.losses(model, watch, said, micro.batch)

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> LossTallies:
        return _tally_losses(self, model, self._exams[part::parts])

    def summarise(self, found: Sequence[LossTallies]) -> EvalResult:
        return _mean_losses(found, self.weights)

    @cached_property
    def _exams(self) -> list[MicroBatch]:
        tokens = self.settings.evaluation.tokens
        stretches = cut_held_out_spans(self.assembler, self.split, self.cutting(0.0), tokens)
        return [self._micro(part) for part in batch_sequences(stretches, self.settings.batch.micro_tokens)]


DistillObjective = TaskDistillObjective | TextDistillObjective


def build_teacher_request(inside: LayerLosses, settings: StageSettings) -> TeacherRequest:
    """Say what the teacher must tell in a stage."""
    return inside.teacher_request(answers="prediction" in settings.losses.chosen())


def _tally_losses(lesson: DistillObjective, model: Model, exams: Sequence[MicroBatch]) -> LossTallies:
    device = next(model.parameters()).device
    total: LossTallies = {}
    with torch.no_grad():
        for micro in exams:
            errors = lesson.losses(model, micro.to(device), None)
            for name, error in errors.items():
                value, count = total.get(name, (0.0, 0.0))
                total[name] = (value + float(error), count + micro.targets[name].count)
    return total


def _mean_losses(found: Sequence[LossTallies], weights: Mapping[str, float]) -> EvalResult:
    means = {}
    for name in weights:
        parts = [part[name] for part in found if name in part]
        if count := sum(part[1] for part in parts):
            means[name] = sum(part[0] for part in parts) / count
    return EvalResult({SCORES_KEY: means}, sum(weights[name] * mean for name, mean in means.items()) if means else 0.0)


# N tokens, D the student's width, W the teacher's


FIT_TOKENS: Final = 8192
"""Tokens that are looked at, about."""
_RIDGE: Final = 1e-3
"""Share of the mean square of a state that is added against states that are nearly copies of each other."""


def fit_projections(model: Model, lesson: DistillObjective, inside: LayerLosses) -> None:
    """Give the projections of a student the weights that fit the teacher's states best, on the first rows of the run."""
    if not inside.heads:
        return
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    cursor, seen = Cursor(), 0
    model.eval()
    while seen < FIT_TOKENS:
        (portion,), cursor = lesson.sample(cursor, 1, 0.0)
        for name, ours_ND, theirs_NW in _paired_states(model, lesson, inside, portion):
            product_DD, crossed_DW = ours_ND.mT @ ours_ND, ours_ND.mT @ theirs_NW
            before = sums.get(name)
            sums[name] = (
                (product_DD, crossed_DW) if before is None else (before[0] + product_DD, before[1] + crossed_DW)
            )
        seen += portion.tokens
    model.train()
    for name, (product_DD, crossed_DW) in sums.items():
        _set_projection(model.head(name), _solve_ridge(product_DD, crossed_DW))


def _paired_states(
    model: Model, lesson: DistillObjective, inside: LayerLosses, portion: Any
) -> list[tuple[str, Tensor, Tensor]]:
    """Give, for each projection, states of the student with a one beside them, and the teacher's."""
    batch, watch = lesson.collate(portion).batch, inside.layer_recorder()
    assert watch is not None
    with torch.no_grad():
        model(batch, [], trace=watch)
    said = lesson.teacher.forward(batch, inside.teacher_request())
    return [
        (
            name,
            torch.nn.functional.pad(watch.hidden[ours], (0, 1), value=1.0).double(),
            said.state(theirs).double(),
        )
        for ours, theirs in inside.states.items()
        if (name := inside.projection(ours))
    ]


def _solve_ridge(product_DD: Tensor, crossed_DW: Tensor) -> Tensor:
    size = len(product_DD)
    ridge = _RIDGE * product_DD.diagonal().mean() * torch.eye(size, dtype=product_DD.dtype)
    solved_DW: Tensor = torch.linalg.solve(product_DD + ridge, crossed_DW)
    return solved_DW


def _set_projection(head: Any, solved_DW: Tensor) -> None:
    with torch.no_grad():
        head.linear.weight.copy_(solved_DW[:-1].mT)
        head.linear.bias.copy_(solved_DW[-1])
