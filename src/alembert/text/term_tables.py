"""The tables of compiled lexicons: flat arrays, which can be mapped from a file and are shared by processes.

A term is a row of a lexicon that is looked for. An entry is what a match can stand for: all spellings with the same words,
lexicon and case are one entry, which has the concepts of all of them. Entries are sorted by node of the trie, then by
lexicon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from alembert.text.trie import Trie

_MAX_DECODED = 1 << 15
MAX_SPELLINGS = 2


@dataclass(frozen=True, eq=False)
class StringTable:
    """Many strings as their UTF-8 bytes, one after the other, and where each begins; decoded when asked for.

    Half a million Python objects take fifty bytes each beside their text, and a forked worker copies every page on which it
    counts a reference; arrays can be mapped from a file.

    >>> StringTable.from_strings(["gene", "", "TNFα"])[2]
    'TNFα'
    """

    borders: NDArray[np.int64]
    """The first byte of each string, and the end of the last."""
    content: NDArray[np.uint8]

    @classmethod
    def from_strings(cls, strings: Sequence[str]) -> StringTable:
        encoded = [text.encode("utf-8", "surrogatepass") for text in strings]
        borders = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=borders[1:])
        return cls(borders, np.frombuffer(b"".join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.borders) - 1

    def __getitem__(self, number: int) -> str:
        begin, end = self.borders[number : number + 2]
        return self.content[begin:end].tobytes().decode("utf-8", "surrogatepass")


@dataclass(frozen=True, eq=False)
class TrieEntries:
    """The entries of the trie's final nodes."""

    first: NDArray[np.int32]
    """The first entry of each node; its entries end where those of the next node begin."""
    labels: NDArray[np.uint8]
    """The number of each entry's lexicon."""
    cases: NDArray[np.uint8]
    surfaces: NDArray[np.int32]
    """The number of the spelling to compare each entry with, 0 where case is free."""
    concept_borders: NDArray[np.int32]
    """The first of each entry's `concept_numbers`, and the end of the last."""
    concept_numbers: NDArray[np.int32]
    surface_texts: StringTable
    concept_texts: StringTable

    def get_surface(self, entry: int) -> str:
        return self.surface_texts[self.surfaces[entry]]

    def list_concepts(self, entry: int) -> tuple[str, ...]:
        begin, end = self.concept_borders[entry : entry + 2]
        return tuple(self.concept_texts[number] for number in self.concept_numbers[begin:end])


class EntryReader:
    """Looks entries up one by one: a view returns plain numbers, and texts that were decoded lately are kept."""

    def __init__(self, entries: TrieEntries) -> None:
        self._entries = entries
        self.labels = entries.labels.data
        self.cases = entries.cases.data
        self.get_surface = lru_cache(_MAX_DECODED)(entries.get_surface)
        self.list_concepts = lru_cache(_MAX_DECODED)(entries.list_concepts)

    def __reduce__(self) -> tuple[type[EntryReader], tuple[TrieEntries]]:
        return EntryReader, (self._entries,)


@dataclass(frozen=True)
class UnmatchedTerms:
    """The terms of a lexicon that no text has."""

    total: int
    """Terms that were looked for."""
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TermTable:
    """The terms that are looked for, in the order of the lexicons."""

    labels: NDArray[np.uint8]
    """The number of each term's lexicon."""
    entries: NDArray[np.int32]
    """The entries of each term's spellings; a term with one spelling has its entry twice."""
    texts: StringTable

    def list_unmatched(self, label: int, matched: Collection[int], most: int) -> UnmatchedTerms:
        """Find the terms of a lexicon none of whose entries was matched, and name so many of them."""
        own = np.flatnonzero(self.labels == label)
        is_matched = np.isin(self.entries[own], np.fromiter(matched, np.int32, len(matched))).any(axis=1)
        missed = own[~is_matched]
        return UnmatchedTerms(len(own), len(missed), tuple(self.texts[number] for number in missed[:most]))


@dataclass(frozen=True, eq=False)
class GazetteerTables:
    """All arrays of compiled lexicons."""

    trie: Trie
    entries: TrieEntries
    terms: TermTable
