"""Extend a WordPiece vocabulary so that chosen words become one token each.

In: a tokenizer, the `WordCounts` of a corpus, and the number of terms. Out: an `Extension`: the new tokenizer, the
old pieces that each new one replaces, and a comparison of all segmentations. New entries are part of WordPiece itself,
never added tokens, which would split words that merely contain them. A WordPiece entry is one word between white space
and punctuation, so "IL-6" cannot be one piece; each word of a longer term becomes one piece.

Candidates are words inside entities, ranked by the pieces saved there, and their inflected forms ("neutrophils"
beside "neutrophil"); or any word of the corpus, ranked by all pieces saved. WordPiece takes the longest match, so a new
entry "braf" also changes words that begin with it. In most, only the term's own pieces are joined ("bra ##f ##v ##600"
becomes "braf ##v ##600"); in others the rest is segmented differently ("co ##valent" becomes "cov ##ale ##nt").
Occurrences of the latter are subtracted from what a candidate saves. All changed words are counted, and the most
frequent listed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from alembert.errors import BadInput, BadSetting
from alembert.text.segmentation import (
    Int64Array,
    SegmentationComparison,
    Segmentations,
    compare_segmentations,
    segment_words,
)
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import MAX_WORD_CHARACTERS, TokenizerParts
from alembert.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from alembert.text.word_counts import WordCounts, WordSplitter

_UNUSED = re.compile(r"\[unused\d+\]")
_SHORTEST_STEM = 5
_LONGEST_ENDING = 3
_ROUNDS = 6
_CANDIDATES_PER_TERM = 4
"""Candidates examined first for each term, since some will disturb more than they save."""


@dataclass(frozen=True, kw_only=True)
class ExtendSettings:
    """What to add."""

    terms: int
    """How many words become one piece each."""
    min_count: int = 2
    """Words that occur less often are no candidates."""
    any_word: bool = False
    """Whether words outside entities are candidates too."""
    strict: bool = False
    """Whether to leave out every candidate that would change another word of the corpus."""
    reuse_unused: bool = False
    """Whether to take the places of pieces such as [unused5] before new ones are appended."""


@dataclass(frozen=True)
class TermCandidate:
    """A word that is not one piece yet."""

    word: str
    count: int
    pieces: int
    weight: int = 0
    """Occurrences that count in the ranking: those inside entities, or all."""

    @property
    def saved(self) -> int:
        """Pieces saved over the whole corpus."""
        return self.count * (self.pieces - 1)

    @property
    def rank_score(self) -> int:
        """The ranking criterion; an unknown word saves nothing and is ranked as if it had two pieces."""
        return self.weight * max(1, self.pieces - 1)


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new pieces."""

    tokenizer: Tokenizer
    sources: Mapping[int, tuple[int, ...]]
    """Id of each new piece -> ids of the pieces that its word had before."""
    terms: tuple[TermCandidate, ...]
    forced: int
    """How many of the terms come from the user's list."""
    several_words: int
    """Terms of the user's list with more than one word, which cannot be one piece."""
    proof: SegmentationComparison


@dataclass(frozen=True)
class RequiredTerms:
    """The words of a user's list of terms."""

    words: tuple[str, ...] = ()
    several: int = 0

    @classmethod
    def from_terms(cls, terms: Iterable[str], splitter: WordSplitter) -> RequiredTerms:
        """Split terms into words as the tokenizer does; punctuation and single characters are left out.

        >>> from alembert.text.tokenizer_files import TokenizerSettings
        >>> RequiredTerms.from_terms(["IL-6", "BRAF"], WordSplitter(TokenizerSettings(do_lower_case=True)))
        RequiredTerms(words=('il', 'braf'), several=1)
        """
        split = [splitter.split(term) for term in terms]
        words = dict.fromkeys(word for term in split for word in term if 1 < len(word) <= MAX_WORD_CHARACTERS)
        return cls(tuple(words), sum(len(term) > 1 for term in split))


