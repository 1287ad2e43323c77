"""Fine-tuning as an objective of the loop, for one task or several, and the losses that regularise it.

In: labelled examples of any task. Out: the loss of its head. Several tasks share one encoder; each micro-batch is of
one of them, and each has a head of its own. The loss of a step is the mean of each task's loss in it, weighted by the
share of the step's micro-batches that the task has, and by its own weight: so the turns decide how much a task counts,
whatever the number of micro-batches in a step. (A plain sum of the means would move the model twice as far in a step
that happens to hold two tasks.) The model is chosen by the mean of the tasks' main scores on the development data.

R-Drop and adversarial training take more than one pass over a micro-batch. Changes of the embeddings are measured
document by document, so that what a document meets does not depend on its neighbours in the batch. Everything random
comes from the noise: a resumed run, or one with another number of streams, sees the same. All passes whose loss is
learnt from stay in the graph until it is differentiated: two micro-batches' activations with R-Drop, fgm and pgd,
`steps` of them with freelb. Where memory is short, give smaller micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from alembert.data.example_sampler import ExampleBatchPlan, ExampleSampler, MultiTaskBatchPlan, MultiTaskSampler
from alembert.data.feed import Cursor
from alembert.data.order import stable_hash
from alembert.data.windows import Row
from alembert.nn.batch import Batch
from alembert.nn.dropout import HEADS, DropoutSeed
from alembert.nn.heads import find_required_tokens
from alembert.nn.model import Model
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.runtime.torch import ModelRunner, TaskBatch, collate_rows
from alembert.tasks.task import AnyTask, TaskScores
from alembert.train.finetune.settings import AscentSteps, EpochSettings, FinetuneSettings, RegulariseSettings
from alembert.train.objective import EvalResult, MicroBatch

# N tokens, E embedding width, B documents of a group


ForwardPass = Callable[[DropoutSeed | None, Tensor | None], Tensor]
LossPair = tuple[Tensor, Tensor]
_SECOND_PASS, _START = HEADS + 1, HEADS + 2
"""Places of a noise beside those of the model."""
_MIN_NORM: Final = 1e-30
"""Stands for the length of what has none, against division by zero."""


def regularised_loss(
    run: ForwardPass,
    loss: Callable[[Tensor], Tensor],
    divergence: Callable[[Tensor, Tensor], Tensor],
    *,
    batch: Batch,
    width: int,
    noise: DropoutSeed | None,
    settings: RegulariseSettings,
) -> LossPair:
    """Return the loss of a micro-batch to differentiate, and the plain one, detached, for the log.

    `run` gives the head's outputs for a noise and for what is added to the token embeddings, whose width is `width`.
    `loss` and `divergence` are sums over the answers.
    """
    adversarial = settings.adversarial
    if settings.r_drop:
        return _r_drop_loss(run, loss, divergence, noise, settings.r_drop)
    if adversarial.method == "none":
        plain = loss(run(noise, None))
        return plain, plain.detach()
    climb = _GradientAscent(lambda added_NE: loss(run(noise, added_NE)), batch, adversarial.ascent)
    if adversarial.method == "freelb":
        return climb.mean_loss_of_steps(_random_start(batch, width, adversarial.ascent.size, noise))
    return climb.loss_at_last_step(torch.zeros(len(batch.ids_N), width, device=batch.ids_N.device), adversarial.weight)


def _r_drop_loss(
    run: ForwardPass,
    loss: Callable[[Tensor], Tensor],
    divergence: Callable[[Tensor, Tensor], Tensor],
    noise: DropoutSeed | None,
    weight: float,
) -> LossPair:
    one = run(noise, None)
    other = run(None if noise is None else noise.derive(_SECOND_PASS), None)
    plain = (loss(one) + loss(other)) / 2
    return plain + weight * divergence(one, other), plain.detach()


@dataclass(frozen=True)
class _GradientAscent:
    """Changes that make the loss of a batch grow, dropout being the same at each step."""

    loss_at: Callable[[Tensor], Tensor]
    batch: Batch
    ascent: AscentSteps

    def loss_at_last_step(self, start_NE: Tensor, weight: float) -> LossPair:
        """Add the loss after the last step to the one at the start (fgm, pgd)."""
        added_NE = start_NE.requires_grad_()
        plain = top = self.loss_at(added_NE)
        for number in range(self.ascent.steps):
            added_NE = self._step(added_NE, top, keep_graph=number == 0)
            top = self.loss_at(added_NE)
        return plain + weight * top, plain.detach()

    def mean_loss_of_steps(self, start_NE: Tensor) -> LossPair:
        """Average the losses before each step (freelb); the one at the random start counts as plain."""
        added_NE = start_NE.requires_grad_()
        losses = [self.loss_at(added_NE)]
        for _ in range(self.ascent.steps - 1):
            added_NE = self._step(added_NE, losses[-1], keep_graph=True)
            losses.append(self.loss_at(added_NE))
        return torch.stack(losses).mean(), losses[0].detach()

    def _step(self, added_NE: Tensor, loss: Tensor, *, keep_graph: bool) -> Tensor:
        (slope_NE,) = torch.autograd.grad(loss, added_NE, retain_graph=keep_graph)
        length = partial(_document_norms, batch=self.batch)
        moved_NE = added_NE.detach() + self.ascent.step_size * slope_NE / length(slope_NE)
        return (moved_NE * (self.ascent.size / length(moved_NE)).clamp(max=1)).requires_grad_()


def _document_norms(values_NE: Tensor, batch: Batch) -> Tensor:
    """Return at each token the length (norm) of its whole document's values."""
    norms = []
    for group in batch.groups:
        documents = values_NE[group.start : group.stop].reshape(group.rows, -1)
        norms.append(torch.linalg.vector_norm(documents, dim=1).repeat_interleave(group.length))
    return torch.cat(norms)[:, None].clamp_min(_MIN_NORM)


