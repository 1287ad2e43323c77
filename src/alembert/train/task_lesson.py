"""The lesson of fine-tuning: labelled examples of any task in, the loss of its head out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from alembert.data.example_sampler import ExampleBatchPlan, ExampleSampler
from alembert.data.feed import Cursor
from alembert.data.windows import Row
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import find_required_tokens
from alembert.nn.model import Model
from alembert.tasks.example import EncodedExample
from alembert.tasks.runtime.torch import ModelRunner, TaskBatch, collate_rows
from alembert.tasks.task import AnyTask
from alembert.train.finetune_settings import EpochSettings
from alembert.train.lesson import Micro, Verdict
from alembert.train.regularise import regularised_loss
from alembert.train.regularise_settings import RegulariseSettings

DEV = "dev"


@dataclass(frozen=True)
class Examples:
    """Examples with what the model reads of them."""

    examples: Sequence[Any]
    encoded: Sequence[EncodedExample]

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.encoded)


class TaskLesson:
    """Learn a task from labelled examples."""

    def __init__(
        self,
        task: AnyTask,
        train: Examples,
        dev: Examples,
        settings: EpochSettings,
        *,
        name: str | None = None,
        head: str | None = None,
        regularise: RegulariseSettings | None = None,
    ) -> None:
        """Prepare the lesson; `name` is what its loss is called, if not as the task, `head` the head, if not as its kind."""
        self.task = task
        self.name = name or task.name
        self.dev = dev
        self.settings = settings
        self.regularise = regularise or RegulariseSettings()
        self.spec = task.head()
        self.head = head or self.spec.kind
        self.items = items_of(train.encoded, together=task.counted == "examples")
        self.feed = ExampleSampler(
            [sum(row.length for row in item) for item in self.items],
            seed=settings.seed,
            micro_tokens=settings.batch.micro_tokens,
            group=task.group,
        )

    def take(self, cursor: Cursor, count: int, progress: float) -> tuple[list[ExampleBatchPlan], Cursor]:
        """Plan a step; examples that are compared with each other make one by themselves, as published."""
        return self.feed.take(cursor, 1 if self.task.group > 1 else count)

    def micro(self, portion: ExampleBatchPlan) -> Micro:
        rows = [(number, row) for number, item in enumerate(portion.items) for row in self.items[item]]
        examples = len(portion.items) if self.task.counted == "examples" else None
        count = len(rows) if self.task.counted == "rows" else examples
        target = collate_rows([row for _, row in rows], [number for number, _ in rows], count)
        micro = Micro(batch=target.batch, attention=self.task.attention or "", targets={self.name: target})
        return micro.wanting(find_required_tokens([self.spec], target.batch, places_P=target.places))

    def loss(
        self, model: Model, micro: Micro, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        target: TaskBatch = micro.targets[self.name]

        def run(noise: DropoutSeed | None, added_NE: Tensor | None) -> Tensor:
            outputs: dict[str, Tensor] = model(
                micro.batch,
                [self.head],
                places_P=target.places,
                only=True,
                attention=self.task.attention,
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

    def examine(self, model: Model, part: int = 0, parts: int = 1) -> list[tuple[int, Any]]:
        """Predict a part of the development examples; give the number and the prediction of each."""
        numbers = range(part, len(self.dev.encoded), parts)
        encoded = [self.dev.encoded[number] for number in numbers]
        bound = self.task.bind(model.head(self.head))
        answers = bound.run(ModelRunner(model, self.head, self.task.attention), encoded)
        return [
            (number, bound.decode(each, outputs))
            for number, each, outputs in zip(numbers, encoded, answers, strict=True)
        ]

    def verdict(self, found: Sequence[list[tuple[int, Any]]]) -> Verdict:
        predictions = dict(pair for part in found for pair in part)
        scores = self.task.score(self.dev.examples, [predictions[n] for n in range(len(self.dev.examples))])
        return Verdict({DEV: dict(scores.measures)}, -scores.rank)


def items_of(encoded: Sequence[EncodedExample], *, together: bool) -> list[tuple[Row, ...]]:
    """List what is computed at once: the rows of an example, or each row alone; rows without an answer are left out."""
    if together:
        return [each.rows for each in encoded if each.rows]
    return [(row,) for each in encoded for row in each.rows if len(row.places)]
