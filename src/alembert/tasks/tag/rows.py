"""Rows of the task `tag`: where documents are cut into windows, and what their right answers look like as numbers."""

# W words, C tags, K entities
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.data.token_features import TokenFeatures
from alembert.data.windows import Row, Window, compute_windows
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.tag.data import TagExample, TagSettings
from alembert.tasks.tag.tags import (
    OUTSIDE,
    LabelledSpan,
    WordOffsets,
    drop_overlaps,
    find_words,
    to_tags,
    to_word_ranges,
)
from alembert.text.sentences import split_sentences
from alembert.text.surface import PieceOffsets, SurfaceFeatures, SurfaceRows
from alembert.text.tokenizer import Encoding, Tokenizer

UNANNOTATED_TYPE: Final = -1
"""First word of a line of a span head's labels that says: entities of this type are not annotated in the row."""


@dataclass(frozen=True, eq=False)
class TagLayout:
    """Where the answers of the rows stand in the text."""

    words: WordOffsets
    first_words: tuple[int, ...]
    """The word of the first place of each row."""
    owned_words: tuple[tuple[int, int], ...]
    """Words that each row answers for."""


def cut_document(example: TagExample, words: WordOffsets, length: int, limit: int, overlap: int) -> list[Window]:
    """Cut a document of so many pieces into windows of at most `limit`, at sentences if it can be, never in a word."""
    if length <= limit:
        return compute_windows(length, limit, overlap)
    sentences = example.sentences or [start for start, _ in split_sentences(example.text)]
    breaks = words.pieces_W[np.unique(np.searchsorted(words.starts_W, sentences).clip(max=len(words) - 1))]
    solid = np.ones(length, np.bool_)
    solid[words.pieces_W] = False
    return compute_windows(length, limit, overlap, breaks.tolist(), solid)


def build_span_labels(
    ranges: Sequence[LabelledSpan], begin: int, end: int, types: Sequence[str], unknown: Collection[str]
) -> npt.NDArray[np.int64]:
    """List the entities within words `begin` to `end` (K, 3): first word, last word, type; unknown types last."""
    number_of = {label: number for number, label in enumerate(types)}
    lines = [(s - begin, e - 1 - begin, number_of[t]) for s, e, t in ranges if begin <= s and e <= end]
    lines += [(UNANNOTATED_TYPE, UNANNOTATED_TYPE, number_of[label]) for label in unknown]
    return np.array(lines, np.int64).reshape(-1, 3)


def build_allowed_tags(
    tags_W: npt.NDArray[np.int64], names: Sequence[str], unknown: Collection[str]
) -> npt.NDArray[np.bool_]:
    """Mark the tags that each word may have (W, C): its own, and outside of entities those of all unknown types."""
    allowed_WC: npt.NDArray[np.bool_] = np.arange(len(names)) == tags_W[:, None]
    is_outside_W = ~np.isin(tags_W, [number for number, name in enumerate(names) if name != OUTSIDE])
    for number, name in enumerate(names):
        if name[2:] in unknown or OUTSIDE not in names:
            allowed_WC[is_outside_W, number] = True
    return allowed_WC


def _piece_offsets(encoding: Encoding) -> PieceOffsets:
    offsets_N2 = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)
    return PieceOffsets(offsets_N2[:, 0], offsets_N2[:, 1], np.asarray(encoding.word_ids, np.int64))


def collect_mentions(examples: Sequence[TagExample]) -> frozenset[str]:
    """Collect the entities of examples, in lower case."""
    return frozenset(
        example.text[start:end].lower() for example in examples for start, end, _ in example.entities or ()
    )


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
        encodings = self.tokenizer.encode_batch([example.text for example in examples], add_special_tokens=False)
        surfaces: Iterable[SurfaceRows | None] = repeat(None)
        if self.surface is not None:
            offsets = map(_piece_offsets, encodings)
            surfaces = self.surface.compute([example.text for example in examples], offsets)
        return [self._encode(*parts) for parts in zip(examples, encodings, surfaces, strict=False)]

    def _encode(self, example: TagExample, encoding: Encoding, surface: SurfaceRows | None) -> EncodedExample:
        words = find_words(encoding)
        ids = np.asarray(encoding.ids, np.int64)
        windows = cut_document(example, words, len(ids), self.limit, min(self.settings.shared, self.limit // 2))
        ranges, lost = self._reachable(example, words)
        features = self._features(surface)
        rows, first, own = [], [], []
        for window in windows:
            owned = np.searchsorted(words.pieces_W, (window.own_start, window.own_end)).tolist()
            begin, end = owned
            if self.settings.head == "span":
                begin, end = np.searchsorted(words.pieces_W, (window.start, window.end)).tolist()
            inside = np.concatenate(([self.tokenizer.cls_id], ids[window.start : window.end], [self.tokenizer.sep_id]))
            positions = words.pieces_W[begin:end] - window.start + 1
            labels = None if ranges is None else self._labels(ranges, begin, end, len(words), example.types)
            cut = None if features is None else features.cut(window.start, window.end)
            rows.append(Row(ids=inside, positions=positions, labels=labels, features=cut))
            first.append(begin)
            own.append((owned[0], owned[1]))
        coverage = Coverage(
            examples=1,
            characters=len(example.text),
            tokens=sum(row.length for row in rows),
            windows=len(rows),
            split_examples=int(len(rows) > 1),
            unknown=int((ids == self.tokenizer.unk_id).sum()),
            gold=len(example.entities or ()) + len(example.discontinuous),
            unreachable=lost + len(example.discontinuous),
        )
        return EncodedExample(tuple(rows), coverage, TagLayout(words, tuple(first), tuple(own)))

    def _features(self, surface: SurfaceRows | None) -> TokenFeatures | None:
        """Return the features of a document; in training with how often each match is dropped."""
        if self.surface is None or surface is None:
            return None
        if self.mentions is None:
            return TokenFeatures(surface.rows_NF, self.surface.nothing_F)
        rates = (self.settings.lexicon_dropout, self.settings.known_lexicon_dropout)
        dropout_K = np.array([rates[text.lower() in self.mentions] for text in surface.surfaces], np.float32)
        return TokenFeatures(surface.rows_NF, self.surface.nothing_F, surface.matches_K3, dropout_K)

    def _reachable(self, example: TagExample, words: WordOffsets) -> tuple[list[LabelledSpan] | None, int]:
        if example.entities is None:
            return None, 0
        ranges, off_words = to_word_ranges(example.entities, words)
        if self.settings.head == "span":
            return ranges, off_words
        flat, covered = drop_overlaps(ranges)
        return flat, off_words + covered

    def _labels(
        self, ranges: list[LabelledSpan], begin: int, end: int, count: int, types: frozenset[str] | None
    ) -> npt.NDArray[Any]:
        unknown = [label for label in self.types if types is not None and label not in types]
        if self.settings.head == "span":
            return build_span_labels(ranges, begin, end, self.types, unknown)
        tags = to_tags(ranges, count, self.tags)[begin:end]
        return build_allowed_tags(tags, self.tags, unknown) if self.allows_several else tags
