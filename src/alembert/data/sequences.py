"""Documents cut into spans of tokens, and the training sequences that the model reads of them.

In: the token borders of a document's sentences. Out: spans that hold every token exactly once. Cut at sentences, a
sequence reads well and is often shorter than it could be; cut at tokens, all but the last of a document are full. A
`TokenSpan` is small, so that a window of thousands of them is planned ahead. An `Instance` holds the tokens themselves,
with `[CLS]` and `[SEP]`, and is built when it is needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

TokenRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A training sequence as ranges of the shards' tokens."""

    document: int
    a: TokenRange
    b: TokenRange | None = None
    label: int | None = None
    """0: B follows A. 1: B is random, or the two are swapped. None: a single sequence."""

    @property
    def length(self) -> int:
        """Tokens with `[CLS]` and `[SEP]`."""
        own = self.a[1] - self.a[0]
        return own + 2 if self.b is None else own + self.b[1] - self.b[0] + 3


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One training sequence, not masked."""

    ids: npt.NDArray[np.int32]
    segments: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    """The shards' flags of each token; 0 at special tokens."""
    special: npt.NDArray[np.bool_]
    """True at `[CLS]` and `[SEP]`."""
    label: int | None = None

    def __len__(self) -> int:
        return len(self.ids)


CutUnit = Literal["sentence", "token"]


def split_document(
    borders: npt.NDArray[np.int64], document: int, *, length: int, cut: CutUnit = "sentence"
) -> list[TokenSpan]:
    """Cut a document into single sequences of at most `length` tokens, `[CLS]` and `[SEP]` included.

    A sentence that is longer goes on in the next sequence, so nothing is lost. `length` is at least 3.

    >>> [stretch.a for stretch in split_document(np.array([0, 3, 5, 12]), 0, length=8)]
    [(0, 5), (5, 11), (11, 12)]
    """
    ends = borders.tolist()
    if cut == "token":
        ends = ends[:1] + ends[-1:]
    return [TokenSpan(document, a) for a in _ranges(ends, length - 2)]


def _ranges(borders: Sequence[int], most: int) -> Iterator[TokenRange]:
    """Go from border to border in steps of at most `most`, and stop between borders only where they are further apart."""
    start = borders[0]
    while start < borders[-1]:
        end = borders[bisect_right(borders, start + most) - 1]
        if end <= start:
            end = start + most
        yield start, end
        start = end


def build_instance(
    stretch: TokenSpan,
    shards_ids: npt.NDArray[np.unsignedinteger],
    shards_flags: npt.NDArray[np.uint8],
    *,
    cls_id: int,
    sep_id: int,
) -> Instance:
    """Read a stretch from the shards: `[CLS] a [SEP]`, or `[CLS] a [SEP] b [SEP]` with `b` as segment 1."""
    ids = np.full(stretch.length, sep_id, np.int32)
    ids[0] = cls_id
    segments, flags = np.zeros((2, stretch.length), np.uint8)
    special = np.ones(stretch.length, np.bool_)
    position = 1
    for segment, (start, end) in enumerate((stretch.a,) if stretch.b is None else (stretch.a, stretch.b)):
        segment_slice = slice(position, position + end - start)
        ids[segment_slice], flags[segment_slice], special[segment_slice] = (
            shards_ids[start:end],
            shards_flags[start:end],
            False,
        )
        segments[position : segment_slice.stop + 1] = segment
        position = segment_slice.stop + 1
    return Instance(ids, segments, flags, special, stretch.label)