def _random_start(batch: Batch, width: int, size: float, noise: DropoutSeed | None) -> Tensor:
    """Draw changes whose expected length does not depend on the document's, none of them longer than `size`."""
    rng = np.random.default_rng(_seed(noise))
    drawn = rng.random((len(batch.ids_N), width), dtype=np.float32)
    uniform_NE = torch.from_numpy(2 * drawn - 1).to(batch.ids_N.device)
    return uniform_NE * size / _document_norms(torch.ones_like(uniform_NE), batch)


def _seed(noise: DropoutSeed | None) -> np.random.SeedSequence:
    """Look up the seed of a noise, or without it draw one from torch's global generator."""
    if noise is None:
        return np.random.SeedSequence(int(torch.randint(2**62, ())))
    return np.random.SeedSequence(noise.seed, spawn_key=(*noise.path, _START))


DEV = "dev"


@dataclass(frozen=True)
class EncodedExamples:
    """Examples with what the model reads of them."""

    examples: Sequence[Any]
    encoded: Sequence[EncodedExample]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.encoded)


class TaskObjective:
    """Learn a task from labelled examples."""

    def __init__(
        self,
        task: AnyTask,
        train: EncodedExamples,
        dev: EncodedExamples,
        settings: EpochSettings,
        *,
        name: str | None = None,
        head: str | None = None,
        regularise: RegulariseSettings | None = None,
    ) -> None:
        """Prepare the objective; `name` is what its loss is called, if not as the task, `head` the head, if not as its kind."""
        self.task = task
        self.name = name or task.name
        self.dev = dev
        self.settings = settings
        self.regularise = regularise or RegulariseSettings()
        self.spec = task.head()
        self.head = head or self.spec.kind
        self.items = group_rows(train.encoded, together=task.loss_unit == "examples")
        self.feed = ExampleSampler(
            [sum(row.length for row in item) for item in self.items],
            seed=settings.seed,
            micro_tokens=settings.batch.micro_tokens,
            group=task.loss_group_size,
        )

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[list[ExampleBatchPlan], Cursor]:
        """Plan a step; examples that are compared with each other make one by themselves, as published."""
        return self.feed.take(cursor, 1 if self.task.loss_group_size > 1 else count)

    def collate(self, portion: ExampleBatchPlan) -> MicroBatch:
        seed = (self.settings.seed, "features", *portion.address)
        rows = [
            (number, drop_feature_matches(row, stable_hash(*seed, number)))
            for number, item in enumerate(portion.indices)
            for row in self.items[item]
        ]
        examples = len(portion.indices) if self.task.loss_unit == "examples" else None
        count = len(rows) if self.task.loss_unit == "rows" else examples
        target = collate_rows([row for _, row in rows], [number for number, _ in rows], count)
        micro = MicroBatch(batch=target.batch, attention=self.task.attention_pattern or "", targets={self.name: target})
        return micro.with_tokens_read(find_required_tokens([self.spec], target.batch, positions_P=target.positions))

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        target: TaskBatch = micro.targets[self.name]

        def run(noise: DropoutSeed | None, added_NE: Tensor | None) -> Tensor:
            outputs: dict[str, Tensor] = model(
                micro.batch,
                [self.head],
                positions_P=target.positions,
                only=True,
                attention=self.task.attention_pattern,
                noise=noise,
                added_ND=added_NE,
            )
            return outputs[self.head]

        total, plain = regularised_loss(
            run,
            lambda outputs: self.task.loss(model.head(self.head), outputs, target, self.settings.loss),
            lambda one, other: self.task.divergence(one, other, target),
            batch=micro.batch,
            width=model.config.embedding_width,
            noise=noise,
            settings=self.regularise,
        )
        return total / totals[self.name], {self.name: float(plain)}

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> list[tuple[int, Any]]:
        """Predict a part of the development examples; give the number and the prediction of each."""
        numbers = range(part, len(self.dev.encoded), parts)
        encoded = [self.dev.encoded[number] for number in numbers]
        bound = self.task.with_head_weights(model.head(self.head))
        answers = bound.run(ModelRunner(model, self.head, self.task.attention_pattern), encoded)
        return list(zip(numbers, bound.decode_batch(encoded, answers), strict=True))

    def summarise(self, found: Sequence[list[tuple[int, Any]]]) -> EvalResult:
        predictions = dict(pair for part in found for pair in part)
        scores = self.task.score(self.dev.examples, [predictions[n] for n in range(len(self.dev.examples))])
        return EvalResult({DEV: dict(scores.measures)}, -scores.selection_score)


