"""What a micro-batch of a task asks of the model: the places in the flat row, and the right answers there."""

# P places, R rows
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from alembert.data.windows import Row
from alembert.nn.batch import Batch


@dataclass(frozen=True, eq=False)
class Target:
    """Right answers of rows that are computed at once."""

    batch: Batch
    places: Tensor
    """Places of all rows in the flat row of the batch, row after row."""
    labels: Tensor
    """The labels of all rows, one row after the other."""
    row_places: tuple[int, ...]
    """How many places each row has."""
    row_labels: tuple[int, ...]
    """How many labels (lines of `labels`) each row has: mostly the places, but a span head has its own."""
    example_of_row: tuple[int, ...]
    """Which example of the micro-batch each row belongs to, from 0 up."""
    count: int
    """Answers that the loss is the sum of: the mean is taken over those of the whole step."""

    def to(self, device: torch.device) -> Target:
        return replace(self, batch=self.batch.to(device), places=self.places.to(device), labels=self.labels.to(device))

    def labels_by_row(self) -> tuple[Tensor, ...]:
        """Split the labels into the rows."""
        return torch.split(self.labels, list(self.row_labels))

    def by_row(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split what was computed at the places into the rows."""
        return torch.split(values, list(self.row_places))


def target_of(rows: Sequence[Row], example_of_row: Sequence[int], count: int | None = None) -> Target:
    """Pack rows into a batch, and say where their answers stand in it; `count` is the number of places if not given."""
    segments = [np.zeros_like(row.ids) if row.segments is None else row.segments for row in rows]
    prefixes = [row.length if row.prefix is None else row.prefix for row in rows]
    batch = Batch.packed([row.ids for row in rows], segments, prefixes=prefixes if _has_prefixes(rows) else None)
    starts = batch.starts_B.tolist()
    places = np.concatenate([row.places + start for row, start in zip(rows, starts, strict=True)])
    labels = [row.labels for row in rows if row.labels is not None]
    return Target(
        batch=batch,
        places=torch.from_numpy(places),
        labels=torch.from_numpy(np.concatenate(labels)) if labels else torch.empty(0),
        row_places=tuple(len(row.places) for row in rows),
        row_labels=tuple(0 if row.labels is None else len(row.labels) for row in rows),
        example_of_row=tuple(example_of_row),
        count=len(places) if count is None else count,
    )


def _has_prefixes(rows: Sequence[Row]) -> bool:
    return any(row.prefix is not None for row in rows)
