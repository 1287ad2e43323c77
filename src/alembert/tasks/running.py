"""Run a model over rows: what its head says at their places, as numbers that every task can decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch

from alembert.data.batching import by_token_budget
from alembert.data.rows import Row
from alembert.data.streams import in_streams
from alembert.hardware.torch_settings import threads_per_operation
from alembert.nn.model import Model
from alembert.tasks.example import Encoded
from alembert.tasks.targets import target_of
from alembert.tasks.task import Outputs

TOKEN_BUDGET: Final = 1024
"""Tokens in a batch: large enough for full matrix products, small enough for the cache (docs/benchmarks.md)."""


def outputs_of(model: Model, head: str, rows: Sequence[Row]) -> Iterator[tuple[int, Outputs]]:
    """Yield the number of each row and the head's outputs at its places, short rows first.

    The model is in evaluation mode. On a CPU one stream of batches runs per core, each operation on one thread.
    """
    device = next(model.parameters()).device

    def compute(numbers: list[int]) -> tuple[list[int], list[Outputs]]:
        target = target_of([rows[number] for number in numbers], numbers).to(device)
        with torch.inference_mode():
            outputs = model(target.batch, [head], places_P=target.places, only=True)[head].float().cpu()
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


def answers_of(model: Model, head: str, encoded: Sequence[Encoded]) -> list[list[Outputs]]:
    """Give the outputs for each row of each example."""
    rows = [row for each in encoded for row in each.rows]
    found: list[Outputs] = [np.empty((0, 0), np.float32)] * len(rows)
    for number, outputs in outputs_of(model, head, rows):
        found[number] = outputs
    left = iter(found)
    return [[next(left) for _ in each.rows] for each in encoded]
