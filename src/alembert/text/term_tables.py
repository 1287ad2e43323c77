"""The tables of compiled lexicons, and the trie that finds their terms.

The trie is over hashed words and is searched from all words of a text at once. In: sequences of 64-bit word hashes
(`wordhash`). Out: all occurrences of the sequences in a text. Nodes and edges are stored in a few flat arrays, so half
a million terms take tens of megabytes, are built in about a second, are mapped from a file, and are shared by processes
without copies.

A term is a row of a lexicon that is looked for. An entry is what a match can stand for: all spellings with the same
words, lexicon and case are one entry, which has the concepts of all of them. Entries are sorted by node of the trie,
then by lexicon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from alembert.text.wordhash import HashedWords, IndexArray, Uint64Array

NodeArray = NDArray[np.int32]
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_WORD_BITS = np.uint64(24)
NOT_FOUND = -1


@dataclass(frozen=True)
class HashTable:
    """An immutable map from 64-bit keys to small numbers, with lookups of many keys at once."""

    keys: Uint64Array
    values: NodeArray

    @classmethod
    def build(cls, keys: Uint64Array, values: NodeArray) -> HashTable:
        """Build from unique keys. At most half of the slots are filled."""
        size = 1 << max(4, (2 * len(keys) - 1).bit_length())
        table = cls(np.full(size, _EMPTY), np.full(size, NOT_FOUND, dtype=np.int32))
        slots, left = table._home(keys), np.arange(len(keys))
        while left.size:
            free = left[table.keys[slots[left]] == _EMPTY]
            table.keys[slots[free]] = keys[free]
            table.values[slots[free]] = values[free]
            left = left[table.keys[slots[left]] != keys[left]]
            slots[left] = (slots[left] + 1) & (size - 1)
        return table

    def find(self, keys: Uint64Array) -> NodeArray:
        """Return the value of each key, `NOT_FOUND` where there is none."""
        slots = self._home(keys)
        stored_keys = self.keys[slots]
        values = self.values[slots]
        wrong = stored_keys != keys
        values[wrong] = NOT_FOUND
        left = np.flatnonzero(wrong & (stored_keys != _EMPTY))
        while left.size:
            slots[left] = (slots[left] + 1) & (len(self.keys) - 1)
            stored_keys = self.keys[slots[left]]
            right = stored_keys == keys[left]
            values[left[right]] = self.values[slots[left[right]]]
            left = left[~right & (stored_keys != _EMPTY)]
        return values

    def _home(self, keys: Uint64Array) -> IndexArray:
        shift = np.uint64(65 - len(self.keys).bit_length())
        return ((keys * _SPREAD) >> shift).astype(np.int64)


@dataclass(frozen=True)
class Trie:
    """The sequences of words that are terms. Nodes are numbered from 0, the root."""

    words: HashTable
    """From a word's hash to its number."""
    roots: NodeArray
    """From a word's number to the node below the root, `NOT_FOUND` if no term starts with it."""
    edges: HashTable
    """From a node and a word's number to the next node."""
    inner: NDArray[np.bool_]
    """Whether a node has children."""
    final: NDArray[np.bool_]
    """Whether a term ends at a node."""

    @classmethod
    def from_words(cls, hashes: Uint64Array, lengths: IndexArray) -> tuple[Trie, NodeArray]:
        """Build from the words of all terms, one term after the other; return also the last node of each term."""
        vocabulary, words = np.unique(hashes, return_inverse=True)
        table = HashTable.build(vocabulary, np.arange(len(vocabulary), dtype=np.int32))
        keys, ends = _grow(words, lengths)
        nodes = np.arange(1, len(keys) + 1, dtype=np.int32)
        inner = np.zeros(len(keys) + 1, dtype=bool)
        inner[(keys >> _WORD_BITS).astype(np.int64)] = True
        final = np.zeros(len(keys) + 1, dtype=bool)
        final[ends] = True
        top = keys < np.uint64(1) << _WORD_BITS
        roots = np.full(len(vocabulary) + 1, NOT_FOUND, dtype=np.int32)
        roots[keys[top].astype(np.int64)] = nodes[top]
        return cls(table, roots, HashTable.build(keys[~top], nodes[~top]), inner, final), ends

    def walk(self, words: HashedWords) -> tuple[IndexArray, IndexArray, NodeArray]:
        """Find all terms between word borders: first word, number of words and node, sorted by depth."""
        numbers = self.words.find(words.hashes)
        near = _find_word_gaps(words)
        starts = np.flatnonzero((numbers >= 0) & ~words.glued)
        nodes = self.roots[numbers[starts]]
        starts, nodes = starts[nodes >= 0], nodes[nodes >= 0]
        matches: list[tuple[IndexArray, IndexArray, NodeArray]] = []
        depth = 1
        while starts.size:
            ended = np.flatnonzero(self.final[nodes] & ~near.glued_after[starts + depth - 1])
            matches.append((starts[ended], np.full(len(ended), depth), nodes[ended]))
            onward = self.inner[nodes] & near.close_after[starts + depth - 1]
            starts, nodes = self._step(numbers, starts[onward], nodes[onward], depth)
            depth += 1
        return _concatenate_matches(matches)

    def _step(
        self, numbers: NodeArray, starts: IndexArray, nodes: NodeArray, depth: int
    ) -> tuple[IndexArray, NodeArray]:
        following = numbers[starts + depth]
        has_number = following >= 0
        starts = starts[has_number]
        after = self.edges.find(_edge(nodes[has_number], following[has_number]))
        return starts[after >= 0], after[after >= 0]