def extend(
    tokenizer: Tokenizer,
    word_counts: WordCounts,
    settings: ExtendSettings,
    forced: RequiredTerms | None = None,
    held_out: WordCounts | None = None,
) -> Extension:
    """Choose terms from one part of a corpus, add them, and compare the segmentation of all words of both parts."""
    if not word_counts.words:
        raise BadInput("The corpus has no words, so there is nothing to choose terms from.")
    forced = forced or RequiredTerms()
    whole = word_counts if held_out is None else word_counts.merge(held_out)
    words = sorted({*whole.words, *forced.words})
    segmentations = segment_words(tokenizer, words)
    required = [
        c for c in _make_candidates(forced.words, word_counts, segmentations) if c.word not in tokenizer.vocabulary
    ]
    # Held-out documents do not influence the choice, unless none of their words may change.
    side_effects = _SideEffects(
        tokenizer, whole if settings.strict else word_counts, segmentations, joined_too=settings.strict
    )
    chosen = (*required, *_choose(word_counts, segmentations, settings, required, side_effects))
    extended = add_vocabulary_terms(tokenizer, [term.word for term in chosen], reuse_unused=settings.reuse_unused)
    positions = {word: position for position, word in enumerate(words)}
    after = segment_words(extended, words)
    counts = {word: whole.words.get(word, 0) for word in words}
    return Extension(
        tokenizer=extended,
        sources={extended.id_of(term.word): segmentations.get_ids(positions[term.word]) for term in chosen},
        terms=chosen,
        forced=len(required),
        several_words=forced.several,
        proof=compare_segmentations(
            (tokenizer, segmentations), (extended, after), counts, terms=frozenset(term.word for term in chosen)
        ),
    )


def add_vocabulary_terms(tokenizer: Tokenizer, terms: Sequence[str], *, reuse_unused: bool = False) -> Tokenizer:
    """Add words to WordPiece; every old piece keeps its id.

    >>> from alembert.text.vocabulary import SpecialTokens
    >>> old = Tokenizer.from_vocabulary(Vocabulary((*SpecialTokens().roles().values(), "br", "##af")), lowercase=True)
    >>> new = add_vocabulary_terms(old, ["braf"])
    >>> new.tokens(new.encode("BRAF", add_special_tokens=False).ids)
    ['braf']
    """
    parts = tokenizer.parts
    pieces = list(parts.vocabulary.pieces)
    slots = [i for i, piece in enumerate(pieces) if reuse_unused and _UNUSED.fullmatch(piece)]
    for slot, term in zip(slots, terms, strict=False):
        pieces[slot] = term
    pieces += terms[len(slots) :]
    # Tokens outside WordPiece move into it, which keeps their ids below those of the new pieces.
    vocabulary = Vocabulary(tuple(pieces), parts.vocabulary.special)
    added = tuple(token for token in parts.added if token.content in vocabulary)
    return Tokenizer(TokenizerParts(vocabulary, parts.settings, added))


def rank_candidates(
    word_counts: WordCounts, segmentations: Segmentations, *, min_count: int = 2, any_word: bool = False
) -> list[TermCandidate]:
    """List the words that are split or unknown, the best candidates first."""
    weights = word_counts.words if any_word else _inside_entities(word_counts)
    candidates = [
        replace(candidate, weight=weights[candidate.word])
        for candidate in _make_candidates(segmentations.words, word_counts, segmentations, only_split=True)
        if candidate.count >= min_count and weights.get(candidate.word) and _is_term(candidate.word)
    ]
    return sorted(candidates, key=lambda candidate: (-candidate.rank_score, candidate.word))


def _inside_entities(word_counts: WordCounts) -> dict[str, int]:
    """Count words inside entities; an inflected form that no lexicon has gets the share of its stem."""
    inside = word_counts.mention_words()
    weights = {word: min(count, word_counts.words.get(word, 0)) for word, count in inside.items()}
    for word, count in word_counts.words.items():
        if word not in inside and (stem := _stem(word, inside)):
            weights[word] = count * weights[stem] // max(1, word_counts.words.get(stem, 0))
    return weights


def _stem(word: str, words: Container[str]) -> str | None:
    """Find one of the words that this one extends by a few letters."""
    stems = (word[:-ending] for ending in range(1, _LONGEST_ENDING + 1))
    return next((stem for stem in stems if len(stem) >= _SHORTEST_STEM and stem in words), None)


def _is_term(word: str) -> bool:
    return len(word) <= MAX_WORD_CHARACTERS and any(character.isalpha() for character in word)


def _make_candidates(
    words: Iterable[str], word_counts: WordCounts, segmentations: Segmentations, *, only_split: bool = False
) -> list[TermCandidate]:
    positions = {word: position for position, word in enumerate(segmentations.words)}
    sizes, is_split = segmentations.sizes.tolist(), ((segmentations.sizes > 1) | segmentations.unknown).tolist()
    return [
        TermCandidate(word, word_counts.words.get(word, 0), sizes[positions[word]])
        for word in words
        if is_split[positions[word]] or not only_split
    ]


