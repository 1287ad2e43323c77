"""Measure how well a tokenizer fits a corpus.

In: a tokenizer and a `WordCounts`. Out: a `TokenizerReport`: pieces per word and per character, what is split or
unknown, also by label of entity, which words cost most, and what adding terms would save. All numbers are over
occurrences, not over distinct words, unless their name says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from alembert.errors import BadInput
from alembert.text.extend import TermCandidate, rank_candidates
from alembert.text.segmentation import Segmentations, segment_words
from alembert.text.tokenizer import Tokenizer
from alembert.text.word_counts import WordCounts, WordSequence

MAX_HISTOGRAM_PIECES = 8
"""Histograms count words of this many pieces or more together."""
_LISTED = 25
_STEPS = (100, 250, 500, 1000, 2000, 2700, 5000, 10_000, 20_000)


@dataclass(frozen=True)
class EntityReport:
    """The entities of one label."""

    mentions: int
    pieces: int
    split: int
    """Mentions in which at least one word is split."""
    unknown: int
    """Mentions with an unknown word."""
    histogram: tuple[int, ...]
    """Mentions of 1, 2, ... pieces; the last number counts all longer ones."""


@dataclass(frozen=True)
class PieceSaving:
    """What adding the best terms would save."""

    terms: int
    pieces: int
    share: float
    """Of all pieces of the corpus."""


@dataclass(frozen=True)
class TokenizerReport:
    """The numbers of one tokenizer on one corpus."""

    vocabulary: int
    lowercase: bool
    documents: int
    characters: int
    words: int
    distinct_words: int
    forgotten_words: int
    pieces: int
    split: int
    unknown: int
    unused_pieces: int
    histogram: tuple[int, ...]
    entities: Mapping[str, EntityReport]
    costly: tuple[TermCandidate, ...]
    """The split words with the most pieces in total."""
    strange: tuple[TermCandidate, ...]
    """The most frequent unknown words."""
    savings: tuple[PieceSaving, ...]
    """For increasing numbers of terms, without the few words that a term disturbs."""

    @property
    def pieces_per_word(self) -> float:
        return self.pieces / self.words

    @property
    def pieces_per_character(self) -> float:
        return self.pieces / self.characters

    @property
    def mentions(self) -> int:
        return sum(entity.mentions for entity in self.entities.values())

    @property
    def split_mentions(self) -> int:
        return sum(entity.split for entity in self.entities.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        rates = {"pieces_per_word": self.pieces_per_word, "pieces_per_character": self.pieces_per_character}
        return {**asdict(self), **{name: round(value, 5) for name, value in rates.items()}}


def build_tokenizer_report(tokenizer: Tokenizer, word_counts: WordCounts) -> TokenizerReport:
    """Measure a tokenizer on a corpus."""
    if not word_counts.words:
        raise BadInput("The corpus has no words, so there is nothing to measure.")
    words = sorted({*word_counts.words, *word_counts.mention_words()})
    segmentations = segment_words(tokenizer, words)
    counts = np.array([word_counts.words.get(word, 0) for word in words], dtype=np.int64)
    pieces = int((counts * segmentations.sizes).sum())
    ranked = rank_candidates(word_counts, segmentations, any_word=True)
    return TokenizerReport(
        vocabulary=tokenizer.vocab_size,
        lowercase=tokenizer.lowercase,
        documents=word_counts.documents,
        characters=word_counts.characters,
        words=word_counts.total,
        distinct_words=len(word_counts.words),
        forgotten_words=word_counts.forgotten,
        pieces=pieces,
        split=int(counts[segmentations.sizes > 1].sum()),
        unknown=int(counts[segmentations.unknown].sum()),
        unused_pieces=tokenizer.vocab_size - len(np.unique(segmentations.ids)),
        histogram=_histogram(dict(enumerate(np.bincount(segmentations.sizes, weights=counts).astype(int).tolist()))),
        entities=_entity_fits(word_counts, segmentations),
        costly=tuple([term for term in ranked if term.pieces > 1][:_LISTED]),
        strange=tuple([term for term in ranked if term.pieces == 1][:_LISTED]),
        savings=_savings(_best(word_counts, segmentations, ranked), pieces),
    )


def _best(word_counts: WordCounts, segmentations: Segmentations, ranked: list[TermCandidate]) -> list[TermCandidate]:
    return rank_candidates(word_counts, segmentations) if word_counts.mentions else ranked


def _savings(ranked: list[TermCandidate], pieces: int) -> tuple[PieceSaving, ...]:
    total = np.cumsum([term.count * (term.pieces - 1) for term in ranked], dtype=np.int64)
    steps = [step for step in _STEPS if step < len(ranked)] + ([len(ranked)] if ranked else [])
    return tuple(PieceSaving(n, int(total[n - 1]), round(float(total[n - 1]) / pieces, 5)) for n in steps)


def _entity_fits(word_counts: WordCounts, segmentations: Segmentations) -> dict[str, EntityReport]:
    sizes = segmentations.table()
    unknown = {segmentations.words[position] for position in np.flatnonzero(segmentations.unknown).tolist()}
    return {label: _entity_fit(mentions, sizes, unknown) for label, mentions in word_counts.mentions.items()}


def _entity_fit(mentions: Mapping[WordSequence, int], sizes: Mapping[str, int], unknown: set[str]) -> EntityReport:
    lengths: Counter[int] = Counter()
    for words, count in mentions.items():
        lengths[sum(sizes[word] for word in words)] += count
    return EntityReport(
        mentions=sum(mentions.values()),
        pieces=sum(length * count for length, count in lengths.items()),
        split=sum(count for words, count in mentions.items() if any(sizes[word] > 1 for word in words)),
        unknown=sum(count for words, count in mentions.items() if not unknown.isdisjoint(words)),
        histogram=_histogram(lengths),
    )


def _histogram(lengths: Mapping[int, int]) -> tuple[int, ...]:
    bars = [0] * MAX_HISTOGRAM_PIECES
    for length, count in lengths.items():
        if length:
            bars[min(length, MAX_HISTOGRAM_PIECES) - 1] += count
    return tuple(bars)
