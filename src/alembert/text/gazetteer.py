"""Find the terms of lexicons in text.

In: lexicons (`lexicon`), then texts. Out: `TermMatch(start, end, label, concepts)` with offsets of the original text.
The leftmost match wins, then the longest; where two lexicons have the same term, the first lexicon, unless the lexicons are
looked up apart. Terms are matched between word borders, except Chinese and Japanese ones, which have none.

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
    pause_garbage_collection,
    strip_hyphens,
)
from alembert.text.stop_words import STOP_WORDS
from alembert.text.trie import Trie
from alembert.text.wordhash import HYPHENS, WINDOW, IndexArray, find_split_point, fold_case, hash_words

_OVERLAP = 4 * MAX_TERM_LENGTH
_TEXT_SEPARATOR = "\n\n"  # wider than the one space or hyphen that a term may span
_MAX_LABELS = 255
_LONGEST_NUMBER = 12
_SEPARATORS = re.compile(rf"[\s{re.escape(HYPHENS)}]+")


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


_Spelling = tuple[str, int, str]
"""A term or one of its spellings, the number of its lexicon, and its concept; plain, since there are hundreds of thousands."""


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
        with pause_garbage_collection():
            return cls._build(lexicons, _StopFilter.from_lists(stop, keep, ordinary))

    @classmethod
    def _build(cls, lexicons: Sequence[Lexicon], stops: _StopFilter) -> tuple[Gazetteer, Iterator[TermEntries]]:
        if len(lexicons) > _MAX_LABELS:
            raise BadSetting(f"{len(lexicons)} lexicons were given; at most {_MAX_LABELS} can be matched at once.")
        rows = sum(len(lexicon.terms) for lexicon in lexicons)
        terms = list(_select_terms(lexicons, stops))
        spellings = [
            (text, order, concept)
            for term, order, concept in terms
            for text in (list_spellings(term) if "," in term else (term,))  # most calls have nothing to do
        ]
        trie, ends = _build_trie([text for text, _, _ in spellings])
        built = GazetteerCounts(rows, rows - len(terms), len(spellings) - len(terms))
        labels = tuple(lexicon.label for lexicon in lexicons)
        entries, numbers = _group_entries(spellings, ends, len(trie.final))
        return cls(labels, trie, entries, built), _terms(terms, labels, numbers)

    def find(self, text: str, seen: set[int] | None = None) -> list[TermMatch]:
        """Find the terms of a text, in order, none overlapping another; `seen` gets the numbers of their entries."""
        matches: list[TermMatch] = []
        free_from = 0
        for start, stop, node in self._candidates(text):
            if free_from <= start and (entry := self._entry(node, text[start:stop])) is not None:
                free_from = stop
                if seen is not None:
                    seen.add(entry)
                matches.append(self._match(start, stop, entry))
        return matches

    def find_apart(self, text: str) -> list[TermMatch]:
        """Find the terms of each lexicon as if it were alone: matches of one do not overlap, those of several may."""
        matches: list[TermMatch] = []
        free_from = [0] * len(self.labels)
        for start, stop, node in self._candidates(text):
            surface = text[start:stop]
            for entry in range(self.entries.first[node], self.entries.first[node + 1]):
                label = self.entries.labels[entry]
                if free_from[label] <= start and self._agrees(entry, surface):
                    free_from[label] = stop
                    matches.append(self._match(start, stop, entry))
        return matches

    def find_all(
        self, texts: Sequence[str], seen: set[int] | None = None, *, apart: bool = False
    ) -> list[list[TermMatch]]:
        """Find the terms of many texts, which is several times faster than one call for each short text."""
        borders = np.cumsum([len(text) + len(_TEXT_SEPARATOR) for text in texts])
        joined = _TEXT_SEPARATOR.join(texts)
        matches = self.find_apart(joined) if apart else self.find(joined, seen)
        owners = np.searchsorted(borders, [match.start for match in matches], side="right")
        matches_per_text: list[list[TermMatch]] = [[] for _ in texts]
        shifts = [0, *borders.tolist()]
        for owner, (start, end, label, concepts) in zip(owners.tolist(), matches, strict=True):
            shift = shifts[owner]
            matches_per_text[owner].append(TermMatch(start - shift, end - shift, label, concepts))
        return matches_per_text

    def _candidates(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield start, end and node of all terms, whatever their case, from left to right and the longest first."""
        begin = 0
        while begin < len(text):
            end = begin + WINDOW
            cut = len(text) if end >= len(text) else find_split_point(text, end - _OVERLAP)
            words = hash_words(text[begin:end])
            positions, depths, nodes = self.trie.walk(words)
            order = np.lexsort((-depths, positions))
            order = order[words.starts[positions[order]] < cut - begin]
            starts = words.starts[positions[order]] + begin
            ends = words.ends[positions[order] + depths[order] - 1] + begin
            yield from zip(starts.tolist(), ends.tolist(), nodes[order].tolist(), strict=True)
            begin = cut

    def _match(self, start: int, stop: int, entry: int) -> TermMatch:
        return TermMatch(start, stop, self.labels[self.entries.labels[entry]], self.entries.concepts[entry])

    def _entry(self, node: int, surface: str) -> int | None:
        """Choose the first entry of a node whose case rule allows the surface."""
        entries = range(self.entries.first[node], self.entries.first[node + 1])
        return next((entry for entry in entries if self._agrees(entry, surface)), None)

    def _agrees(self, entry: int, surface: str) -> bool:
        """Return whether the case rule of an entry allows the surface."""
        rule = self.entries.cases[entry]
        return rule == CASE_FREE or case_agrees(rule, self.entries.surfaces[entry], surface)


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
        """Return whether a term of at most the longest length is left out."""
        key = make_stop_list_key(term)
        if key in self.exceptions:
            return False
        if len(key) == 1 or key.isdecimal() or key in self.stopped:
            return True
        return key in self.ordinary and choose_case_rule(term) == CASE_EXACT


