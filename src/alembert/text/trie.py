"""A trie over hashed words, searched from all words of a text at once.

In: sequences of 64-bit word hashes (`wordhash`). Out: all occurrences of the sequences in a text. Nodes and edges are
stored in a few flat arrays, so half a million terms take tens of megabytes, are built in about a second, and are shared
by forked workers without copies.
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
