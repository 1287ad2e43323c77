"""Run a model over rows: what its head says at their places, as numbers that every task can decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alembert.data.windows import Row
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.tasks.batches import in_batches
from alembert.tasks.decoding.model_writer import ModelWriter
from alembert.tasks.example import Encoded
from alembert.tasks.runner import Outputs, check_finite
from alembert.tasks.targets import Target, target_of


@dataclass(frozen=True)
class ModelRunner:
    """A torch model, in evaluation mode, with the name of the head that a task asks."""

    model: Model
    head: str
    attention: str | None = None
    """Which tokens see each other; none: as the model was made."""

    def outputs(self, encoded: Sequence[Encoded]) -> list[list[Outputs]]:
        """Give the head's outputs at the places of each row of each example."""
        rows = [row for each in encoded for row in each.rows]
        found: list[Outputs] = [np.empty((0, 0), np.float32)] * len(rows)
        for number, outputs in head_outputs(self.model, [self.head], rows, self.attention):
            found[number] = outputs[self.head]
        left = iter(found)
        return [[next(left) for _ in each.rows] for each in encoded]

    def writer(self, segment: int = 0) -> ModelWriter:
        """Give what writes with the head, whose new tokens are of this segment."""
        return ModelWriter(self.model, self.head, self.attention, segment)


def head_outputs(
    model: Model, heads: Sequence[str], rows: Sequence[Row], attention: str | None
) -> Iterator[tuple[int, dict[str, Outputs]]]:
    """Yield the number of each row and what the heads say at its places, short rows first.

    A head that answers once a document gives one line for each row, wherever it is asked.
    """
    device = next(model.parameters()).device

    def compute(numbers: list[int]) -> tuple[list[int], list[dict[str, Outputs]]]:
        target = target_of([rows[number] for number in numbers], numbers).to(device)
        with torch.inference_mode():
            asked = {"places_P": target.places, "attention": attention}
            outputs = model(target.batch, heads, **asked, only=True)
        found = {head: outputs[head].float().cpu() for head in heads}
        for head, each in found.items():
            check_finite(each.numpy(), f"Outputs of the head `{head}`")
        parts = {head: _by_row(each, target, model.spec(head)) for head, each in found.items()}
        return numbers, [{head: parts[head][place].numpy() for head in heads} for place in range(len(numbers))]

    for numbers, found in in_batches(compute, [row.length for row in rows], device):
        yield from zip(numbers, found, strict=True)


def _by_row(outputs: Tensor, target: Target, spec: HeadSpec) -> tuple[Tensor, ...]:
    return target.by_row(outputs) if spec.per_token else torch.split(outputs, 1)
