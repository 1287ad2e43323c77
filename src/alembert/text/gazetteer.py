"""Find the terms of lexicons in text.

In: lexicons (`lexicon`), then texts. Out: `TermMatch(start, end, label, concepts)` with offsets of the original text.
The leftmost match wins, then the longest; where two lexicons have the same term, the first lexicon. Terms are matched
between word borders, except Chinese and Japanese ones, which have none.

The trade-off: a trie over hashed words (`trie`, `wordhash`) instead of an automaton over characters. It needs no
further dependency, handles word borders and hyphen, plural and Greek spellings by construction, and is several times
faster (docs/lab/lexicons.md has the figures); in return a term is found only as whole words.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alembert.errors import BadSetting
from alembert.text.lexicon import (
    CASE_EXACT,
    CASE_FREE,
    MAX_TERM_LENGTH,
    Lexicon,
    case_agrees,
    choose_case_rule,
    list_spellings,
    strip_hyphens,
)
from alembert.text.stop_words import STOP_WORDS
from alembert.text.trie import Trie
from alembert.text.wordhash import HYPHENS, WINDOW, find_split_point, fold_case, hash_words

_OVERLAP = 4 * MAX_TERM_LENGTH
_TEXT_SEPARATOR = "\n\n"  # wider than the one space or hyphen that a term may span
_MAX_LABELS = 255
_LONGEST_NUMBER = 12
_SEPARATORS = re.compile(rf"[\s{re.escape(HYPHENS)}]+")


_Group = tuple[int, int, int, str]
"""Node, lexicon, case rule, and the spelling where case matters."""


class TermMatch(NamedTuple):
    """A term in a text."""

    start: int
    end: int
    label: str
    concepts: tuple[str, ...]


@dataclass(frozen=True)
class GazetteerCounts:
    """Counts of the rows of the lexicons."""

    rows: int
    stopped: int
    """Rows left out because their term is an ordinary word, a single character or a bare number."""
    turned: int
    """Spellings added for inverted names."""

    def warnings(self) -> list[str]:
        if not self.stopped:
            return []
        return [
            "terms of the lexicons that are ordinary words, single characters or bare numbers, and are not looked for: "
            f"{self.stopped:,} of {self.rows:,}"
        ]


class TermEntries(NamedTuple):
    """A term that can be matched, and the numbers by which `find_all` reports it."""

    label: str
    text: str
    entries: tuple[int, ...]


class TermSpelling(NamedTuple):
    """One spelling of a term of one lexicon."""

    text: str
    order: int
    concept: str


@dataclass(frozen=True)
class TrieEntries:
    """The entries of the trie's final nodes: parallel lists, sorted by node and then by lexicon."""

    first: array[int]
    """The first entry of each node; its entries end where those of the next node begin."""
    labels: bytes
    cases: bytes
    surfaces: list[str]
    """The spelling to compare with, empty where case is free."""
    concepts: list[tuple[str, ...]]


@dataclass(frozen=True)
class Gazetteer:
    """Lexicons prepared for matching. It can be pickled, and forked workers share its memory."""

    labels: tuple[str, ...]
    trie: Trie
    entries: TrieEntries
    counts: GazetteerCounts

    @classmethod
    def from_lexicons(
        cls,
        lexicons: Sequence[Lexicon],
        *,
        stop: Iterable[str] = STOP_WORDS,
        keep: Iterable[str] = (),
        ordinary: Iterable[str] = (),
    ) -> Gazetteer:
        """Build from lexicons in order of precedence.

        Terms in `stop` are left out, whatever their case and hyphens, unless `keep` holds them. Symbols (terms whose
        case matters) are left out also if they are spelt like a word in `ordinary` (`stop_words.find_ordinary_words`).
        """
        return cls.from_lexicons_with_terms(lexicons, stop=stop, keep=keep, ordinary=ordinary)[0]

    @classmethod
    def from_lexicons_with_terms(
        cls,
        lexicons: Sequence[Lexicon],
        *,
        stop: Iterable[str] = STOP_WORDS,
        keep: Iterable[str] = (),
        ordinary: Iterable[str] = (),
    ) -> tuple[Gazetteer, Iterator[TermEntries]]:
        """Build, and also return the terms that can be matched, to find those that never are."""
        if len(lexicons) > _MAX_LABELS:
            raise BadSetting(f"{len(lexicons)} lexicons were given; at most {_MAX_LABELS} can be matched at once.")
        rows = sum(len(lexicon.terms) for lexicon in lexicons)
        terms = list(_select_spellings(lexicons, _StopFilter.from_lists(stop, keep, ordinary)))
        spellings = [
            TermSpelling(text, order, concept) for term, order, concept in terms for text in list_spellings(term)
        ]
        trie, ends = _build_trie(spellings)
        built = GazetteerCounts(rows, rows - len(terms), len(spellings) - len(terms))
        labels = tuple(lexicon.label for lexicon in lexicons)
        entries, numbers = _group_entries(spellings, ends, len(trie.final))
        return cls(labels, trie, entries, built), _terms(terms, labels, numbers)

    def find(self, text: str, seen: set[int] | None = None) -> list[TermMatch]:
        """Find the terms of a text, in order, none overlapping another; `seen` gets the numbers of their entries."""
        matches: list[TermMatch] = []
        begin = 0
        while begin < len(text):
            end = begin + WINDOW
            last = end >= len(text)
            cut = len(text) if last else find_split_point(text, end - _OVERLAP)
            matches += self._find_in(text, begin, end, cut, seen)
            begin = max(cut, matches[-1].end if matches else 0)
        return matches

    def find_all(self, texts: Sequence[str], seen: set[int] | None = None) -> list[list[TermMatch]]:
        """Find the terms of many texts, which is several times faster than one call for each short text."""
        borders = np.cumsum([len(text) + len(_TEXT_SEPARATOR) for text in texts])
        matches = self.find(_TEXT_SEPARATOR.join(texts), seen)
        owners = np.searchsorted(borders, [match.start for match in matches], side="right")
        matches_per_text: list[list[TermMatch]] = [[] for _ in texts]
        shifts = [0, *borders.tolist()]
        for owner, (start, end, label, concepts) in zip(owners.tolist(), matches, strict=True):
            shift = shifts[owner]
            matches_per_text[owner].append(TermMatch(start - shift, end - shift, label, concepts))
        return matches_per_text

    def _find_in(self, text: str, begin: int, end: int, cut: int, seen: set[int] | None) -> Iterator[TermMatch]:
        """Yield the matches that start between `begin` and `cut`; they may reach up to `end`."""
        words = hash_words(text[begin:end])
        positions, depths, nodes = self.trie.walk(words)
        order = np.lexsort((-depths, positions))
        starts = (words.starts[positions[order]] + begin).tolist()
        ends = (words.ends[positions[order] + depths[order] - 1] + begin).tolist()
        free_from = begin
        for start, stop, node in zip(starts, ends, nodes[order].tolist(), strict=True):
            if free_from <= start < cut:
                entry = self._entry(node, text[start:stop])
                if entry is not None:
                    free_from = stop
                    if seen is not None:
                        seen.add(entry)
                    yield TermMatch(start, stop, self.labels[self.entries.labels[entry]], self.entries.concepts[entry])

    def _entry(self, node: int, surface: str) -> int | None:
        """Choose the first entry of a node whose case rule allows the surface."""
        entries = self.entries
        for entry in range(entries.first[node], entries.first[node + 1]):
            rule = entries.cases[entry]
            if rule == CASE_FREE or case_agrees(rule, entries.surfaces[entry], surface):
                return entry
        return None


