"""Run a model over rows: what its head says at their places, as numbers that every task can decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from alembert.data.batching import by_token_budget
from alembert.data.rows import Row
from alembert.data.streams import in_streams
from alembert.hardware.torch_settings import threads_per_operation
from alembert.nn.model import Model
from alembert.tasks.example import Encoded
from alembert.tasks.runner import Outputs
from alembert.tasks.targets import target_of

TOKEN_BUDGET: Final = 1024
"""Tokens in a batch: large enough for full matrix products, small enough for the cache (docs/benchmarks.md)."""


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
        for number, outputs in _outputs_of(self, rows):
            found[number] = outputs
        left = iter(found)
        return [[next(left) for _ in each.rows] for each in encoded]


def _outputs_of(runner: ModelRunner, rows: Sequence[Row]) -> Iterator[tuple[int, Outputs]]:
    """Yield the number of each row and the head's outputs at its places, short rows first.

    On a CPU one stream of batches runs per core, each operation on one thread.
    """
    model, head = runner.model, runner.head
    device = next(model.parameters()).device

    def compute(numbers: list[int]) -> tuple[list[int], list[Outputs]]:
        target = target_of([rows[number] for number in numbers], numbers).to(device)
        with torch.inference_mode():
            asked = {"places_P": target.places, "attention": runner.attention}
            outputs = model(target.batch, [head], **asked, only=True)[head].float().cpu()
        return numbers, [part.numpy() for part in target.by_row(outputs)]

    batches = list(by_token_budget([row.length for row in rows], TOKEN_BUDGET))
    streams = min(torch.get_num_threads() if device.type == "cpu" else 1, len(batches))
    if streams < 2:
        found = map(compute, batches)
        yield from (pair for numbers, parts in found for pair in zip(numbers, parts, strict=True))
        return
    with threads_per_operation(1):
        for numbers, parts in in_streams(compute, batches, streams):
            yield from zip(numbers, parts, strict=True)
