"""Rows of token ids with features of their tokens, and the overlapping windows of a long text.

In: a number of tokens, the limit and the overlap. Out: windows in order, each of which becomes a `Row`. Each token
belongs to the own zone of exactly one window, where it has context on both sides; answers elsewhere in a window are not
used. Borders fall on sentence starts where one is within reach, else on word starts. That wastes some room in each
window (a quarter of what is left of it without the overlap, at either end, at most), and spares the model half
sentences.

The features of a token are rows of an embedding table. A model that always sees the matches of a lexicon learns to lean
on them, so in training each match is dropped with a probability of its own, which depends on the seed of the draw
alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting

# T tokens, F features, K matches


IntArray = npt.NDArray[np.int64]


def stack_features(features: Sequence[TokenFeatures | None], lengths: Sequence[int]) -> list[IntArray] | None:
    """Return the features of rows, each of so many tokens, equally many for each token; none: no row has any.

    Row 0 of the table, which is always zero, fills up.
    """
    columns = max((one.rows_TF.shape[1] for one in features if one is not None), default=0)
    if not columns:
        return None
    stacked = [np.zeros((length, columns), np.int64) for length in lengths]
    for rows_TF, one in zip(stacked, features, strict=True):
        if one is not None:
            rows_TF[:, : one.rows_TF.shape[1]] = one.rows_TF
    return stacked


def _no_matches() -> IntArray:
    return np.zeros((0, 3), np.int64)


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """The features of each token of a row."""

    rows_TF: IntArray
    """Rows of the embedding table."""
    nothing_F: IntArray
    """The rows of a token that there is nothing to say of."""
    matches_K3: IntArray = field(default_factory=_no_matches)
    """First token, end and feature of each match that may be dropped."""
    dropout_K: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """The probability with which training drops each match."""

    def cut(self, start: int, end: int) -> TokenFeatures:
        """Return the features of a window of tokens, with a special token before and after it."""
        rows_TF = np.concatenate((self.nothing_F[None], self.rows_TF[start:end], self.nothing_F[None]))
        inside_K = (self.matches_K3[:, 0] < end) & (self.matches_K3[:, 1] > start)
        matches_K3 = self.matches_K3[inside_K]
        matches_K3[:, :2] = matches_K3[:, :2].clip(start, end) - start + 1
        return TokenFeatures(rows_TF, self.nothing_F, matches_K3, self.dropout_K[inside_K])

    def drop_matches(self, seed: int) -> TokenFeatures:
        """Drop matches at random."""
        dropped_K = np.random.default_rng(seed).random(len(self.dropout_K)) < self.dropout_K
        if not dropped_K.any():
            return self
        rows_TF = self.rows_TF.copy()
        for first, end, feature in self.matches_K3[dropped_K].tolist():
            rows_TF[first:end, feature] = self.nothing_F[feature]
        return TokenFeatures(rows_TF, self.nothing_F, self.matches_K3, self.dropout_K)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of tokens that is read at once; positions count tokens without special ones, ends not included."""

    start: int
    end: int
    own_start: int
    own_end: int


def compute_windows(
    length: int,
    limit: int,
    overlap: int,
    breaks: Sequence[int] = (),
    solid: npt.NDArray[np.bool_] | None = None,
) -> list[Window]:
    """Cut a text of `length` tokens into windows of at most `limit` that overlap by about `overlap`.

    `breaks` are the positions at which sentences start; `solid` marks the tokens that go on with the word before them:
    no border stands there, unless the word is longer than the limit.

    >>> compute_windows(10, 6, 2)
    [Window(start=0, end=6, own_start=0, own_end=5), Window(start=4, end=10, own_start=5, own_end=10)]
    """
    _check_window_sizes(limit, overlap)
    if length <= limit:
        return [Window(0, length, 0, length)] if length else []
    words = _Positions(_word_starts(length, limit, solid))
    word_starts = set(words.items)
    cutter = _Cutter(length, limit, overlap, words, _Positions(sorted(word_starts.intersection(breaks) - {0, length})))
    return list(_assign_own_zones(list(cutter.stretches()), cutter))


def _check_window_sizes(limit: int, overlap: int) -> None:
    if limit < 1:
        raise BadSetting(f"The limit of a window is {limit} tokens; expected at least 1.")
    if not 0 <= overlap < limit:
        raise BadSetting(
            f"The overlap of windows is {overlap} tokens, and a window has at most {limit}; "
            f"expected an overlap from 0 to {limit - 1}. A quarter of the window is usual."
        )


