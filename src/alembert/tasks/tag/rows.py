"""Rows of the task `tag`: where documents are cut into windows, and what their right answers look like as numbers."""

# W words, C tags, K entities
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Row, TokenFeatures, Window, compute_windows
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.tags import (
    OUTSIDE,
    LabelledSpan,
    WordOffsets,
    drop_overlaps,
    find_words_of_texts,
    to_tags,
    to_word_ranges,
)
from alembert.text.sentences import Span
from alembert.text.surface import PieceOffsets, SurfaceFeatures, SurfaceRows
from alembert.text.tokenizer import StackedPieces, Tokenizer

UNANNOTATED_TYPE: Final = -1
"""First word of a line of a span head's labels that says: entities of this type are not annotated in the row."""
UNKNOWN_WORDS: Final = -2
"""The same in a line that says: of stretches with any word from its second to its third number nothing is known."""
_WITHOUT_START: Final = {"B": "I", "S": "E"}
"""What the first word of an entity may be as well, if the word before is unknown: the entity may begin there."""
_WITHOUT_END: Final = {"E": "I", "S": "B"}
"""What the last word may be as well, if the word after is unknown."""


@dataclass(frozen=True, eq=False)
class TagLayout:
    """Where the answers of the rows stand in the text."""

    words: WordOffsets
    first_words: tuple[int, ...]
    """The word of the first place of each row."""
    owned_words: tuple[tuple[int, int], ...]
    """Words that each row answers for."""
    first_rows: tuple[int, ...] = (0,)
    """The rows with which sequences of tags begin: sentences that were read by themselves, else the document."""

    def split_sequences(self, parts: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Join arrays over the words of each row to one for each sequence of tags."""
        borders = pairwise([*self.first_rows, len(parts)])
        joined = (parts[begin:end] for begin, end in borders if begin < end)
        return [group[0] if len(group) == 1 else np.concatenate(group) for group in joined]

    @property
    def first_words_of_sequences(self) -> list[int]:
        """The word with which each sequence of tags begins."""
        return [self.owned_words[row][0] for row in self.first_rows if row < len(self.owned_words)]


def cut_document(example: TagExample, words: WordOffsets, length: int, limit: int, overlap: int) -> list[Window]:
    """Cut a document of so many pieces into windows of at most `limit`, at sentences if it can be, never in a word."""
    if length <= limit:
        return compute_windows(length, limit, overlap)
    breaks = _find_breaks(example, words)
    return compute_windows(length, limit, overlap, breaks, _mark_continuations(words, length))


def cut_sentences(example: TagExample, words: WordOffsets, length: int, limit: int, overlap: int) -> list[list[Window]]:
    """Cut a document into its sentences; one of more than `limit` pieces has several windows, the others have one."""
    solid = _mark_continuations(words, length)
    borders = sorted({0, *_find_breaks(example, words), length})
    return [
        [
            Window(*(start + place for place in (window.start, window.end, window.own_start, window.own_end)))
            for window in compute_windows(end - start, limit, overlap, (), solid[start:end])
        ]
        for start, end in pairwise(borders)
    ]


def _find_breaks(example: TagExample, words: WordOffsets) -> list[int]:
    """Find the pieces with which sentences begin."""
    if not len(words):
        return []
    numbers = np.searchsorted(words.starts_W, example.sentence_starts).clip(max=len(words) - 1)
    breaks: list[int] = words.pieces_W[np.unique(numbers)].tolist()
    return breaks


def _mark_continuations(words: WordOffsets, length: int) -> npt.NDArray[np.bool_]:
    """Mark the pieces that go on with the word before them."""
    solid = np.ones(length, np.bool_)
    solid[words.pieces_W] = False
    return solid


def find_unknown_words(spans: Sequence[Span], words: WordOffsets) -> npt.NDArray[np.bool_]:
    """Mark the words (W) that share a character with an unknown stretch."""
    is_unknown_W = np.zeros(len(words), np.bool_)
    for start, end in spans:
        is_unknown_W |= (words.starts_W < end) & (words.ends_W > start)
    return is_unknown_W


def build_span_labels(
    ranges: Sequence[LabelledSpan],
    begin: int,
    end: int,
    types: Sequence[str],
    unknown: Collection[str],
    *,
    is_unknown_W: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """List the entities within words `begin` to `end` (K, 3): first word, last word, type; unknown types and words last.

    An entity beside an unknown word is unknown too: it may be longer.
    """
    number_of = {label: number for number, label in enumerate(types)}
    is_open_W = np.zeros(end + 1, np.bool_) if is_unknown_W is None else np.append(is_unknown_W, False)
    inside = [span for span in ranges if begin <= span[0] and span[1] <= end]
    open_ranges = [(s, e, t) for s, e, t in inside if is_open_W[max(0, s - 1) : e + 1].any()]
    lines = [(s - begin, e - 1 - begin, number_of[t]) for s, e, t in inside if (s, e, t) not in open_ranges]
    lines += [(UNANNOTATED_TYPE, UNANNOTATED_TYPE, number_of[label]) for label in unknown]
    lines += [(UNKNOWN_WORDS, s - begin, e - 1 - begin) for s, e, _ in open_ranges]
    lines += [(UNKNOWN_WORDS, word, word) for word in np.flatnonzero(is_open_W[begin:end]).tolist()]
    return np.array(lines, np.int64).reshape(-1, 3)


def build_allowed_tags(
    tags_W: npt.NDArray[np.int64],
    names: Sequence[str],
    unknown: Collection[str],
    is_unknown_W: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.bool_]:
    """Mark the tags that each word may have (W, C): its own, and outside of entities those of all unknown types.

    An unknown word may have any tag, and an entity beside it may go on there.
    """
    allowed_WC: npt.NDArray[np.bool_] = np.arange(len(names)) == tags_W[:, None]
    is_outside_W = ~np.isin(tags_W, [number for number, name in enumerate(names) if name != OUTSIDE])
    for number, name in enumerate(names):
        if name[2:] in unknown or OUTSIDE not in names:
            allowed_WC[is_outside_W, number] = True
    for word in () if is_unknown_W is None else np.flatnonzero(is_unknown_W):
        allowed_WC[word] = True
        _open_border(allowed_WC[word - 1 : word], names, _WITHOUT_END)
        _open_border(allowed_WC[word + 1 : word + 2], names, _WITHOUT_START)
    return allowed_WC


def _open_border(allowed_1C: npt.NDArray[np.bool_], names: Sequence[str], others: Mapping[str, str]) -> None:
    """Allow what a tag beside an unknown word may be as well; the row may be none, at the ends of a text."""
    for number in np.flatnonzero(allowed_1C[:1]).tolist():
        other = others.get(names[number][0], "-") + names[number][1:]
        if other in names:
            allowed_1C[0, names.index(other)] = True


def compute_tag_weights(encoded: Sequence[EncodedExample], count: int) -> tuple[float, ...]:
    """Weigh tags so that all together count the same; none if words may have several tags."""
    labels = [row.labels for read in encoded for row in read.rows if row.labels is not None]
    if any(each.ndim > 1 for each in labels):
        return ()
    counts = np.bincount(np.concatenate(labels), minlength=count).clip(min=1)
    return tuple((counts.sum() / (count * counts)).tolist())


@dataclass(frozen=True, eq=False)
class TagRowBuilder:
    """How documents become rows."""

    settings: TagSettings
    types: tuple[str, ...]
    tags: tuple[str, ...]
    tokenizer: Tokenizer
    limit: int
    """Tokens of a window at most, without special ones."""
    allows_several: bool
    """Whether the right answer for some words is one of several tags."""
    surface: SurfaceFeatures | None = None
    """What is read beside the pieces."""
    mentions: frozenset[str] | None = None
    """Entities of the training data in lower case, by which matches are dropped; none: none is."""

    def encode(self, examples: Sequence[TagExample]) -> list[EncodedExample]:
        """Encode documents; their texts go through the tokenizer at once."""
        texts = [example.text for example in examples]
        pieces = StackedPieces.of(self.tokenizer.encode_batch(texts, add_special_tokens=False))
        borders = list(pairwise(pieces.borders.tolist()))
        surfaces: Sequence[SurfaceRows | None] = [None] * len(examples)
        if self.surface is not None:
            stacks = (pieces.starts_N, pieces.ends_N, pieces.words_N)
            offsets = (PieceOffsets(*(stack[begin:end] for stack in stacks)) for begin, end in borders)
            surfaces = self.surface.compute(texts, offsets)
        whole = self._whole_rows(pieces)
        return [
            self._encode_whole(example, row, words, surface)
            if example.entities is None and begin < end <= begin + self.limit and not self._is_cut(example)
            else self._encode(example, pieces.ids_N[begin:end], words, surface)
            for example, (begin, end), row, words, surface in zip(
                examples, borders, whole, find_words_of_texts(pieces), surfaces, strict=True
            )
        ]

    def _is_cut(self, example: TagExample) -> bool:
        """Whether an example is read in sentences of which it has several."""
        return self.settings.is_by_sentence and len(example.sentence_starts) > 1

    def _cut(self, example: TagExample, words: WordOffsets, length: int) -> list[list[Window]]:
        """Cut an example into windows, those of each sequence of tags together."""
        overlap = min(self.settings.shared, self.limit // 2)
        if self._is_cut(example):
            return cut_sentences(example, words, length, self.limit, overlap)
        return [cut_document(example, words, length, self.limit, overlap)]

    def _whole_rows(self, pieces: StackedPieces) -> list[npt.NDArray[np.int64]]:
        """Put special tokens around the pieces of each text."""
        count = len(pieces.borders) - 1
        rows = np.insert(
            pieces.ids_N,
            np.repeat(pieces.borders, [1, *[2] * (count - 1), 1]) if count else [],
            np.tile([self.tokenizer.cls_id, self.tokenizer.sep_id], count),
        )
        borders = (pieces.borders + 2 * np.arange(count + 1)).tolist()
        return [rows[begin:end] for begin, end in pairwise(borders)]

    def _encode_whole(
        self, example: TagExample, ids: npt.NDArray[np.int64], words: WordOffsets, surface: SurfaceRows | None
    ) -> EncodedExample:
        """Encode a document without right answers that fits into one window, which is what most of them do."""
        features = self._features(surface)
        cut = None if features is None else features.cut(0, len(ids) - 2)
        coverage = Coverage(
            examples=1,
            characters=len(example.text),
            tokens=len(ids),
            windows=1,
            unknown=ids.tolist().count(self.tokenizer.unk_id),
            gold=len(example.discontinuous),
            unreachable=len(example.discontinuous),
        )
        row = Row(ids=ids, positions=words.pieces_W + 1, features=cut)
        return EncodedExample((row,), coverage, TagLayout(words, (0,), ((0, len(words)),)))

    def _encode(
        self, example: TagExample, ids: npt.NDArray[np.int64], words: WordOffsets, surface: SurfaceRows | None
    ) -> EncodedExample:
        sequences = self._cut(example, words, len(ids))
        ranges, lost = self._reachable(example, words, sequences)
        features = self._features(surface)
        is_unknown_W = find_unknown_words(example.unknown, words)
        rows, first, own = [], [], []
        for window in chain.from_iterable(sequences):
            owned = np.searchsorted(words.pieces_W, (window.own_start, window.own_end)).tolist()
            begin, end = owned
            if self.settings.head == "span":
                begin, end = np.searchsorted(words.pieces_W, (window.start, window.end)).tolist()
            inside = np.concatenate(([self.tokenizer.cls_id], ids[window.start : window.end], [self.tokenizer.sep_id]))
            positions = words.pieces_W[begin:end] - window.start + 1
            labels = None if ranges is None else self._labels(ranges, begin, end, example, is_unknown_W)
            cut = None if features is None else features.cut(window.start, window.end)
            rows.append(Row(ids=inside, positions=positions, labels=labels, features=cut))
            first.append(begin)
            own.append((owned[0], owned[1]))
        coverage = Coverage(
            examples=1,
            characters=len(example.text),
            tokens=sum(row.length for row in rows),
            windows=len(rows),
            split_examples=int(len(rows) > len(sequences)),
            unknown=int((ids == self.tokenizer.unk_id).sum()),
            gold=len(example.entities or ()) + len(example.discontinuous),
            unreachable=lost + len(example.discontinuous),
        )
        first_rows = accumulate(map(len, sequences[:-1]), initial=0)
        return EncodedExample(tuple(rows), coverage, TagLayout(words, tuple(first), tuple(own), tuple(first_rows)))

    def _features(self, surface: SurfaceRows | None) -> TokenFeatures | None:
        """Return the features of a document; in training with how often each match is dropped."""
        if self.surface is None or surface is None:
            return None
        if self.mentions is None:
            return TokenFeatures(surface.rows_NF, self.surface.nothing_F)
        rates = (self.settings.lexicon_dropout, self.settings.known_lexicon_dropout)
        dropout_K = np.array([rates[text.lower() in self.mentions] for text in surface.surfaces], np.float32)
        return TokenFeatures(surface.rows_NF, self.surface.nothing_F, surface.matches_K3, dropout_K)

    def _reachable(
        self, example: TagExample, words: WordOffsets, sequences: Sequence[Sequence[Window]]
    ) -> tuple[list[LabelledSpan] | None, int]:
        """Return the entities that the head can find, and how many others there are."""
        if example.entities is None:
            return None, 0
        ranges, off_words = to_word_ranges(example.entities, words)
        borders = np.searchsorted(words.pieces_W, [windows[0].start for windows in sequences[1:]])
        inside = [span for span in ranges if not ((span[0] < borders) & (borders < span[1])).any()]
        lost = off_words + len(ranges) - len(inside)
        if self.settings.head == "span":
            return inside, lost
        flat, covered = drop_overlaps(inside)
        return flat, lost + covered

    def _labels(
        self,
        ranges: list[LabelledSpan],
        begin: int,
        end: int,
        example: TagExample,
        is_unknown_W: npt.NDArray[np.bool_],
    ) -> npt.NDArray[Any]:
        unknown = [label for label in self.types if not example.annotates(label)]
        if self.settings.head == "span":
            return build_span_labels(ranges, begin, end, self.types, unknown, is_unknown_W=is_unknown_W)
        tags = to_tags(ranges, len(is_unknown_W), self.tags)
        if not self.allows_several:
            return tags[begin:end]
        return build_allowed_tags(tags, self.tags, unknown, is_unknown_W)[begin:end]
