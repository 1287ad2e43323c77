"""Surface features: what a tagger reads of a token beside its piece.

Letter case and shape come from the original text, so that an uncased model sees them too; the matches of lexicons come from
`gazetteer`. In: a text with the offsets of its pieces. Out: for each piece a row number of one embedding table for each
feature, and the matches that these rows stand for. The first row of each feature means that there is nothing to say; row 0
belongs to no feature, and stands where no features are read at all.

A lexicon has its own gazetteer, since the same words may be a term of several.
"""

# N pieces, F features, W words, K matches
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.text.gazetteer import Gazetteer

IntArray = npt.NDArray[np.int64]
SHAPES: Final = ("lower", "upper", "title", "mixed", "digits", "letters and digits", "greek", "other")
WORD_POSITIONS: Final = ("only", "first", "inside", "last")
MATCH_TAGS: Final = ("begin", "inside", "end", "single")
_PIECE_ROWS: Final = 1 + len(SHAPES)
_WORD_ROWS: Final = 1 + len(SHAPES) * len(WORD_POSITIONS)
_LEXICON_ROWS: Final = 1 + len(MATCH_TAGS)
_FIRST_ROW: Final = 1
_GREEK: Final = re.compile("[\u0370-\u03ff]")


class PieceOffsets(NamedTuple):
    """Where the pieces of a text are, and which word each belongs to, numbered from 0."""

    starts_N: IntArray
    ends_N: IntArray
    words_N: IntArray


@dataclass(frozen=True, eq=False)
class SurfaceRows:
    """The features of a text."""

    rows_NF: IntArray
    matches_K3: IntArray
    """First piece, end and feature of each match of a lexicon."""
    surfaces: tuple[str, ...] = ()
    """The text of each match."""


@lru_cache(maxsize=1 << 16)
def find_shape(text: str) -> int:
    """Return the number of a word's shape among `SHAPES`.

    >>> [SHAPES[find_shape(word)] for word in ("gene", "DNA", "Gene", "mRNA", "1997", "p53", "β", "-")]
    ['lower', 'upper', 'title', 'mixed', 'digits', 'letters and digits', 'greek', 'other']
    """
    if _GREEK.search(text):
        return SHAPES.index("greek")
    if any(character.isdigit() for character in text):
        return SHAPES.index("letters and digits" if any(map(str.isalpha, text)) else "digits")
    if text.islower():
        return SHAPES.index("lower")
    if text.isupper():
        return SHAPES.index("upper" if len(text) > 1 else "title")
    if not any(character.isupper() for character in text):
        return SHAPES.index("other")
    return SHAPES.index("title" if text[0].isupper() and text[1:].islower() else "mixed")


@dataclass(frozen=True, eq=False)
class SurfaceFeatures:
    """Which features are read, with what finds the terms of each lexicon."""

    case: bool = False
    gazetteers: Mapping[str, Gazetteer] = field(default_factory=dict)
    """By the name of the lexicon, in the order of the features."""

    @property
    def rows(self) -> int:
        """Rows of the embedding table."""
        return self._first_lexicon_row + _LEXICON_ROWS * len(self.gazetteers)

    @property
    def nothing_F(self) -> IntArray:
        """The features of a token that there is nothing to say of, such as [CLS]."""
        case = [_FIRST_ROW, _FIRST_ROW + _PIECE_ROWS] if self.case else []
        lexicons = self._first_lexicon_row + _LEXICON_ROWS * np.arange(len(self.gazetteers))
        return np.concatenate((case, lexicons)).astype(np.int64)

    def compute(self, texts: Sequence[str], offsets: Iterable[PieceOffsets]) -> list[SurfaceRows]:
        """Return the features of texts; the terms of all texts are looked up at once."""
        found = [gazetteer.find_all(texts) for gazetteer in self.gazetteers.values()]
        spans = [
            [[(match.start, match.end) for match in matches[number]] for matches in found]
            for number in range(len(texts))
        ]
        return list(map(self._compute, texts, offsets, spans))

    @property
    def _case_columns(self) -> int:
        return 2 if self.case else 0

    @property
    def _first_lexicon_row(self) -> int:
        return _FIRST_ROW + (_PIECE_ROWS + _WORD_ROWS if self.case else 0)

    def _compute(self, text: str, offsets: PieceOffsets, matches: Sequence[Sequence[tuple[int, int]]]) -> SurfaceRows:
        rows_NF = np.tile(self.nothing_F, (len(offsets.starts_N), 1))
        if self.case and len(rows_NF):
            rows_NF[:, :2] += _case_values(text, offsets)
        placed = [
            (*pieces, self._case_columns + number, text[start:end])
            for number, spans in enumerate(matches)
            for start, end in spans
            if (pieces := _piece_range(offsets, start, end)) is not None
        ]
        for first, end, column, _ in placed:
            rows_NF[first:end, column] += _match_values(offsets.words_N[first:end])
        lines = np.array([match[:3] for match in placed], np.int64).reshape(-1, 3)
        return SurfaceRows(rows_NF, lines, tuple(match[3] for match in placed))


def _case_values(text: str, offsets: PieceOffsets) -> IntArray:
    """Number the shape of each piece, and the shape of its word with its position in it; 0 is kept for nothing."""
    starts, ends = offsets.starts_N.tolist(), offsets.ends_N.tolist()
    pieces = [1 + find_shape(text[start:end]) for start, end in zip(starts, ends, strict=True)]
    is_first_N = np.diff(offsets.words_N, prepend=-1) != 0
    is_last_N = np.append(is_first_N[1:], True)
    first_W, last_W = np.flatnonzero(is_first_N).tolist(), np.flatnonzero(is_last_N).tolist()
    shapes_W = np.array([find_shape(text[starts[a] : ends[b]]) for a, b in zip(first_W, last_W, strict=True)])
    position_N = np.where(is_first_N, np.where(is_last_N, 0, 1), np.where(is_last_N, 3, 2))
    words_N = 1 + shapes_W[np.cumsum(is_first_N) - 1] * len(WORD_POSITIONS) + position_N
    return np.stack([np.array(pieces), words_N], 1)


def _piece_range(offsets: PieceOffsets, start: int, end: int) -> tuple[int, int] | None:
    """Return the pieces of the words that a span of characters touches; none: it touches no piece."""
    first = int(np.searchsorted(offsets.ends_N, start, side="right"))
    stop = int(np.searchsorted(offsets.starts_N, end, side="left"))
    if first >= stop:
        return None
    words_N = offsets.words_N
    return (
        int(np.searchsorted(words_N, words_N[first], side="left")),
        int(np.searchsorted(words_N, words_N[stop - 1], side="right")),
    )


def _match_values(words_M: IntArray) -> IntArray:
    """Number the tags of the pieces of a match, in the order of `MATCH_TAGS`, from 1 up."""
    is_first, is_last = words_M == words_M[0], words_M == words_M[-1]
    return 1 + np.where(is_first, np.where(is_last, 3, 0), np.where(is_last, 2, 1))
