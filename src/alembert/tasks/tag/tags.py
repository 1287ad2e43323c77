"""Words of a text as a tagger sees them, and entities as tags of words.

A word is what BERT's own rules make one before WordPiece: letters and digits between spaces and punctuation, a single
punctuation mark, a single Chinese character. Tags stand at the first piece of each word. Entities are spans of
characters and become ranges of words; one that begins or ends inside a word has no such range, and is counted.

`TagScheme` reads the names of a head that was trained elsewhere as tags of our own. In: the names of its outputs, in
any order and spelling: `B-gene`, `I_gene`, `U-gene`, `gene`, `NOUN`, `LABEL_3`. Out: for each the tag that means the
same here (`B-gene`, `I-gene`, `S-gene`, `I-gene`, `B-NOUN`, `I-LABEL_3`, `O`), so that one pair of functions turns
words into tags and back. A name without a prefix continues an entity of the same name beside it, as in the pipelines of
transformers; where there is no `O` either, every word is an entity of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.text.tokenizer import StackedPieces

# W words


SchemeName = Literal["bio", "bioes"]
LabelledSpan = tuple[int, int, str]
"""Start, end and label: of characters, or of words where it is said so."""
OUTSIDE = "O"
UNTAGGED = -1
"""Stands for the tag of a word outside of all entities, where a head has no O."""


@dataclass(frozen=True, eq=False)
class WordOffsets:
    """Where the words of a text are, in pieces and in characters."""

    pieces_W: npt.NDArray[np.int64]
    """The first piece of each word, counted without special tokens."""
    starts_W: npt.NDArray[np.int64]
    ends_W: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pieces_W)


def find_words_of_texts(pieces: StackedPieces) -> list[WordOffsets]:
    """Find the words of each text."""
    is_first_N = np.ones(len(pieces.words_N), np.bool_)
    is_first_N[1:] = pieces.words_N[1:] != pieces.words_N[:-1]
    text_starts = pieces.borders[:-1]
    is_first_N[text_starts[text_starts < len(is_first_N)]] = True
    first_W = np.flatnonzero(is_first_N)
    borders = np.searchsorted(first_W, pieces.borders)
    starts_W = pieces.starts_N[first_W]
    ends_W = pieces.ends_N[np.append(first_W, len(is_first_N))[1:] - 1]
    pieces_W = first_W - np.repeat(text_starts, np.diff(borders))
    return [
        WordOffsets(pieces_W[begin:end], starts_W[begin:end], ends_W[begin:end])
        for begin, end in pairwise(borders.tolist())
    ]


def to_word_ranges(spans: Iterable[LabelledSpan], words: WordOffsets) -> tuple[list[LabelledSpan], int]:
    """Turn spans of characters into ranges of words (end not included); count those that have none."""
    first = {start: number for number, start in enumerate(words.starts_W.tolist())}
    after = {end: number + 1 for number, end in enumerate(words.ends_W.tolist())}
    ranges, lost = [], 0
    for start, end, label in spans:
        if start in first and end in after and first[start] < after[end]:
            ranges.append((first[start], after[end], label))
        else:
            lost += 1
    return ranges, lost


def drop_overlaps(ranges: Iterable[LabelledSpan]) -> tuple[list[LabelledSpan], int]:
    """Keep the longest of ranges that overlap, the first of equally long ones; count the others.

    >>> drop_overlaps([(0, 2, "a"), (1, 2, "b"), (2, 3, "c")])
    ([(0, 2, 'a'), (2, 3, 'c')], 1)
    """
    kept: list[LabelledSpan] = []
    taken: set[int] = set()
    spans = list(ranges)
    for start, end, label in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            kept.append((start, end, label))
    return sorted(kept), len(spans) - len(kept)


def tag_names(types: Sequence[str], scheme: SchemeName) -> tuple[str, ...]:
    """Name all tags of a scheme.

    >>> tag_names(["Disease"], "bio")
    ('O', 'B-Disease', 'I-Disease')
    """
    prefixes = "BI" if scheme == "bio" else "BIES"
    return (OUTSIDE, *(f"{prefix}-{label}" for label in types for prefix in prefixes))


def to_tags(ranges: Iterable[LabelledSpan], count: int, names: Sequence[str]) -> npt.NDArray[np.int64]:
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


def from_tags(
    tags: Sequence[int] | npt.NDArray[np.int64], names: Sequence[str], starts: Collection[int] = ()
) -> list[LabelledSpan]:
    """Read ranges of words from the numbers of tags: a range goes on with I or E of its own type, until E, S or O.

    Tags that break their scheme are read as the pipelines of transformers read them: an I that continues nothing begins
    a range. Of texts that stand one after the other, `starts` are the first words: no range goes on there.

    >>> from_tags([1, 2, 0, 1, 1, 0, 2], ("O", "B-x", "I-x"))
    [(0, 2, 'x'), (3, 4, 'x'), (4, 5, 'x'), (6, 7, 'x')]
    >>> from_tags([1, 2, 2], ("O", "B-x", "I-x"), starts={1})
    [(0, 1, 'x'), (1, 3, 'x')]
    """
    parts = [name.partition("-") for name in names]
    tags_W = np.asarray(tags, np.int64)
    # Most words are outside, and are never looked at one by one.
    inside_W = np.flatnonzero(np.array([prefix != OUTSIDE for prefix, _, _ in parts])[tags_W])
    spans: list[LabelledSpan] = []
    open_until = -1
    for word, tag in zip(inside_W.tolist(), tags_W[inside_W].tolist(), strict=True):
        prefix, _, label = parts[tag]
        if word == open_until and prefix in ("I", "E") and label == spans[-1][2] and word not in starts:
            spans[-1] = (spans[-1][0], word + 1, label)
        else:
            spans.append((word, word + 1, label))
        open_until = word + 1 if prefix in ("B", "I") else -1
    return spans


DEFAULT_TYPE: Final = "entity"
"""The type of tags that are prefixes alone: B, I, O."""
_PREFIXES: Final = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
"""Prefix of any scheme -> the one of BIOES that means the same."""
_DEFAULT_LABEL: Final = re.compile(r"LABEL_\d+")


@dataclass(frozen=True)
class TagScheme:
    """What the outputs of a head mean."""

    name: str
    """How people call it: BIO, IO, BIOES, BILOU, BMES, or `one label a word`."""
    tags: tuple[str, ...]
    """For each output: O, or B-, I-, E- or S- and the type."""

    @property
    def types(self) -> tuple[str, ...]:
        """The types of entities, in the order of the outputs."""
        return tuple(dict.fromkeys(tag[2:] for tag in self.tags if tag != OUTSIDE))

    @property
    def is_every_token(self) -> bool:
        """Whether each word is an entity of its own, as with parts of speech."""
        return self.name == _EVERY_TOKEN

    @classmethod
    def from_names(cls, names: Sequence[str]) -> TagScheme:
        """Recognise the scheme of a head by the names of its outputs.

        >>> TagScheme.from_names(["B_gene", "O", "I_gene"])
        TagScheme(name='BIO', tags=('B-gene', 'O', 'I-gene'))
        >>> TagScheme.from_names(["O", "gene"]).tags, TagScheme.from_names(["NOUN", "VERB"]).tags
        (('O', 'I-gene'), ('B-NOUN', 'B-VERB'))
        """
        if are_default_labels(names):
            return cls("IO", tuple(f"I-{name}" for name in names))
        inside = {name for name in names if name != OUTSIDE}
        if inside <= _PREFIXES.keys() and inside & {"B", "I"}:
            return cls(_scheme_name(inside), tuple(map(_to_untyped_tag, names)))
        for separator in "-_":
            parts = [_split_prefix(name, separator, inside) for name in names]
            used = {prefix for prefix, _ in parts if prefix}
            if used:
                return cls(_scheme_name(used), tuple(_to_bioes_tag(*part) for part in parts))
        if OUTSIDE in names:
            return cls("IO", tuple(_to_bioes_tag("", name) for name in names))
        return cls(_EVERY_TOKEN, tuple(f"B-{name}" for name in names))


def are_default_labels(names: Sequence[str]) -> bool:
    """Whether the outputs of a head have no names but the numbers that transformers gives them."""
    return all(_DEFAULT_LABEL.fullmatch(name) for name in names)


_EVERY_TOKEN: Final = "one label a word"  # noqa: S105 (no password)


def _split_prefix(name: str, separator: str, names: set[str]) -> tuple[str, str]:
    """Divide a name into prefix and type; E, S and the like are prefixes only beside a B of the same type."""
    prefix, found, label = name.partition(separator)
    is_prefix = prefix in ("B", "I") or (prefix in _PREFIXES and f"B{separator}{label}" in names)
    return (prefix, label) if found and label and is_prefix else ("", name)


def _to_bioes_tag(prefix: str, label: str) -> str:
    if not prefix:
        return label if label == OUTSIDE else f"I-{label}"
    return f"{_PREFIXES[prefix]}-{label}"


def _to_untyped_tag(name: str) -> str:
    return name if name == OUTSIDE else f"{_PREFIXES[name]}-{DEFAULT_TYPE}"


def _scheme_name(prefixes: set[str]) -> str:
    """Name a scheme by its prefixes.

    >>> _scheme_name({"B", "I"}), _scheme_name({"I"}), _scheme_name({"B", "I", "L", "U"})
    ('BIO', 'IO', 'BILOU')
    """
    if prefixes & {"L", "U"}:
        return "BILOU"
    if "M" in prefixes:
        return "BMES"
    return "BIOES" if prefixes & {"E", "S"} else "BIO" if "B" in prefixes else "IO"
