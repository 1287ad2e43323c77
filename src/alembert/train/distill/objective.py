"""The objectives of distillation: rows or plain text in, the distance between student and teacher out.

`TaskDistillObjective` has the rows of a task, whose answers and layers are imitated in any mixture, with right answers
beside them if wanted. `TextDistillObjective` has plain text without masks, and layers alone. What the teacher computes
comes from a `TeacherCache` on the disk, or is computed with each micro-batch.

`fit_projections` begins the projections of a student's states as what fits best on the first rows of a run. A
projection that begins at random spends the first part of the run being learnt, and sends noise into the student
meanwhile. Least squares over a few thousand tokens gives it at once; training goes on from there.
"""

# N tokens, D the student's width, W the teacher's
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor

from alembert.data.example_sampler import ExampleBatchPlan
from alembert.data.feed import Cursor, HeldOutSplit, SequenceBatchPlan, SequenceSampler, batch_sequences
from alembert.nn.dropout import DropoutSeed
from alembert.nn.model import Model
from alembert.tasks.runtime.torch import TaskBatch
from alembert.train.distill.layers import LayerLosses, combine_losses
from alembert.train.distill.settings import ANSWER_LOSSES, GeneralDistillSettings, StageSettings
from alembert.train.distill.teacher import Teacher, TeacherOutputs, TeacherRequest
from alembert.train.distill.teacher_cache import TeacherCache
from alembert.train.finetune.objective import EncodedExamples, TaskObjective
from alembert.train.objective import EvalResult, MicroBatch
from alembert.train.pretrain.lm import cut_held_out_spans
from alembert.train.pretrain.objectives import Collator

TEACHER_TARGET: Final = "teacher"
SCORES_KEY: Final = "imitation"
EVAL_TOKENS: Final = 16_384
"""Tokens of development rows on which a stage without answers is evaluated."""
FIT_TOKENS: Final = 8192
"""Tokens that projections are fitted to, about."""
_RIDGE: Final = 1e-3
"""Share of the mean square of a state that is added against states that are nearly copies of each other."""
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
    """What the teacher computed for a micro-batch; none: it is computed with the loss."""

    outputs: TeacherOutputs | None

    @property
    def count(self) -> int:
        return 1

    def to(self, device: torch.device) -> TeacherTarget:
        return self if self.outputs is None else TeacherTarget(self.outputs.to(device))


def add_teacher_target(micro: MicroBatch, counts: Mapping[str, int], outputs: TeacherOutputs | None) -> MicroBatch:
    """Add what distillation needs to a micro-batch."""
    counted = {name: LossCount(count) for name, count in counts.items()}
    return replace(micro, targets={**micro.targets, **counted, TEACHER_TARGET: TeacherTarget(outputs)})