def drop_feature_matches(row: Row, seed: int) -> Row:
    """Drop matches of lexicons from a row that is trained on."""
    return row if row.features is None else replace(row, features=row.features.drop_matches(seed))


def group_rows(encoded: Sequence[EncodedExample], *, together: bool) -> list[tuple[Row, ...]]:
    """List what is computed at once: the rows of an example, or each row alone; rows without an answer are left out."""
    if together:
        return [each.rows for each in encoded if each.rows]
    return [(row,) for each in encoded for row in each.rows if len(row.positions)]


MEAN_SCORE: Final = "mean"
"""The measure that models of several tasks are chosen by."""


class MultiTaskObjective:
    """Learn several tasks in turn."""

    def __init__(
        self, objectives: Sequence[TaskObjective], settings: FinetuneSettings, weights: Mapping[str, float]
    ) -> None:
        self.objectives = {objective.name: objective for objective in objectives}
        self.weights = weights
        self.feed = MultiTaskSampler(
            {name: objective.feed for name, objective in self.objectives.items()},
            seed=settings.seed,
            temperature=settings.multitask.sharpness,
        )

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[list[MultiTaskBatchPlan], Cursor]:
        return self.feed.take(cursor, count)

    def collate(self, portion: MultiTaskBatchPlan) -> MicroBatch:
        micro = self.objectives[portion.task].collate(portion.batch)
        return replace(micro, weight=self.weights[portion.task] * portion.share)

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        owner = next(name for name in micro.targets if name in self.objectives)
        loss, sums = self.objectives[owner].loss(model, micro, totals, noise)
        return micro.weight * loss, sums

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> dict[str, Any]:
        """Predict a part of the development examples of each task."""
        return {name: objective.evaluate(model, part, parts) for name, objective in self.objectives.items()}

    def summarise(self, found: Sequence[Mapping[str, Any]]) -> EvalResult:
        each = {
            name: objective.summarise([part[name] for part in found]) for name, objective in self.objectives.items()
        }
        scores = {name: verdict.scores[DEV] for name, verdict in each.items()}
        return EvalResult(scores, fmean(verdict.loss for verdict in each.values()))


def combine_scores(scores: Mapping[str, TaskScores]) -> TaskScores:
    """Put the scores of several tasks into one table, with the mean of the main ones, which models are chosen by.

    Those of an only task stay as they are.

    >>> one = TaskScores(main="f1", measures={"f1": 0.5, "recall": 0.4})
    >>> combine_scores({"ner": one, "topic": TaskScores(main="accuracy", measures={"accuracy": 1.0})}).measures
    {'mean': 0.75, 'ner.f1': 0.5, 'ner.recall': 0.4, 'topic.accuracy': 1.0}
    """
    if len(scores) == 1:
        return next(iter(scores.values()))
    measures = {f"{name}.{measure}": value for name, one in scores.items() for measure, value in one.measures.items()}
    return TaskScores(
        main=MEAN_SCORE,
        measures={MEAN_SCORE: fmean(one.value for one in scores.values()), **measures},
        by_label={f"{name}.{label}": row for name, one in scores.items() for label, row in one.by_label.items()},
        coverage=Coverage.total(one.coverage for one in scores.values()),
        notes=tuple(f"{name}: {note}" for name, one in scores.items() for note in one.notes),
    )
