"""Words of a text as a tagger sees them, and entities as tags of words.

A word is what BERT's own rules make one before WordPiece: letters and digits between spaces and punctuation, a single
punctuation mark, a single Chinese character. Tags stand at the first piece of each word. Entities are spans of
characters and become ranges of words; one that begins or ends inside a word has no such range, and is counted.
"""

# W words
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from alembert.text.tokenizer import Encoding

Scheme = Literal["bio", "bioes"]
Span = tuple[int, int, str]
"""Start, end and label: of characters, or of words where it is said so."""
OUTSIDE = "O"
UNTAGGED = -1
"""Stands for the tag of a word outside of all entities, where a head has no O."""


@dataclass(frozen=True, eq=False)
class Words:
    """Where the words of a text are, in pieces and in characters."""

    pieces_W: npt.NDArray[np.int64]
    """The first piece of each word, counted without special tokens."""
    starts_W: npt.NDArray[np.int64]
    ends_W: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pieces_W)


def words_of(encoding: Encoding) -> Words:
    """Find the words of an encoding that was made without special tokens."""
    if not len(encoding):
        nothing = np.zeros(0, np.int64)
        return Words(nothing, nothing, nothing)
    word_N = np.asarray(encoding.word_ids, np.int64)
    offsets_N2 = np.asarray(encoding.offsets, np.int64)
    pieces_W = np.concatenate(([0], np.flatnonzero(word_N[1:] != word_N[:-1]) + 1))
    last_W = np.concatenate((pieces_W[1:], [len(word_N)])) - 1
    return Words(pieces_W, offsets_N2[pieces_W, 0], offsets_N2[last_W, 1])


def word_ranges(spans: Iterable[Span], words: Words) -> tuple[list[Span], int]:
    """Turn spans of characters into ranges of words (end not included); count those that have none."""
    first = {start: number for number, start in enumerate(words.starts_W.tolist())}
    after = {end: number + 1 for number, end in enumerate(words.ends_W.tolist())}
    found, lost = [], 0
    for start, end, label in spans:
        if start in first and end in after and first[start] < after[end]:
            found.append((first[start], after[end], label))
        else:
            lost += 1
    return found, lost


def without_overlaps(ranges: Iterable[Span]) -> tuple[list[Span], int]:
    """Keep the longest of ranges that overlap, the first of equally long ones; count the others.

    >>> without_overlaps([(0, 2, "a"), (1, 2, "b"), (2, 3, "c")])
    ([(0, 2, 'a'), (2, 3, 'c')], 1)
    """
    kept: list[Span] = []
    taken: set[int] = set()
    given = list(ranges)
    for start, end, label in sorted(given, key=lambda span: (span[0] - span[1], span[0])):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            kept.append((start, end, label))
    return sorted(kept), len(given) - len(kept)


def tag_names(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """Name all tags of a scheme.

    >>> tag_names(["Disease"], "bio")
    ('O', 'B-Disease', 'I-Disease')
    """
    prefixes = "BI" if scheme == "bio" else "BIES"
    return (OUTSIDE, *(f"{prefix}-{label}" for label in types for prefix in prefixes))


def to_tags(ranges: Iterable[Span], count: int, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the number of the tag of each word, for ranges that do not overlap.

    A head that was trained elsewhere may lack tags: one of the same type stands in for them, and words outside of all
    ranges are `UNTAGGED` if there is no O.
    """
    number = {name: place for place, name in enumerate(names)}
    tags = np.full(count, number.get(OUTSIDE, UNTAGGED), np.int64)
    for start, end, label in ranges:
        tags[start:end] = _first_known(number, label, "IBES")
        if end - start > 1:
            tags[start] = _first_known(number, label, "BISE")
            tags[end - 1] = _first_known(number, label, "EIBS")
        else:
            tags[start] = _first_known(number, label, "SBIE")
    return tags


def _first_known(number: Mapping[str, int], label: str, prefixes: str) -> int:
    return next(number[tag] for prefix in prefixes if (tag := f"{prefix}-{label}") in number)


def from_tags(tags: Iterable[int], names: Sequence[str]) -> list[Span]:
    """Read ranges of words from the numbers of tags: a range goes on with I or E of its own type, until E, S or O.

    Tags that break their scheme are read as the pipelines of transformers read them: an I that continues nothing begins
    a range.

    >>> from_tags([1, 2, 0, 1, 1, 0, 2], ("O", "B-x", "I-x"))
    [(0, 2, 'x'), (3, 4, 'x'), (4, 5, 'x'), (6, 7, 'x')]
    """
    found: list[Span] = []
    is_open = False
    for word, tag in enumerate(tags):
        prefix, _, label = names[tag].partition("-")
        if is_open and prefix in ("I", "E") and label == found[-1][2]:
            found[-1] = (found[-1][0], word + 1, label)
        elif prefix != OUTSIDE:
            found.append((word, word + 1, label))
        is_open = prefix in ("B", "I")
    return found