class TaskDistillObjective:
    """Imitate a teacher on the rows of a task."""

    def __init__(
        self,
        task_objective: TaskObjective,
        teacher: Teacher,
        layer_losses: LayerLosses,
        settings: StageSettings,
        cache: TeacherCache | None = None,
        *,
        teacher_dev: EncodedExamples | None = None,
    ) -> None:
        """Put together what is imitated; `teacher_dev` are the development examples, if the teacher reads them otherwise."""
        self.teacher_dev = teacher_dev or task_objective.dev
        self.task_objective = task_objective
        self.teacher = teacher
        self.layer_losses = layer_losses
        self.settings = settings
        self.cache = cache
        self.weights = settings.losses.chosen()
        self.answer_losses = [name for name in ANSWER_LOSSES if name in self.weights]
        self.request = build_teacher_request(layer_losses, settings)
        self._first_rows = [0, *accumulate(len(item) for item in task_objective.items)]

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[Sequence[Any], Cursor]:
        return self.task_objective.sample(cursor, count, progress)

    def collate(self, portion: ExampleBatchPlan) -> MicroBatch:
        micro = self.task_objective.collate(portion)
        outputs = self._cached_outputs(portion, micro)
        micro = micro if self.layer_losses.layer_recorder() is None else replace(micro, tokens_read=None)
        return add_teacher_target(micro, self._counts(micro), outputs)

    def _cached_outputs(self, portion: ExampleBatchPlan, micro: MicroBatch) -> TeacherOutputs | None:
        if self.cache is None:
            return None
        return self.cache.lookup(self._row_numbers(portion), micro.batch, layers=self.request.has_layers)

    def _row_numbers(self, portion: ExampleBatchPlan) -> list[int]:
        items = self.task_objective.items
        return [self._first_rows[index] + row for index in portion.indices for row in range(len(items[index]))]

    def _counts(self, micro: MicroBatch) -> dict[str, int]:
        answers = micro.targets[self.task_objective.name].count
        return self.layer_losses.counts(micro.batch) | dict.fromkeys(self.answer_losses, answers)

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return combine_losses(self.losses(model, micro, noise), self.weights, totals)

    def losses(self, model: Model, micro: MicroBatch, noise: DropoutSeed | None) -> dict[str, Tensor]:
        """Let the student read a micro-batch, and return the sum of each loss."""
        head, target = self.task_objective.head, micro.targets[self.task_objective.name]
        teacher = micro.targets[TEACHER_TARGET].outputs or self.teacher.forward(micro.batch, self.request, target)
        recorder = self.layer_losses.layer_recorder()
        outputs = model(
            micro.batch,
            [head] if self.answer_losses else [],
            positions_P=target.positions,
            only=recorder is None,
            attention=self.task_objective.task.attention_pattern,
            trace=recorder,
            noise=noise,
        )
        losses = {} if recorder is None else self.layer_losses.compute(model, recorder, teacher, micro.batch)
        for name in self.answer_losses:
            losses[name] = self._answer_loss(name, model.head(head), outputs[head], teacher, target)
        return losses

    def _answer_loss(self, name: str, head: Any, outputs: Tensor, teacher: TeacherOutputs, target: TaskBatch) -> Tensor:
        task, settings = self.task_objective.task, self.settings
        if name == "labels":
            return task.loss(head, outputs, target, settings.loss)
        assert teacher.answers_PC is not None
        return task.distillation_loss(head, outputs, teacher.answers_PC.float(), target, settings.imitation)

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> Any:
        """Let the student do the task, if it learns answers; else see how far it is from the teacher."""
        if self.answer_losses:
            return self.task_objective.evaluate(model, part, parts)
        return _tally_losses(self, model, self._eval_batches[part::parts])

    def summarise(self, parts: Sequence[Any]) -> EvalResult:
        return self.task_objective.summarise(parts) if self.answer_losses else _mean_losses(parts, self.weights)

    @cached_property
    def _eval_batches(self) -> list[MicroBatch]:
        """Micro-batches of development rows, with the teacher's outputs, which are the same at each evaluation."""
        task = self.task_objective
        dev, theirs = (
            TaskObjective(task.task, read, read, task.settings, head=task.head) for read in (task.dev, self.teacher_dev)
        )
        batches: list[MicroBatch] = []
        for portion in dev.feed.epoch_batches(0):
            if sum(micro.tokens for micro in batches) >= EVAL_TOKENS:
                break
            micro = replace(dev.collate(portion), tokens_read=None)
            counts = self.layer_losses.counts(micro.batch)
            batches.append(add_teacher_target(micro, counts, self._ask_teacher(theirs.collate(portion))))
        return batches

    def _ask_teacher(self, micro: MicroBatch) -> TeacherOutputs:
        """Let the teacher read a micro-batch, and bring its outputs to where micro-batches are made."""
        there = micro.to(next(self.teacher.model.parameters()).device)
        outputs = self.teacher.forward(there.batch, self.request, there.targets[self.task_objective.name])
        return outputs.to(micro.batch.ids_N.device)