def make_stop_list_key(term: str) -> str:
    """Normalise a term for comparison with stop lists: folded, with spaces for hyphens."""
    return _SEPARATORS.sub(" ", fold_case(term)).strip()


@dataclass(frozen=True)
class _StopFilter:
    """Decides which terms are not matched."""

    stopped: frozenset[str]
    exceptions: frozenset[str]
    ordinary: frozenset[str]
    longest: int

    @classmethod
    def from_lists(cls, stop: Iterable[str], keep: Iterable[str], ordinary: Iterable[str]) -> _StopFilter:
        stopped, exceptions, common = (frozenset(map(make_stop_list_key, words)) for words in (stop, keep, ordinary))
        return cls(stopped, exceptions, common, max([_LONGEST_NUMBER, *map(len, stopped | common)]))

    def excludes(self, term: str) -> bool:
        if len(term) > self.longest:
            return False
        key = make_stop_list_key(term)
        if key in self.exceptions:
            return False
        if len(key) == 1 or key.isdecimal() or key in self.stopped:
            return True
        return key in self.ordinary and choose_case_rule(term) == CASE_EXACT


def _select_spellings(lexicons: Sequence[Lexicon], stops: _StopFilter) -> Iterator[TermSpelling]:
    for order, lexicon in enumerate(lexicons):
        for term, concept in lexicon.terms:
            if not stops.excludes(term):
                yield TermSpelling(term, order, concept)


def _build_trie(spellings: list[TermSpelling]) -> tuple[Trie, NDArray[np.int32]]:
    """Split all spellings into words, many at a time, and build their trie."""
    hashes, lengths = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(spellings), 4096):
        texts = [row.text for row in spellings[begin : begin + 4096]]
        words = hash_words("\n".join(texts))
        borders = np.cumsum([len(text) + 1 for text in texts])
        owner = np.searchsorted(borders, words.starts, side="right")
        hashes.append(words.hashes)
        lengths.append(np.bincount(owner, minlength=len(texts)))
    return Trie.from_words(np.concatenate(hashes), np.concatenate(lengths))


def _terms(terms: list[TermSpelling], labels: Sequence[str], numbers: Sequence[int]) -> Iterator[TermEntries]:
    """Yield each term with the entries of its spellings, whose numbers are in the same order."""
    rest = iter(numbers)
    for term, order, _ in terms:
        yield TermEntries(labels[order], term, tuple(islice(rest, len(list_spellings(term)))))


def _group_entries(
    spellings: list[TermSpelling], ends: NDArray[np.int32], nodes: int
) -> tuple[TrieEntries, Sequence[int]]:
    """Group the spellings that match alike (same words, lexicon and case); return also the group of each spelling."""
    groups: dict[_Group, tuple[str, ...]] = {}
    group_of: list[_Group] = []
    alone: dict[str, tuple[str, ...]] = {"": ()}  # one tuple for all spellings of a concept
    for (text, order, concept), node in zip(spellings, ends.tolist(), strict=True):
        rule = choose_case_rule(text)
        key = (node, order, rule, strip_hyphens(text) if rule else "")
        group_of.append(key)
        concepts = groups.get(key)
        if not concepts:
            groups[key] = alone.setdefault(concept, (concept,))
        elif concept not in concepts:
            groups[key] = concepts + alone.setdefault(concept, (concept,))
    keys = sorted(groups, key=itemgetter(0, 1))
    first = np.searchsorted([key[0] for key in keys], np.arange(nodes + 1)).astype(np.int32)
    numbers = {key: number for number, key in enumerate(keys)}
    entries = TrieEntries(
        first=array("i", first.tobytes()),
        labels=bytes(key[1] for key in keys),
        cases=bytes(key[2] for key in keys),
        surfaces=[key[3] for key in keys],
        concepts=[groups[key] for key in keys],
    )
    return entries, array("i", [numbers[key] for key in group_of])