def _select_terms(lexicons: Sequence[Lexicon], stops: _StopFilter) -> Iterator[_Spelling]:
    for order, lexicon in enumerate(lexicons):
        for term, concept in lexicon.terms:
            if len(term) > stops.longest or not stops.excludes(term):
                yield term, order, concept


def _build_trie(spellings: list[str]) -> tuple[Trie, NDArray[np.int32]]:
    """Split all spellings into words, many at a time, and build their trie."""
    hashes, lengths = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
    for begin in range(0, len(spellings), 4096):
        texts = spellings[begin : begin + 4096]
        words = hash_words("\n".join(texts))
        borders = np.cumsum([len(text) + 1 for text in texts])
        owner = np.searchsorted(borders, words.starts, side="right")
        hashes.append(words.hashes)
        lengths.append(np.bincount(owner, minlength=len(texts)))
    return Trie.from_words(np.concatenate(hashes), np.concatenate(lengths))


def _terms(terms: list[_Spelling], labels: Sequence[str], numbers: Sequence[int]) -> Iterator[TermEntries]:
    """Yield each term with the entries of its spellings, whose numbers are in the same order."""
    rest = iter(numbers)
    for term, order, _ in terms:
        yield TermEntries(labels[order], term, tuple(islice(rest, len(list_spellings(term)))))


def _group_entries(
    spellings: list[_Spelling], ends: NDArray[np.int32], nodes: int
) -> tuple[TrieEntries, Sequence[int]]:
    """Group the spellings that match alike (same words, lexicon and case); return also the group of each spelling."""
    orders = np.array([order for _, order, _ in spellings], np.int64)
    rules = np.array([choose_case_rule(text) for text, _, _ in spellings], np.int64)
    surfaces, surface_of = _number_surfaces(spellings, rules)
    first_of, group_of = _number_groups(ends.astype(np.int64), orders, rules, surface_of)
    first = np.searchsorted(ends[first_of], np.arange(nodes + 1)).astype(np.int32)
    entries = TrieEntries(
        first=array("i", first.tobytes()),
        labels=orders[first_of].astype(np.uint8).tobytes(),
        cases=rules[first_of].astype(np.uint8).tobytes(),
        surfaces=[surfaces[number] for number in surface_of[first_of].tolist()],
        concepts=_collect_concepts(spellings, group_of, len(first_of)),
    )
    return entries, group_of


def _number_surfaces(spellings: list[_Spelling], rules: IndexArray) -> tuple[list[str], IndexArray]:
    """Number the spellings whose case matters, as `case_agrees` compares them; all others are number 0."""
    numbers = {"": 0}
    surface_of = np.zeros(len(spellings), np.int64)
    for place in np.flatnonzero(rules).tolist():
        surface_of[place] = numbers.setdefault(strip_hyphens(spellings[place][0]), len(numbers))
    return list(numbers), surface_of


def _number_groups(nodes: IndexArray, *others: IndexArray) -> tuple[IndexArray, list[int]]:
    """Number the distinct lines of columns; return where each number occurs first, and the number of each line.

    Numbers are in the order of nodes, then of lexicons, then of the first occurrence.
    """
    columns = (nodes, *others)
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(len(order), bool)
    is_new[:1] = True
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    first_of = order[is_new]  # the sort is stable
    rank = np.lexsort((first_of, others[0][first_of], nodes[first_of]))
    number_of = np.empty(len(rank), np.int64)
    number_of[rank] = np.arange(len(rank))
    group_of = np.empty(len(order), np.int64)
    group_of[order] = number_of[np.cumsum(is_new) - 1]
    return first_of[rank], group_of.tolist()


def _collect_concepts(spellings: list[_Spelling], group_of: list[int], groups: int) -> list[tuple[str, ...]]:
    """List the concepts of each group, each once."""
    concepts: list[tuple[str, ...]] = [()] * groups
    alone: dict[str, tuple[str, ...]] = {}  # one tuple for all spellings of a concept
    named = ((concept, group) for (_, _, concept), group in zip(spellings, group_of, strict=True) if concept)
    for concept, group in named:
        if concept not in concepts[group]:
            concepts[group] += alone.setdefault(concept, (concept,))
    return concepts
