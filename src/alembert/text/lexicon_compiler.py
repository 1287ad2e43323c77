"""Compile lexicons into the tables of a gazetteer (`term_tables`).

In: lexicons in order of precedence, and which of their terms are not looked for. Out: arrays, and counts of what was left
out. All spellings are hashed, sorted and grouped by whole-array operations: half a million terms take two to three seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alembert.text.lexicon import CASE_EXACT, Lexicon, choose_case_rule, list_spellings, strip_hyphens
from alembert.text.term_tables import MAX_SPELLINGS, GazetteerTables, StringTable, TermTable, Trie, TrieEntries
from alembert.text.wordhash import HYPHENS, IndexArray, fold_case, hash_words

_LONGEST_NUMBER = 12
_SEPARATORS = re.compile(rf"[\s{re.escape(HYPHENS)}]+")

_Spelling = tuple[str, int, str]
"""A term or one of its spellings, the number of its lexicon, and its concept; plain, since there are hundreds of thousands."""


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


def make_stop_list_key(term: str) -> str:
    """Normalise a term for comparison with stop lists: folded, with spaces for hyphens."""
    return _SEPARATORS.sub(" ", fold_case(term)).strip()


@dataclass(frozen=True)
class StopFilter:
    """Decides which terms are not matched."""

    stopped: frozenset[str]
    exceptions: frozenset[str]
    ordinary: frozenset[str]
    longest: int

    @classmethod
    def from_lists(cls, stop: Iterable[str], keep: Iterable[str], ordinary: Iterable[str]) -> StopFilter:
        stopped, exceptions, common = (frozenset(map(make_stop_list_key, words)) for words in (stop, keep, ordinary))
        return cls(stopped, exceptions, common, max([_LONGEST_NUMBER, *map(len, stopped | common)]))

    def excludes(self, term: str) -> bool:
        """Return whether a term is left out."""
        if len(term) > self.longest:
            return False
        key = make_stop_list_key(term)
        if key in self.exceptions:
            return False
        if len(key) == 1 or key.isdecimal() or key in self.stopped:
            return True
        return key in self.ordinary and choose_case_rule(term) == CASE_EXACT


def compile_lexicons(lexicons: Sequence[Lexicon], stops: StopFilter) -> tuple[GazetteerTables, GazetteerCounts]:
    """Build the tables of the terms that are looked for."""
    rows = sum(len(lexicon.terms) for lexicon in lexicons)
    terms = [
        (term, order, concept)
        for order, lexicon in enumerate(lexicons)
        for term, concept in lexicon.terms
        if not stops.excludes(term)
    ]
    spelt = [list_spellings(term) if "," in term else [term] for term, _, _ in terms]  # most calls have nothing to do
    spellings = [
        (text, order, concept) for texts, (_, order, concept) in zip(spelt, terms, strict=True) for text in texts
    ]
    trie, ends = _build_trie([text for text, _, _ in spellings])
    entries, entry_of = _group_entries(spellings, ends, len(trie.final))
    counts = GazetteerCounts(rows, rows - len(terms), len(spellings) - len(terms))
    return GazetteerTables(trie, entries, _list_terms(terms, [len(texts) for texts in spelt], entry_of)), counts


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


def _list_terms(terms: list[_Spelling], spellings: list[int], entry_of: IndexArray) -> TermTable:
    """Put terms into a table, with the entries of their spellings, whose numbers are in the same order."""
    sizes = np.array(spellings, np.int64)
    last = np.cumsum(sizes) - 1
    columns = [entry_of[np.maximum(last - back, last - sizes + 1)] for back in range(MAX_SPELLINGS)]
    return TermTable(
        labels=np.array([order for _, order, _ in terms], np.uint8),
        entries=np.stack(columns, axis=1).astype(np.int32),
        texts=StringTable.from_strings([term for term, _, _ in terms]),
    )


def _group_entries(spellings: list[_Spelling], ends: NDArray[np.int32], nodes: int) -> tuple[TrieEntries, IndexArray]:
    """Group the spellings that match alike (same words, lexicon and case); return also the group of each spelling."""
    orders = np.array([order for _, order, _ in spellings], np.int64)
    rules = np.array([choose_case_rule(text) for text, _, _ in spellings], np.int64)
    surfaces, surface_of = _number_surfaces(spellings, rules)
    first_of, group_of = _number_groups(ends.astype(np.int64), orders, rules, surface_of)
    concepts, concept_of = _number_concepts(spellings)
    concept_borders, concept_numbers = _collect_concepts(concept_of, group_of, len(first_of))
    entries = TrieEntries(
        first=np.searchsorted(ends[first_of], np.arange(nodes + 1)).astype(np.int32),
        labels=orders[first_of].astype(np.uint8),
        cases=rules[first_of].astype(np.uint8),
        surfaces=surface_of[first_of].astype(np.int32),
        concept_borders=concept_borders,
        concept_numbers=concept_numbers,
        surface_texts=StringTable.from_strings(surfaces),
        concept_texts=StringTable.from_strings(concepts),
    )
    return entries, group_of


def _number_surfaces(spellings: list[_Spelling], rules: IndexArray) -> tuple[list[str], IndexArray]:
    """Number the spellings whose case matters, as `case_agrees` compares them; all others are number 0."""
    numbers = {"": 0}
    surface_of = np.zeros(len(spellings), np.int64)
    for place in np.flatnonzero(rules).tolist():
        surface_of[place] = numbers.setdefault(strip_hyphens(spellings[place][0]), len(numbers))
    return list(numbers), surface_of


def _number_concepts(spellings: list[_Spelling]) -> tuple[list[str], IndexArray]:
    """Number the concepts; the first is none."""
    numbers = {"": 0}
    concept_of = [numbers.setdefault(concept, len(numbers)) for _, _, concept in spellings]
    return list(numbers), np.array(concept_of, np.int64)


def _number_groups(nodes: IndexArray, *others: IndexArray) -> tuple[IndexArray, IndexArray]:
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
    return first_of[rank], group_of


def _collect_concepts(
    concept_of: IndexArray, group_of: IndexArray, groups: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """List the concepts of each group, each once, in the order of their first spelling; return their borders, too."""
    named = np.flatnonzero(concept_of)
    _, first = np.unique((group_of[named] << 32) | concept_of[named], return_index=True)
    kept = named[np.sort(first)]
    kept = kept[np.argsort(group_of[kept], kind="stable")]
    borders = np.searchsorted(group_of[kept], np.arange(groups + 1))
    return borders.astype(np.int32), concept_of[kept].astype(np.int32)
