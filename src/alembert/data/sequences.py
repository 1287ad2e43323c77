"""Single sequences: a document cut into stretches, and a stretch turned into the instance that a model reads.

In: the token borders of a document's sentences. Out: stretches that hold every token exactly once. Cut at sentences,
a sequence reads well and is often shorter than it could be; cut at tokens, all but the last of a document are full.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from alembert.data.instance import Instance, Range, Stretch

Cut = Literal["sentence", "token"]


def stretches(borders: npt.NDArray[np.int64], document: int, *, length: int, cut: Cut = "sentence") -> list[Stretch]:
    """Cut a document into single sequences of at most `length` tokens, `[CLS]` and `[SEP]` included.

    A sentence that is longer goes on in the next sequence, so nothing is lost. `length` is at least 3.

    >>> [stretch.a for stretch in stretches(np.array([0, 3, 5, 12]), 0, length=8)]
    [(0, 5), (5, 11), (11, 12)]
    """
    ends = borders.tolist()
    if cut == "token":
        ends = ends[:1] + ends[-1:]
    return [Stretch(document, a) for a in _ranges(ends, length - 2)]


def _ranges(borders: Sequence[int], most: int) -> Iterator[Range]:
    """Go from border to border in steps of at most `most`, and stop between borders only where they are further apart."""
    start = borders[0]
    while start < borders[-1]:
        end = borders[bisect_right(borders, start + most) - 1]
        if end <= start:
            end = start + most
        yield start, end
        start = end


def instance_of(
    stretch: Stretch,
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
    place = 1
    for segment, (start, end) in enumerate((stretch.a,) if stretch.b is None else (stretch.a, stretch.b)):
        here = slice(place, place + end - start)
        ids[here], flags[here], special[here] = shards_ids[start:end], shards_flags[start:end], False
        segments[place : here.stop + 1] = segment
        place = here.stop + 1
    return Instance(ids, segments, flags, special, stretch.label)