class TextDistillObjective:
    """Imitate the layers of a teacher that reads plain text."""

    def __init__(
        self, collator: Collator, teacher: Teacher, layer_losses: LayerLosses, settings: GeneralDistillSettings
    ) -> None:
        self.collator = collator
        self.teacher = teacher
        self.layer_losses = layer_losses
        self.settings = settings
        self.weights = settings.losses.chosen()
        self.request = layer_losses.teacher_request()
        self.split = HeldOutSplit(collator.shards, settings.evaluation.share)
        self.feed = SequenceSampler(
            collator.shards, self.split, seed=settings.seed, micro_tokens=settings.batch.micro_tokens
        )

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[list[SequenceBatchPlan], Cursor]:
        return self.feed.take(cursor, count, self.settings.sequences.cutting(progress))

    def collate(self, portion: SequenceBatchPlan) -> MicroBatch:
        return self._collate_spans(portion.spans)

    def _collate_spans(self, spans: Sequence[Any]) -> MicroBatch:
        micro = self.collator.micro(spans, [], "", ())
        return add_teacher_target(micro, self.layer_losses.counts(micro.batch), None)

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        return combine_losses(self.losses(model, micro, noise), self.weights, totals)

    def losses(self, model: Model, micro: MicroBatch, noise: DropoutSeed | None) -> dict[str, Tensor]:
        teacher, recorder = self.teacher.forward(micro.batch, self.request), self.layer_losses.layer_recorder()
        assert recorder is not None
        model(micro.batch, [], trace=recorder, noise=noise)
        return self.layer_losses.compute(model, recorder, teacher, micro.batch)

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> LossTallies:
        return _tally_losses(self, model, self._eval_batches[part::parts])

    def summarise(self, parts: Sequence[LossTallies]) -> EvalResult:
        return _mean_losses(parts, self.weights)

    @cached_property
    def _eval_batches(self) -> list[MicroBatch]:
        settings = self.settings
        cutting = settings.sequences.cutting(0.0)
        spans = cut_held_out_spans(self.collator, self.split, cutting, settings.evaluation.tokens)
        return [self._collate_spans(part) for part in batch_sequences(spans, settings.batch.micro_tokens)]


DistillObjective = TaskDistillObjective | TextDistillObjective


def build_teacher_request(layer_losses: LayerLosses, settings: StageSettings) -> TeacherRequest:
    """Join what the teacher must compute in a stage."""
    return layer_losses.teacher_request(answers="prediction" in settings.losses.chosen())


def _tally_losses(objective: DistillObjective, model: Model, batches: Sequence[MicroBatch]) -> LossTallies:
    device = next(model.parameters()).device
    tallies: LossTallies = {}
    with torch.no_grad():
        for micro in batches:
            for name, loss in objective.losses(model, micro.to(device), None).items():
                total, count = tallies.get(name, (0.0, 0.0))
                tallies[name] = (total + float(loss), count + micro.targets[name].count)
    return tallies


def _mean_losses(tallies: Sequence[LossTallies], weights: Mapping[str, float]) -> EvalResult:
    means = {}
    for name in weights:
        parts = [part[name] for part in tallies if name in part]
        if count := sum(part[1] for part in parts):
            means[name] = sum(part[0] for part in parts) / count
    return EvalResult({SCORES_KEY: means}, sum(weights[name] * mean for name, mean in means.items()) if means else 0.0)


def fit_projections(model: Model, objective: DistillObjective) -> None:
    """Set projections, unless they begin at random, to what fits the teacher's states best on the first rows."""
    if not (objective.layer_losses.heads and objective.settings.losses.fitted):
        return
    sums: dict[str, tuple[Tensor, Tensor]] = {}
    cursor, seen = Cursor(), 0
    model.eval()
    while seen < FIT_TOKENS:
        (portion,), cursor = objective.sample(cursor, 1, 0.0)
        for name, ours_ND, theirs_NW in _paired_states(model, objective, portion):
            product_DD, crossed_DW = ours_ND.mT @ ours_ND, ours_ND.mT @ theirs_NW
            before = sums.get(name)
            sums[name] = (
                (product_DD, crossed_DW) if before is None else (before[0] + product_DD, before[1] + crossed_DW)
            )
        seen += portion.tokens
    model.train()
    for name, (product_DD, crossed_DW) in sums.items():
        _set_projection(model.head(name), _solve_ridge(product_DD, crossed_DW))


def _paired_states(model: Model, objective: DistillObjective, portion: Any) -> list[tuple[str, Tensor, Tensor]]:
    """Return, for each projection, states of the student with a one beside them, and the teacher's."""
    losses = objective.layer_losses
    batch, recorder = objective.collate(portion).batch, losses.layer_recorder()
    assert recorder is not None
    with torch.no_grad():
        model(batch, [], trace=recorder)
    teacher = objective.teacher.forward(batch, losses.teacher_request())
    return [
        (
            name,
            torch.nn.functional.pad(recorder.hidden[ours], (0, 1), value=1.0).double(),
            teacher.state(theirs).double(),
        )
        for ours, theirs in losses.states.items()
        if (name := losses.pair.projection(ours))
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
