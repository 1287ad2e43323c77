"""A trie over word numbers, walked for all places of a text at once.

In: sequences of 64-bit word numbers (`wordhash`). Out: for a text, every place where one of the sequences stands.
Nodes and edges live in a few flat arrays, so half a million terms take tens of megabytes, are built in about a second,
and are shared by forked workers without copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alembert.text.wordhash import HashedWords, IndexArray, Uint64Array

NodeArray = NDArray[np.int32]
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_WORD_BITS = np.uint64(24)
ROOT = 0
NOT_FOUND = -1


@dataclass(frozen=True)
class HashTable:
    """An unchangeable map from 64-bit keys to small numbers, asked about many keys at once."""

    keys: Uint64Array
    values: NodeArray

    @classmethod
    def of(cls, keys: Uint64Array, values: NodeArray) -> HashTable:
        """Build from keys that are all different. At most half of the slots are filled."""
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
        """Give the value of each key, `NOT_FOUND` where there is none."""
        slots = self._home(keys)
        found = self.keys[slots]
        values = self.values[slots]
        wrong = found != keys
        values[wrong] = NOT_FOUND
        left = np.flatnonzero(wrong & (found != _EMPTY))
        while left.size:
            slots[left] = (slots[left] + 1) & (len(self.keys) - 1)
            found = self.keys[slots[left]]
            right = found == keys[left]
            values[left[right]] = self.values[slots[left[right]]]
            left = left[~right & (found != _EMPTY)]
        return values

    def _home(self, keys: Uint64Array) -> IndexArray:
        shift = np.uint64(65 - len(self.keys).bit_length())
        return ((keys * _SPREAD) >> shift).astype(np.int64)


@dataclass(frozen=True)
class Trie:
    """Which sequences of words are terms. Nodes are numbered from 0, the root."""

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
        """Build from the words of all terms, one term after the other; also give each term's last node."""
        vocabulary, words = np.unique(hashes, return_inverse=True)
        table = HashTable.of(vocabulary, np.arange(len(vocabulary), dtype=np.int32))
        keys, ends = _grow(words, lengths)
        nodes = np.arange(1, len(keys) + 1, dtype=np.int32)
        inner = np.zeros(len(keys) + 1, dtype=bool)
        inner[(keys >> _WORD_BITS).astype(np.int64)] = True
        final = np.zeros(len(keys) + 1, dtype=bool)
        final[ends] = True
        top = keys < np.uint64(1) << _WORD_BITS
        roots = np.full(len(vocabulary) + 1, NOT_FOUND, dtype=np.int32)
        roots[keys[top].astype(np.int64)] = nodes[top]
        return cls(table, roots, HashTable.of(keys[~top], nodes[~top]), inner, final), ends

    def walk(self, words: HashedWords) -> tuple[IndexArray, IndexArray, NodeArray]:
        """Find all terms that stand between word borders: first word, number of words, node; by depth."""
        numbers = self.words.find(words.hashes)
        near = _find_word_gaps(words)
        places = np.flatnonzero((numbers >= 0) & ~words.glued)
        nodes = self.roots[numbers[places]]
        places, nodes = places[nodes >= 0], nodes[nodes >= 0]
        found: list[tuple[IndexArray, IndexArray, NodeArray]] = []
        depth = 1
        while places.size:
            ended = np.flatnonzero(self.final[nodes] & ~near.glued_after[places + depth - 1])
            found.append((places[ended], np.full(len(ended), depth), nodes[ended]))
            onward = self.inner[nodes] & near.close_after[places + depth - 1]
            places, nodes = self._step(numbers, places[onward], nodes[onward], depth)
            depth += 1
        return _concatenate_matches(found)

    def _step(
        self, numbers: NodeArray, places: IndexArray, nodes: NodeArray, depth: int
    ) -> tuple[IndexArray, NodeArray]:
        following = numbers[places + depth]
        known = following >= 0
        places = places[known]
        after = self.edges.find(_edge(nodes[known], following[known]))
        return places[after >= 0], after[after >= 0]


@dataclass(frozen=True)
class _WordGaps:
    glued_after: NDArray[np.bool_]
    close_after: NDArray[np.bool_]


def _find_word_gaps(words: HashedWords) -> _WordGaps:
    """For each word: does the next follow without a border, and is it at most one space or hyphen away."""
    glued = np.zeros(len(words.starts), dtype=bool)
    glued[:-1] = words.glued[1:]
    close = np.zeros(len(words.starts), dtype=bool)
    close[:-1] = words.starts[1:] - words.ends[:-1] <= 1
    return _WordGaps(glued, close)


def _concatenate_matches(
    found: list[tuple[IndexArray, IndexArray, NodeArray]],
) -> tuple[IndexArray, IndexArray, NodeArray]:
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing.astype(np.int32)
    places, depths, nodes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return places, depths, nodes


def _edge(nodes: NDArray[np.integer], words: NDArray[np.integer]) -> Uint64Array:
    return (nodes.astype(np.uint64) << _WORD_BITS) | words.astype(np.uint64)


def _grow(words: IndexArray, lengths: IndexArray) -> tuple[Uint64Array, NodeArray]:
    """Number the prefixes of all terms, level by level: the edge into each node, and each term's last node."""
    begins = np.cumsum(lengths) - lengths
    nodes = np.zeros(len(lengths), dtype=np.int32)
    levels: list[Uint64Array] = []
    known = 1
    for depth in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > depth)
        keys, which = np.unique(_edge(nodes[longer], words[begins[longer] + depth]), return_inverse=True)
        nodes[longer] = known + which
        levels.append(keys)
        known += len(keys)
    return np.concatenate([*levels, np.zeros(0, dtype=np.uint64)]), nodes
