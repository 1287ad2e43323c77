"""Read spans from the vectors of a span head (`alembert.nn.pointer`); numpy alone.

The table of all pairs is made in strips of first tokens, so that memory grows with the length of the row, not its
square, and with `longest` not even the time does.
"""

# T tokens, K width of queries and keys, Y types, C columns = 2 K + 2 Y
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

_STRIP: Final = 256


class PointedSpan(NamedTuple):
    """Two tokens that belong together, both included."""

    first: int
    last: int
    type: int
    score: float


def pointer_spans(
    vectors_TC: npt.NDArray[np.floating[Any]], types: int, threshold: float = 0.0, longest: int | None = None
) -> list[PointedSpan]:
    """Find all spans that score above the threshold, of at most `longest` tokens; ordered by place."""
    width = (vectors_TC.shape[1] - 2 * types) // 2
    query_TK, key_TK, first_TY, last_TY = np.split(vectors_TC, [width, 2 * width, 2 * width + types], axis=1)
    count = len(vectors_TC)
    reach = count if longest is None else longest
    found: list[PointedSpan] = []
    for begin in range(0, count, _STRIP):
        end = min(begin + _STRIP, count)
        stop = min(end - 1 + reach, count)
        near = query_TK[begin:end] @ key_TK[begin:stop].T / np.sqrt(width)
        lengths = np.arange(stop - begin) - np.arange(end - begin)[:, None] + 1
        near = np.where((lengths >= 1) & (lengths <= reach), near, -np.inf)
        found += _above(near, first_TY[begin:end], last_TY[begin:stop], threshold, begin)
    return sorted(found)


def _above(
    near: npt.NDArray[np.floating[Any]],
    first: npt.NDArray[np.floating[Any]],
    last: npt.NDArray[np.floating[Any]],
    threshold: float,
    begin: int,
) -> Iterator[PointedSpan]:
    for kind in range(first.shape[1]):
        scores = near + first[:, kind, None] + last[:, kind]
        for i, j in np.argwhere(scores > threshold).tolist():
            yield PointedSpan(begin + i, begin + j, kind, float(scores[i, j]))