def _choose(
    word_counts: WordCounts,
    segmentations: Segmentations,
    settings: ExtendSettings,
    required: Sequence[TermCandidate],
    side_effects: _SideEffects,
) -> list[TermCandidate]:
    count = settings.terms - len(required)
    if count < 0:
        raise BadSetting(
            f"The list of terms holds {len(required):,} words that are not whole yet, more than the {settings.terms:,} "
            "terms asked for. Ask for more terms, or shorten the list."
        )
    chosen_words = {term.word for term in required}
    ranked = rank_candidates(word_counts, segmentations, min_count=settings.min_count, any_word=settings.any_word)
    free = [candidate for candidate in ranked if candidate.word not in chosen_words]
    chosen = _choose_iteratively(
        free[: _CANDIDATES_PER_TERM * count], count, chosen_words, side_effects, strict=settings.strict
    )
    if len(chosen) < count:
        chosen = _choose_iteratively(free, count, chosen_words, side_effects, strict=settings.strict)
    if len(chosen) < count:
        raise BadSetting(_too_few(settings, len(chosen) + len(required)))
    return chosen


def _choose_iteratively(
    pool: Sequence[TermCandidate], count: int, chosen_words: set[str], side_effects: _SideEffects, *, strict: bool
) -> list[TermCandidate]:
    """Choose repeatedly: how much a term disturbs depends on the other chosen terms."""
    chosen = list(pool[:count])
    for _ in range(1 if strict else _ROUNDS):
        beside = chosen_words if strict else chosen_words | {candidate.word for candidate in chosen}
        net = {c.word: _compute_net_saving(c, side_effects.count(c.word, beside), strict) for c in pool}
        useful = [candidate for candidate in pool if net[candidate.word] > 0]
        best = sorted(useful, key=lambda candidate: (-net[candidate.word], candidate.word))[:count]
        if best == chosen:
            break
        chosen = best
    return chosen


def _compute_net_saving(candidate: TermCandidate, disturbed: int, strict: bool) -> float:
    if strict and disturbed:
        return -math.inf
    return candidate.rank_score - disturbed


def _too_few(settings: ExtendSettings, available: int) -> str:
    where = "The corpus" if settings.any_word else "The entities of the corpus"
    advice = "" if settings.any_word else " With any word of the corpus as a candidate (--any-word) there may be more."
    if not available:
        return (
            f"{where} can give no new term that occurs {settings.min_count} times or more and saves more than it disturbs. "
            f"Lower --min-count, or give another lexicon.{advice}"
        )
    return (
        f"{where} can give {available:,} new terms that occur {settings.min_count} times or more and save more than they "
        f"disturb; {settings.terms:,} were asked for. Ask for at most {available:,}.{advice}"
    )


class _SideEffects:
    """Counts the occurrences of other words that a new piece would split differently."""

    def __init__(
        self, tokenizer: Tokenizer, word_counts: WordCounts, segmentations: Segmentations, *, joined_too: bool
    ) -> None:
        self._lengths = [len(piece.removeprefix(CONTINUATION_PREFIX)) for piece in tokenizer.vocabulary]
        self._words, self._segmentations = segmentations.words, segmentations
        self._first: Int64Array = np.where(
            segmentations.unknown, 0, np.array(self._lengths, dtype=np.int64)[segmentations.firsts]
        )
        self._counts = word_counts.words
        self._joined_too = joined_too
        self._cache: dict[str, list[str]] = {}

    def count(self, term: str, beside: Container[str]) -> int:
        """Count the occurrences of words that the term disturbs and that are no terms themselves."""
        if term not in self._cache:
            self._cache[term] = list(self._disturbed(term))
        return sum(self._counts.get(word, 0) for word in self._cache[term] if word not in beside)

    def _disturbed(self, term: str) -> Iterator[str]:
        begin = bisect_left(self._words, term)
        end = bisect_left(self._words, term + "\U0010ffff", lo=begin)
        # A word whose first piece is longer than the term keeps that piece.
        for position in (np.flatnonzero(self._first[begin:end] < len(term)) + begin).tolist():
            word = self._words[position]
            if word != term and (self._joined_too or not self._has_border(position, len(term))):
                yield word

    def _has_border(self, position: int, offset: int) -> bool:
        """Whether a word is split at this offset already, so that the rest of it stays the same."""
        return offset in accumulate(self._lengths[number] for number in self._segmentations.get_ids(position))
