"""Tasks whose model learns another task: questions that are answered with a label are pairs that `classify` learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from alembert.tasks.example import E, EncodedExample, P
from alembert.tasks.settings import DistillLossSettings, LossSettings
from alembert.tasks.task import AnyTask, LossUnit, Task
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


class DelegatingTask(Task[E, P]):
    """A frozen dataclass with another task, `inner`, whose head, weights and losses are its own.

    Subclasses turn their examples into those of the inner task, and its predictions into theirs.
    """

    inner: AnyTask

    def to_inner(self, examples: Sequence[E]) -> Sequence[Any]:
        """Turn examples into those of the inner task."""
        raise NotImplementedError

    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        return self.inner.encode(self.to_inner(examples), tokenizer, longest)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.inner.labels

    @property
    def loss_unit(self) -> LossUnit:
        return self.inner.loss_unit

    def head(self) -> HeadSpec:
        return self.inner.head()

    def with_class_weights(self, encoded: Sequence[EncodedExample]) -> Self:
        return replace(self, inner=self.inner.with_class_weights(encoded))  # type: ignore[type-var]

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        return self.inner.loss(head, outputs, target, settings)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        return self.inner.divergence(one, other, target)

    def teacher_targets(
        self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        return self.inner.teacher_targets(head, outputs, target, settings)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        return self.inner.distillation_loss(head, outputs, taught, target, settings)
