"""Extend a WordPiece vocabulary so that chosen words become one token each.

In: a tokenizer, a `WordCounts` of the corpus, how many terms. Out: an `Extension`: the new tokenizer, the old pieces that
each new one stands for, and the proof of what changed. New entries sit in WordPiece itself, never among the added
tokens, which would cut words that merely contain them. A WordPiece entry is one word between white space and
punctuation, so "IL-6" cannot be one piece; of a term of several words, each word is made whole.

Candidates are words inside entities, ranked by the pieces saved there, and their inflected forms ("neutrophils" beside
"neutrophil"); or any word of the corpus, ranked by all pieces saved. WordPiece takes the longest match, so a new entry "braf" also changes words that begin with it. In most,
only the term's own pieces are joined ("bra ##f ##v ##600" becomes "braf ##v ##600"); in others the rest is cut anew
("co ##valent" becomes "cov ##ale ##nt"). From what a candidate
saves, the occurrences of words that it cuts anew are taken off.
All changed words are counted, and the most frequent listed.
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
"""Candidates looked at first for each term wanted, since some will disturb more than they save."""


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
        """What the ranking goes by; an unknown word saves nothing and is ranked as if it had two pieces."""
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
    already_whole: int
    """Words of the user's list that were one piece before."""
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
        """Cut terms into words as the tokenizer does; punctuation and single characters are no words here.

        >>> from alembert.text.tokenizer_files import Settings
        >>> RequiredTerms.of(["IL-6", "BRAF"], WordSplitter(Settings(do_lower_case=True)))
        Forced(words=('il', 'braf'), several=1)
        """
        split = [splitter.split(term) for term in terms]
        words = dict.fromkeys(word for term in split for word in term if 1 < len(word) <= MAX_WORD_CHARACTERS)
        return cls(tuple(words), sum(len(term) > 1 for term in split))


