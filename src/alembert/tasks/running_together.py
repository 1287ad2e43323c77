"""Run the heads of several tasks over their rows, each distinct row once.

Tasks that read a text alike have the same rows of it, and the encoder is nearly all the work: so rows that are the same
are computed once, with all heads that ask about them. Tasks that cut or join texts in their own way have rows of their
own, which are computed for them alone. Nothing else depends on it: the answers are those of each head by itself. What
computes is given; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from alembert.data.windows import IntArray, Row
from alembert.tasks.example import Encoded
from alembert.tasks.runner import Outputs

Compute = Callable[[Sequence[str], Sequence[Row], str | None], Iterator[tuple[int, Mapping[str, Outputs]]]]
"""Heads, rows and the attention in; the number of each row and what the heads say at its places out, in any order."""
_Key = tuple[bytes, bytes, int | None, str | None]


@dataclass(eq=False)
class _Distinct:
    """A row, and who asks where in it."""

    row: Row
    heads: dict[str, None] = field(default_factory=dict)
    """In the order in which they asked."""
    places: list[IntArray] = field(default_factory=list)
    outputs: Mapping[str, Outputs] = field(default_factory=dict)

    @property
    def whole(self) -> Row:
        """The row with all places at which anybody asks, each once and in ascending order."""
        return replace(self.row, places=np.unique(np.concatenate(self.places)))


@dataclass(frozen=True)
class TogetherRunner:
    """A model with several heads that are asked about the same texts."""

    compute: Compute
    per_token: Mapping[str, bool]
    """Whether a head answers for tokens; otherwise it does once a row."""
    attention: Mapping[str, str | None]
    """For each head which tokens see each other; none: as the model was made."""

    def outputs(self, encoded: Mapping[str, Sequence[Encoded]]) -> dict[str, list[list[Outputs]]]:
        """Give each head's outputs at the places of each row of each of its examples."""
        distinct: dict[_Key, _Distinct] = {}
        for head, row in _rows(encoded):
            each = distinct.setdefault(self._key(head, row), _Distinct(row))
            each.heads[head] = None
            each.places.append(row.places)
        self._compute(distinct)
        return {
            head: [[self._picked(head, row, distinct) for row in each.rows] for each in examples]
            for head, examples in encoded.items()
        }

    def _compute(self, distinct: Mapping[_Key, _Distinct]) -> None:
        groups: dict[tuple[str, ...], list[_Distinct]] = {}
        for each in distinct.values():
            groups.setdefault(tuple(each.heads), []).append(each)
        for heads, group in groups.items():
            rows = [each.whole for each in group]
            for number, found in self.compute(heads, rows, self.attention[heads[0]]):
                group[number].outputs = found

    def _key(self, head: str, row: Row) -> _Key:
        segments = b"" if row.segments is None or not row.segments.any() else row.segments.tobytes()
        return row.ids.tobytes(), segments, row.prefix, self.attention[head]

    def _picked(self, head: str, row: Row, distinct: Mapping[_Key, _Distinct]) -> Outputs:
        """Take the outputs at the row's own places out of those at everybody's."""
        found = distinct[self._key(head, row)]
        outputs = found.outputs[head]
        if not self.per_token[head]:
            return outputs
        return outputs[np.searchsorted(found.whole.places, row.places)]


def _rows(encoded: Mapping[str, Sequence[Encoded]]) -> Iterator[tuple[str, Row]]:
    for head, examples in encoded.items():
        yield from ((head, row) for each in examples for row in each.rows)
