"""What the one loop needs to know of what it trains: portions of data, their loss, and how to judge the model.

Pre-training, fine-tuning and distillation are objectives. An objective plans portions for a cursor, turns a portion
into a micro-batch of tensors, and gives the loss of it; the loop knows nothing else about data or objectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from alembert.data.feed import Cursor
from alembert.nn.batch import Batch
from alembert.nn.dropout import DropoutSeed
from alembert.nn.model import Model


@dataclass(frozen=True, eq=False)
class LMTarget:
    """What one objective wants of a micro-batch: right answers, and the tokens or documents that they belong to."""

    places: Tensor
    labels: Tensor
    in_entity: Tensor | None = None
    """Of masked tokens: whether they stand inside an entity."""
    draws: Tensor | None = None
    """Of masked tokens: a random number from 0 to 1, by which a generator draws what stands in their place."""

    @property
    def count(self) -> int:
        """How many answers the loss is the mean of."""
        return len(self.labels)

    def to(self, device: torch.device) -> LMTarget:
        inside, draws = (None if each is None else each.to(device) for each in (self.in_entity, self.draws))
        return LMTarget(self.places.to(device), self.labels.to(device), inside, draws)


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A micro-batch: what is computed at once."""

    batch: Batch
    attention: str
    targets: Mapping[str, Any]
    """By objective: something with a `count` of answers that can be put on a device with `to`."""
    tokens_read: int | None = None
    """Number of tokens that the heads read, and the last block computes; none: all."""
    weight: float = 1.0
    """How much it counts in its step, where an objective has several kinds of micro-batches."""

    @property
    def tokens(self) -> int:
        """Real tokens, padding not counted."""
        return sum(self.batch.lengths)

    def with_tokens_read(self, tokens_P: Tensor | None) -> MicroBatch:
        """Return the micro-batch with the tokens that heads read counted; none: all."""
        return replace(self, tokens_read=None if tokens_P is None else len(tokens_P))

    def to(self, device: torch.device) -> MicroBatch:
        targets = {name: target.to(device) for name, target in self.targets.items()}
        return replace(self, batch=self.batch.to(device), targets=targets)


@dataclass(frozen=True)
class EvalResult:
    """What held-out data say about the model."""

    scores: Mapping[str, Mapping[str, float]]
    """By objective: loss, accuracy, perplexity, ..."""
    loss: float
    """The number to compare models by; lower is better."""


class Objective(Protocol):
    """Something that a model is trained for."""

    def sample(self, cursor: Cursor, count: int, progress: float) -> tuple[Sequence[Any], Cursor]:
        """Plan the next portions; give them and the cursor after them."""

    def collate(self, portion: Any) -> MicroBatch:
        """Make the tensors of a portion."""

    def loss(
        self, model: Model, micro: MicroBatch, totals: Mapping[str, float], noise: DropoutSeed | None
    ) -> tuple[Tensor, dict[str, float]]:
        """Return this micro-batch's part of the step's loss, and the plain sum of each objective.

        `totals` says how many targets of each objective the whole step has, over all processes, so that the parts add
        up to the weighted mean.
        """

    def evaluate(self, model: Model, part: int = 0, parts: int = 1) -> Any:
        """See what the model, which is in evaluation mode, gets right on a part of the held-out data."""

    def summarise(self, parts: Sequence[Any]) -> EvalResult:
        """Turn what was found in all parts into scores."""
