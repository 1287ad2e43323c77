"""Surface features: what a tagger reads of a token beside its piece.

Letter case and shape come from the original text, so that an uncased model sees them too; the matches of lexicons
come from `gazetteer`. In: a text with the offsets of its pieces. Out: for each piece a row number of one embedding
table for each feature, and the matches that these rows stand for. The first row of each feature means that there is
nothing to say; row 0 belongs to no feature, and stands where no features are read at all.

The same words may be a term of several lexicons, so each is a feature of its own. Where a text defines an abbreviation
(`abbreviations`), a match of its long form counts for the short form everywhere in the text, and the other way round.
"""

# N pieces, F features, W words, K matches
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.text.abbreviations import find_abbreviations, find_occurrences
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


class LexiconMatch(NamedTuple):
    """A term in a text, with the number of its lexicon."""

    start: int
    end: int
    lexicon: int


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
    gazetteer: Gazetteer | None = None
    """Finds the terms of all lexicons, whose order is that of the features; none: there are no lexicons."""
    abbreviations: bool = True
    """Whether matches count for the abbreviations that a text defines for them."""

    @property
    def lexicons(self) -> tuple[str, ...]:
        return () if self.gazetteer is None else self.gazetteer.labels

    @property
    def blocks(self) -> dict[str, int]:
        """Rows of the embedding table that belong together, by name: what each stands for, and how many there are."""
        case = {"case of pieces": _PIECE_ROWS, "case of words": _WORD_ROWS} if self.case else {}
        return {"none": _FIRST_ROW, **case, **{f"lexicon {label}": _LEXICON_ROWS for label in self.lexicons}}

    @property
    def nothing_F(self) -> IntArray:
        """The features of a token that there is nothing to say of, such as [CLS]."""
        case = [_FIRST_ROW, _FIRST_ROW + _PIECE_ROWS] if self.case else []
        lexicons = self._first_lexicon_row + _LEXICON_ROWS * np.arange(len(self.lexicons))
        return np.concatenate((case, lexicons)).astype(np.int64)

    def compute(self, texts: Sequence[str], offsets: Iterable[PieceOffsets]) -> list[SurfaceRows]:
        """Return the features of texts; the terms of all texts are looked up at once."""
        matches = self.find_matches(texts)
        return [self._compute(*parts) for parts in zip(texts, offsets, matches, strict=True)]

    def find_matches(self, texts: Sequence[str]) -> list[list[LexiconMatch]]:
        """Find the terms of each lexicon in each text, with those that stand there as abbreviations."""
        if self.gazetteer is None:
            return [[] for _ in texts]
        number_of = {label: number for number, label in enumerate(self.lexicons)}
        found = [
            [LexiconMatch(match.start, match.end, number_of[match.label]) for match in matches]
            for matches in self.gazetteer.find_all(texts, apart=True)
        ]
        return list(map(add_abbreviations, texts, found)) if self.abbreviations else found

    @property
    def _case_columns(self) -> int:
        return 2 if self.case else 0

    @property
    def _first_lexicon_row(self) -> int:
        return _FIRST_ROW + (_PIECE_ROWS + _WORD_ROWS if self.case else 0)

    def _compute(self, text: str, offsets: PieceOffsets, matches: Sequence[LexiconMatch]) -> SurfaceRows:
        nothing_F = self.nothing_F
        rows_NF = np.tile(nothing_F, (len(offsets.starts_N), 1))
        if self.case and len(rows_NF):
            rows_NF[:, :2] += _case_values(text, offsets)
        placed = [
            (*pieces, self._case_columns + number, text[start:end])
            for start, end, number in matches
            if (pieces := _piece_range(offsets, start, end)) is not None
        ]
        for first, end, column, _ in placed:  # two matches may touch one word, of which the last counts
            rows_NF[first:end, column] = nothing_F[column] + _match_values(offsets.words_N[first:end])
        lines = np.array([match[:3] for match in placed], np.int64).reshape(-1, 3)
        return SurfaceRows(rows_NF, lines, tuple(match[3] for match in placed))


def add_abbreviations(text: str, matches: list[LexiconMatch]) -> list[LexiconMatch]:
    """Add matches where one form of an abbreviation that the text defines is a term, and the other one stands.

    >>> text = "Leukemia (LK), LK"
    >>> add_abbreviations(text, [LexiconMatch(0, 8, 0)])[1:]
    [LexiconMatch(start=10, end=12, lexicon=0), LexiconMatch(start=15, end=17, lexicon=0)]
    """
    if not matches or not (definitions := find_abbreviations(text)):
        return matches
    every = list(matches)
    for short, long in definitions:
        for known, other in ((long, short), (short, long)):
            for lexicon in sorted({match.lexicon for match in matches if _names(match, known)}):
                occurrences = find_occurrences(text, text[slice(*other)], any_case=other is long)
                every += _free_matches(every, occurrences, lexicon)
    return every


def _names(match: LexiconMatch, span: tuple[int, int]) -> bool:
    """Return whether a match is a form of an abbreviation; it may begin before it ("childhood leukemia (LK)")."""
    return match.start <= span[0] and match.end == span[1]


def _free_matches(
    matches: list[LexiconMatch], spans: Iterable[tuple[int, int]], lexicon: int
) -> Iterator[LexiconMatch]:
    """Yield matches of a lexicon at spans where it has none."""
    own = [match for match in matches if match.lexicon == lexicon]
    for start, end in spans:
        if not any(match.start < end and start < match.end for match in own):
            yield LexiconMatch(start, end, lexicon)


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
