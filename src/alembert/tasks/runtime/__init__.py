"""What a task asks of the model when it predicts, whatever computes it: the outputs of heads for rows of examples.

Tasks that read a text alike have the same rows of it, and the encoder is nearly all the work: so rows that several heads
ask about are computed once, with all of these heads. Tasks that cut or join texts in their own way have rows of their
own, which are computed for them alone. The answers are those of each head by itself. Nothing here needs torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Row
from alembert.errors import BadFile
from alembert.tasks.example import EncodedExample
from alembert.tasks.generate.writing import IncrementalDecoder

Outputs = npt.NDArray[np.float32]
ExampleOutputs = Sequence[Sequence[Outputs]]
"""Those of each row of each example."""


class Runner(Protocol):
    """A model with the head of a task, in evaluation mode."""

    def outputs(self, encoded: Sequence[EncodedExample]) -> list[list[Outputs]]:
        """Return the head's outputs at the places of each row of each example."""

    def decoder(self, segment: int = 0) -> IncrementalDecoder:
        """Return what writes token by token with a head over the vocabulary; new tokens are of this segment."""


def check_finite(numbers: npt.NDArray[Any], what: str) -> None:
    """Refuse numbers of a model that are NaN or infinite, since every answer made of them would be wrong."""
    if not np.isfinite(numbers).all():
        raise BadFile(
            f"{what} of the model are NaN or infinite: its weights are damaged, or its training failed. Restore the "
            "folder, or train the model again."
        )


OutputGradient = Callable[[Sequence[Outputs]], Sequence[Outputs]]
"""From the outputs of rows to how a number that is made of them changes with each output."""


class RowGradients(Protocol):
    """A model with a head that can be differentiated."""

    def integrate(
        self, rows: Sequence[Row], baselines: Sequence[Row], gradient: OutputGradient, steps: int
    ) -> list[npt.NDArray[np.float64]]:
        """Return integrated gradients (T, 1 + F) of rows: of the piece of each token, and of each of its features."""

    def attention(self, rows: Sequence[Row]) -> list[npt.NDArray[np.float64]]:
        """Return for each row how much each place attends to each token (P, T), the mean of all layers and heads."""


class HeadRunner(ABC):
    """A model in evaluation mode, with the name of the head that a task asks."""

    head: str
    attention: str | None
    """Which tokens see each other; none: as the model was made."""

    @property
    @abstractmethod
    def per_token(self) -> bool:
        """Whether the head answers for tokens; otherwise it does once a row."""

    @abstractmethod
    def compute(self, heads: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, Mapping[str, Outputs]]]:
        """Yield the number of each row and what heads of the model say at its places, in any order."""

    @abstractmethod
    def decoder(self, segment: int = 0) -> IncrementalDecoder:
        """Return what writes with the head, whose new tokens are of this segment."""

    def gradients(self) -> RowGradients | None:
        """Return what computes gradients and attention; none: the model has none to compute."""
        return None

    def outputs(self, encoded: Sequence[EncodedExample]) -> list[list[Outputs]]:
        """Return the head's outputs at the places of each row of each example."""
        rows = [row for example in encoded for row in example.rows]
        per_row: list[Outputs] = [np.empty((0, 0), np.float32)] * len(rows)
        for number, outputs in self.compute([self.head], rows):
            per_row[number] = outputs[self.head]
        remaining = iter(per_row)
        return [[next(remaining) for _ in example.rows] for example in encoded]


_RowKey = tuple[bytes, bytes, bytes, int | None, str | None]


@dataclass(eq=False)
class _DistinctRow:
    """A row, and who asks where in it."""

    row: Row
    runner: HeadRunner
    heads: dict[str, None] = field(default_factory=dict)
    """In the order in which they asked."""
    places: list[IntArray] = field(default_factory=list)
    outputs: Mapping[str, Outputs] = field(default_factory=dict)

    @property
    def row_with_all_positions(self) -> Row:
        """The row with all places at which anybody asks, each once and in ascending order."""
        return replace(self.row, positions=np.unique(np.concatenate(self.places)))


def run_together(
    runners: Mapping[str, HeadRunner], encoded: Mapping[str, Sequence[EncodedExample]]
) -> dict[str, list[list[Outputs]]]:
    """Run heads of one model, each over its examples, and compute each distinct row once."""
    distinct: dict[_RowKey, _DistinctRow] = {}
    for name, runner in runners.items():
        for row in (row for example in encoded[name] for row in example.rows):
            shared = distinct.setdefault(_row_key(runner, row), _DistinctRow(row, runner))
            shared.heads[runner.head] = None
            shared.places.append(row.positions)
    _compute(distinct.values())
    return {
        name: [[_pick_outputs(runner, row, distinct) for row in example.rows] for example in encoded[name]]
        for name, runner in runners.items()
    }


def _compute(distinct: Iterable[_DistinctRow]) -> None:
    groups: dict[tuple[str, ...], list[_DistinctRow]] = {}
    for shared in distinct:
        groups.setdefault(tuple(shared.heads), []).append(shared)
    for heads, group in groups.items():
        for number, outputs in group[0].runner.compute(heads, [shared.row_with_all_positions for shared in group]):
            group[number].outputs = outputs


def _row_key(runner: HeadRunner, row: Row) -> _RowKey:
    segments = b"" if row.segments is None or not row.segments.any() else row.segments.tobytes()
    features = b"" if row.features is None else row.features.rows_TF.tobytes()
    return row.ids.tobytes(), segments, features, row.prefix, runner.attention


def _pick_outputs(runner: HeadRunner, row: Row, distinct: Mapping[_RowKey, _DistinctRow]) -> Outputs:
    """Take the outputs at the row's own places out of those at everybody's."""
    shared = distinct[_row_key(runner, row)]
    outputs = shared.outputs[runner.head]
    if not runner.per_token:
        return outputs
    return outputs[np.searchsorted(shared.row_with_all_positions.positions, row.positions)]
