"""Find exact and near duplicates among documents.

In: documents in order. Out: for each, the number of the first document it repeats, if any. There are two phases:
`compute_signature` is a pure function of one text and runs in parallel; `Deduplicator` takes the signatures in document
order and decides, so the result does not depend on the number of workers.

A signature has 144 bytes: a digest of the text without case and spacing (exact duplicates) and 128 one-byte MinHash
values over runs of five words (near duplicates; Broder 1997; one-permutation hashing with rotation, Shrivastava and Li
2014). Sixteen bands of eight values are looked up: documents that share 80 % of their runs agree in at least one band
with a probability of 0.95, those that share 90 % with 0.9999. Memory is about 300 bytes for each remaining document, in
files that the system pages in and out if a folder is given.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alembert.errors import BadSetting
from alembert.text.wordhash import Uint64Array, compute_word_hashes, fold_case

SIGNATURE_BYTES = 144
_DIGEST_WORDS = 2
_BANDS = 16
_VALUES = 128
_SHINGLE = 5
_FEWEST_SHINGLES = 20
_PROBES = 8
_BORDERS = np.arange(_VALUES, dtype=np.uint64) << np.uint64(57)
_MIX = np.uint64(0x9FB21C651E98DF25)
_KEYS = np.array([0, *range(_DIGEST_WORDS, _DIGEST_WORDS + _BANDS)])
_SALT = np.arange(len(_KEYS), dtype=np.uint64) * np.uint64(0xA24BAED4963EE407)


@dataclass(frozen=True)
class Duplicate:
    """The earlier document that a document repeats."""

    original: int
    """The number of the earlier document."""
    similarity: float
    """The estimated share of five-word runs that both have; 1.0 for the same words."""
    exact: bool


def compute_signature(text: str) -> bytes:
    """Compute the signature of a text; one of fewer than about 24 words can only be an exact duplicate."""
    digest = hashlib.blake2b(
        " ".join(fold_case(text).split()).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    shingles = _shingles(compute_word_hashes(text))
    if len(shingles) < _FEWEST_SHINGLES:
        return digest + hashlib.shake_128(digest).digest(_VALUES)
    return digest + _minhash(shingles).tobytes()


def _shingles(words: Uint64Array) -> Uint64Array:
    """Hash every run of five words."""
    count = max(0, len(words) - _SHINGLE + 1)
    runs = np.zeros(count, dtype=np.uint64)
    for offset in range(_SHINGLE):
        runs = (runs ^ words[offset : offset + count]) * _MIX
        runs ^= runs >> np.uint64(29)
    return runs


def _minhash(shingles: Uint64Array) -> NDArray[np.uint8]:
    """Take the smallest hash of each 128th of the range; an empty part borrows from the next nonempty one."""
    ordered = np.sort(shingles)
    positions = np.searchsorted(ordered, _BORDERS) % len(ordered)
    return ((ordered[positions] * _MIX) >> np.uint64(56)).astype(np.uint8)


class Deduplicator:
    """Remembers the signatures of the documents that were kept."""

    def __init__(self, similarity: float | None = 0.8, folder: Path | None = None) -> None:
        """Set the least similarity of near duplicates; None looks for exact ones alone."""
        if similarity is not None and not 0.5 <= similarity <= 1:
            raise BadSetting(f"`similarity` is {similarity}; near duplicates can be found from 0.5 to 1.")
        self._similarity = similarity
        self._folder = folder
        self._asked = 0
        self._kept = 0
        self._signatures = self._array("signatures", (1024, SIGNATURE_BYTES // 8), np.uint64)
        self._numbers = self._array("numbers", (1024,), np.int64)
        self._table = self._array("table", (2 * 1024 * len(_KEYS),), np.uint32)

    def check_and_add(self, signature: bytes) -> Duplicate | None:
        """Return the earlier document that the next one repeats; if there is none, remember the new one."""
        words = np.frombuffer(signature, dtype=np.uint64)
        slots = self._slots(words)
        duplicate = self._find(words, slots)
        if duplicate is None:
            self._remember(words, slots)
        self._asked += 1
        return duplicate

    def _slots(self, words: Uint64Array) -> NDArray[np.int64]:
        """Compute the slots of the hash table for each key of a signature, one row for each key."""
        mixed = (words[_KEYS] ^ _SALT) * _MIX
        home = (mixed ^ (mixed >> np.uint64(32))) % np.uint64(len(self._table))
        slots: NDArray[np.int64] = (home.astype(np.int64)[:, None] + np.arange(_PROBES)) % len(self._table)
        return slots

    def _find(self, words: Uint64Array, slots: NDArray[np.int64]) -> Duplicate | None:
        owners = self._table[slots].astype(np.int64) - 1
        owners = np.unique(owners[owners >= 0])
        if not owners.size:
            return None
        others = self._signatures[owners]
        same = (others[:, :_DIGEST_WORDS] == words[:_DIGEST_WORDS]).all(axis=1)
        if same.any():
            return Duplicate(int(self._numbers[owners[same.argmax()]]), 1.0, exact=True)
        if self._similarity is None:
            return None
        shared = _estimate_similarity(others, words)
        best = int(shared.argmax())
        if shared[best] < self._similarity:
            return None
        return Duplicate(int(self._numbers[owners[best]]), float(shared[best]), exact=False)

    def _remember(self, words: Uint64Array, slots: NDArray[np.int64]) -> None:
        if self._kept == len(self._numbers):
            self._grow()
            slots = self._slots(words)
        self._signatures[self._kept] = words
        self._numbers[self._kept] = self._asked
        self._enter(self._kept, slots)
        self._kept += 1

    def _enter(self, number: int, slots: NDArray[np.int64]) -> None:
        """Write a document into the first free slot of each key; a key without a free slot is skipped."""
        free = self._table[slots] == 0
        rows = np.flatnonzero(free.any(axis=1))
        self._table[slots[rows, free[rows].argmax(axis=1)]] = number + 1

    def _grow(self) -> None:
        size = 2 * len(self._numbers)
        signatures = self._array("signatures", (size, SIGNATURE_BYTES // 8), np.uint64)
        signatures[: self._kept] = self._signatures
        numbers = self._array("numbers", (size,), np.int64)
        numbers[: self._kept] = self._numbers
        self._signatures, self._numbers = signatures, numbers
        self._table = self._array("table", (2 * size * len(_KEYS),), np.uint32)
        for number in range(self._kept):
            self._enter(number, self._slots(signatures[number]))

    def _array(self, name: str, shape: tuple[int, ...], kind: type[np.generic]) -> NDArray[Any]:
        """Create an array of zeros, in memory or in a file; an earlier file of that name stays valid while mapped."""
        if self._folder is None:
            return np.zeros(shape, dtype=kind)
        path = self._folder / f"{name}.bin"
        path.unlink(missing_ok=True)
        return np.memmap(path, dtype=kind, mode="w+", shape=shape)


def _estimate_similarity(others: Uint64Array, words: Uint64Array) -> NDArray[np.float64]:
    """Estimate the similarity to each of some documents; one value in 256 agrees by chance."""
    values = np.ascontiguousarray(others[:, _DIGEST_WORDS:]).view(np.uint8)
    agree = (values == words[_DIGEST_WORDS:].view(np.uint8)).mean(axis=1)
    shared: NDArray[np.float64] = np.clip((agree - 1 / 256) / (1 - 1 / 256), 0, 1)
    return shared