def extend(
    tokenizer: Tokenizer,
    census: WordCounts,
    wish: ExtendSettings,
    forced: RequiredTerms | None = None,
    held_out: WordCounts | None = None,
) -> Extension:
    """Choose terms by one part of a corpus, add them, and prove on both parts what became of every other word."""
    if not census.words:
        raise BadInput("The corpus has no words, so there is nothing to choose terms from.")
    forced = forced or RequiredTerms()
    whole = census if held_out is None else census.merge(held_out)
    words = sorted({*whole.words, *forced.words})
    cuts = segment_words(tokenizer, words)
    must = [c for c in _make_candidates(forced.words, census, cuts) if c.word not in tokenizer.vocabulary]
    # Held-out documents have no say in the choice, unless the promise is to change none of their words.
    harm = _SideEffects(tokenizer, whole if wish.strict else census, cuts, joined_too=wish.strict)
    chosen = (*must, *_choose(census, cuts, wish, must, harm))
    extended = add_vocabulary_terms(tokenizer, [term.word for term in chosen], reuse_unused=wish.reuse_unused)
    positions = {word: position for position, word in enumerate(words)}
    after = segment_words(extended, words)
    counts = {word: whole.words.get(word, 0) for word in words}
    return Extension(
        tokenizer=extended,
        sources={extended.id_of(term.word): cuts.get_ids(positions[term.word]) for term in chosen},
        terms=chosen,
        forced=len(must),
        already_whole=len(forced.words) - len(must),
        several_words=forced.several,
        proof=compare_segmentations(
            (tokenizer, cuts), (extended, after), counts, terms=frozenset(term.word for term in chosen)
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
    places = [i for i, piece in enumerate(pieces) if reuse_unused and _UNUSED.fullmatch(piece)]
    for place, term in zip(places, terms, strict=False):
        pieces[place] = term
    pieces += terms[len(places) :]
    # Tokens that stood outside WordPiece move into it, which keeps their ids below those of the new pieces.
    vocabulary = Vocabulary(tuple(pieces), parts.vocabulary.special)
    added = tuple(token for token in parts.added if token.content in vocabulary)
    return Tokenizer(TokenizerParts(vocabulary, parts.settings, added))


def rank_candidates(
    census: WordCounts, cuts: Segmentations, *, min_count: int = 2, any_word: bool = False
) -> list[TermCandidate]:
    """List the words that are split or unknown, the most worthwhile first."""
    weights = census.words if any_word else _inside_entities(census)
    found = [
        replace(candidate, weight=weights[candidate.word])
        for candidate in _make_candidates(cuts.words, census, cuts, only_cut=True)
        if candidate.count >= min_count and weights.get(candidate.word) and _is_term(candidate.word)
    ]
    return sorted(found, key=lambda candidate: (-candidate.rank_score, candidate.word))


def _inside_entities(census: WordCounts) -> dict[str, int]:
    """Count words inside entities; an inflected form that no lexicon has gets the share that its stem has."""
    inside = census.mention_words()
    weights = {word: min(count, census.words.get(word, 0)) for word, count in inside.items()}
    for word, count in census.words.items():
        if word not in inside and (stem := _stem(word, inside)):
            weights[word] = count * weights[stem] // max(1, census.words.get(stem, 0))
    return weights


def _stem(word: str, known: Container[str]) -> str | None:
    """Find a known word that this one adds a few letters to."""
    stems = (word[:-ending] for ending in range(1, _LONGEST_ENDING + 1))
    return next((stem for stem in stems if len(stem) >= _SHORTEST_STEM and stem in known), None)


def _is_term(word: str) -> bool:
    return len(word) <= MAX_WORD_CHARACTERS and any(character.isalpha() for character in word)


def _make_candidates(
    words: Iterable[str], census: WordCounts, cuts: Segmentations, *, only_cut: bool = False
) -> list[TermCandidate]:
    positions = {word: position for position, word in enumerate(cuts.words)}
    sizes, cut_words = cuts.sizes.tolist(), ((cuts.sizes > 1) | cuts.unknown).tolist()
    places = [(word, positions[word]) for word in words]
    return [
        TermCandidate(word, census.words.get(word, 0), sizes[place])
        for word, place in places
        if cut_words[place] or not only_cut
    ]


def _choose(
    census: WordCounts, cuts: Segmentations, wish: ExtendSettings, must: Sequence[TermCandidate], harm: _SideEffects
) -> list[TermCandidate]:
    wanted = wish.terms - len(must)
    if wanted < 0:
        raise BadSetting(
            f"The list of terms holds {len(must):,} words that are not whole yet, more than the {wish.terms:,} "
            "terms asked for. Ask for more terms, or shorten the list."
        )
    taken = {term.word for term in must}
    ranked = rank_candidates(census, cuts, min_count=wish.min_count, any_word=wish.any_word)
    free = [candidate for candidate in ranked if candidate.word not in taken]
    chosen = _choose_iteratively(free[: _CANDIDATES_PER_TERM * wanted], wanted, taken, harm, strict=wish.strict)
    if len(chosen) < wanted:
        chosen = _choose_iteratively(free, wanted, taken, harm, strict=wish.strict)
    if len(chosen) < wanted:
        raise BadSetting(_too_few(wish, len(chosen) + len(must)))
    return chosen


def _choose_iteratively(
    pool: Sequence[TermCandidate], wanted: int, taken: set[str], harm: _SideEffects, *, strict: bool
) -> list[TermCandidate]:
    """Choose again and again: how much a term disturbs depends on which others are chosen beside it."""
    chosen = list(pool[:wanted])
    for _ in range(1 if strict else _ROUNDS):
        beside = taken if strict else taken | {candidate.word for candidate in chosen}
        net = {c.word: _compute_net_saving(c, harm.of(c.word, beside), strict) for c in pool}
        useful = [candidate for candidate in pool if net[candidate.word] > 0]
        best = sorted(useful, key=lambda candidate: (-net[candidate.word], candidate.word))[:wanted]
        if best == chosen:
            break
        chosen = best
    return chosen


def _compute_net_saving(candidate: TermCandidate, disturbed: int, strict: bool) -> float:
    if strict and disturbed:
        return -math.inf
    return candidate.rank_score - disturbed


def _too_few(wish: ExtendSettings, found: int) -> str:
    where = "The corpus" if wish.any_word else "The entities of the corpus"
    advice = "" if wish.any_word else " With any word of the corpus as a candidate (--any-word) there may be more."
    if not found:
        return (
            f"{where} can give no new term that occurs {wish.min_count} times or more and saves more than it disturbs. "
            f"Lower --min-count, or give another lexicon.{advice}"
        )
    return (
        f"{where} can give {found:,} new terms that occur {wish.min_count} times or more and save more than they "
        f"disturb; {wish.terms:,} were asked for. Ask for at most {found:,}.{advice}"
    )


class _SideEffects:
    """How many occurrences of other words a new piece would cut differently."""

    def __init__(self, tokenizer: Tokenizer, census: WordCounts, cuts: Segmentations, *, joined_too: bool) -> None:
        self._lengths = [len(piece.removeprefix(CONTINUATION_PREFIX)) for piece in tokenizer.vocabulary]
        self._words, self._cuts = cuts.words, cuts
        self._first: Int64Array = np.where(cuts.unknown, 0, np.array(self._lengths, dtype=np.int64)[cuts.firsts])
        self._counts = census.words
        self._joined_too = joined_too
        self._known: dict[str, list[str]] = {}

    def of(self, term: str, beside: Container[str]) -> int:
        """Count the occurrences of the words that the term disturbs and that are no terms themselves."""
        if term not in self._known:
            self._known[term] = list(self._disturbed(term))
        return sum(self._counts.get(word, 0) for word in self._known[term] if word not in beside)

    def _disturbed(self, term: str) -> Iterator[str]:
        begin = bisect_left(self._words, term)
        end = bisect_left(self._words, term + "\U0010ffff", lo=begin)
        # A word whose first piece is longer than the term keeps that piece.
        for position in (np.flatnonzero(self._first[begin:end] < len(term)) + begin).tolist():
            word = self._words[position]
            if word != term and (self._joined_too or not self._has_border(position, len(term))):
                yield word

    def _has_border(self, position: int, place: int) -> bool:
        """Tell whether a word is cut at this place already, so that the rest of it stays as it is."""
        return place in accumulate(self._lengths[number] for number in self._cuts.get_ids(position))