def _word_starts(length: int, limit: int, solid: npt.NDArray[np.bool_] | None) -> list[int]:
    """List the positions where a border may stand, the end of the text included."""
    if solid is None:
        return list(range(length + 1))
    if len(solid) != length:
        raise ValueError(f"{len(solid)} marks for {length} tokens")
    starts = np.append(~solid, True)
    starts[0] = True
    borders = np.flatnonzero(starts)
    for word in np.flatnonzero(np.diff(borders) > limit):
        starts[borders[word] : borders[word + 1]] = True
    positions: list[int] = np.flatnonzero(starts).tolist()
    return positions


@dataclass(frozen=True, slots=True)
class _Positions:
    """Positions in order, to be searched."""

    items: list[int]

    def first(self, low: int) -> int:
        """Return the first that is not below `low`; there must be one."""
        return self.items[bisect_left(self.items, low)]

    def last(self, low: int, high: int) -> int | None:
        """Return the last from `low` to `high`, both included."""
        index = bisect_right(self.items, high) - 1
        return self.items[index] if index >= 0 and self.items[index] >= low else None

    def nearest(self, low: int, high: int) -> int | None:
        """Return the one from `low` to `high` that is nearest to the middle between them."""
        middle = (low + high) // 2
        before, after = self.last(low, middle), bisect_right(self.items, middle)
        if after == len(self.items) or self.items[after] > high:
            return before
        right = self.items[after]
        return before if before is not None and middle - before <= right - middle else right


@dataclass(frozen=True, slots=True)
class _Cutter:
    """A text that needs several windows."""

    length: int
    limit: int
    overlap: int
    words: _Positions
    breaks: _Positions

    @property
    def reach(self) -> int:
        """How far to go back for a sentence start; windows still advance by half of limit less overlap."""
        return (self.limit - self.overlap) // 4

    def stretches(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of the windows; both grow from one to the next."""
        start = end = 0
        while start + self.limit < self.length:
            end = self._end(start, end)
            yield start, end
            start = self._next_start(start, end)
        yield start, self.length

    def _end(self, start: int, end_before: int) -> int:
        latest = start + self.limit
        at_break = self.breaks.last(max(end_before + 1, latest - self.reach), latest)
        return at_break or self.words.last(0, latest) or latest

    def _next_start(self, start: int, end: int) -> int:
        """Go back from the end of a window by the overlap, unless the next window then ended where this one does."""
        earliest = max(start + 1, self.words.first(end + 1) - self.limit)
        target = end - self.overlap
        start_at = self.breaks.last(max(earliest, target - self.reach), target) or self.words.last(earliest, target)
        return start_at or self.words.first(earliest)

    def border(self, start: int, end: int) -> int:
        """Find where, in the overlap of two windows, the own zone of the first ends and that of the second starts."""
        low, high = start + self.overlap // 2, end - self.overlap // 2
        for positions in (self.breaks, self.words):
            nearest = positions.nearest(low, high) if low <= high else None
            if nearest is not None:
                return nearest
        return self.words.nearest(start, end) or end


def _assign_own_zones(stretches: Sequence[tuple[int, int]], cutter: _Cutter) -> Iterator[Window]:
    """Share the tokens out; a window that would own none, between long words, is left out."""
    own_start = 0
    for index, (start, end) in enumerate(stretches):
        is_last = index + 1 == len(stretches)
        own_end = end if is_last else max(own_start, cutter.border(stretches[index + 1][0], end))
        if own_start < own_end:
            yield Window(start, end, own_start, own_end)
        own_start = own_end


REFERENCE_TOKENS: Final = 128
"""Length of the row for which the cost of a model is reported: attention makes each token of a longer row dearer."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Token ids of one window, the positions that are predicted, and, for training, the right answers."""

    ids: IntArray
    positions: IntArray
    """Tokens of the row at which the head is asked, in order; a task that asks about the whole row has [0]."""
    labels: npt.NDArray[Any] | None = None
    """The right answers in the form that the task's loss takes; none: not known."""
    segments: IntArray | None = None
    prefix: int | None = None
    """For prefix attention: how many tokens at the beginning see each other both ways."""
    features: TokenFeatures | None = None
    """What the model reads of each token beside its piece; none: nothing."""

    @property
    def length(self) -> int:
        return len(self.ids)