@dataclass(frozen=True)
class _WordGaps:
    glued_after: NDArray[np.bool_]
    close_after: NDArray[np.bool_]


def _find_word_gaps(words: HashedWords) -> _WordGaps:
    """Mark the words that the next one follows without a border, or after at most one space or hyphen."""
    glued = np.zeros(len(words.starts), dtype=bool)
    glued[:-1] = words.glued[1:]
    close = np.zeros(len(words.starts), dtype=bool)
    close[:-1] = words.starts[1:] - words.ends[:-1] <= 1
    return _WordGaps(glued, close)


def _concatenate_matches(
    matches: list[tuple[IndexArray, IndexArray, NodeArray]],
) -> tuple[IndexArray, IndexArray, NodeArray]:
    if not matches:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing.astype(np.int32)
    starts, depths, nodes = (np.concatenate(parts) for parts in zip(*matches, strict=True))
    return starts, depths, nodes


def _edge(nodes: NDArray[np.integer], words: NDArray[np.integer]) -> Uint64Array:
    return (nodes.astype(np.uint64) << _WORD_BITS) | words.astype(np.uint64)


def _grow(words: IndexArray, lengths: IndexArray) -> tuple[Uint64Array, NodeArray]:
    """Number the prefixes of all terms by level; return the edge into each node, and the last node of each term."""
    begins = np.cumsum(lengths) - lengths
    nodes = np.zeros(len(lengths), dtype=np.int32)
    levels: list[Uint64Array] = []
    count = 1
    for depth in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > depth)
        keys, which = np.unique(_edge(nodes[longer], words[begins[longer] + depth]), return_inverse=True)
        nodes[longer] = count + which
        levels.append(keys)
        count += len(keys)
    return np.concatenate([*levels, np.zeros(0, dtype=np.uint64)]), nodes


_MAX_DECODED = 1 << 15
MAX_SPELLINGS = 2


@dataclass(frozen=True, eq=False)
class StringTable:
    """Many strings as their UTF-8 bytes, one after the other, and where each begins; decoded when asked for.

    Half a million Python objects take fifty bytes each beside their text, and a forked worker copies every page on
    which it counts a reference; arrays can be mapped from a file.

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
