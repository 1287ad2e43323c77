"""Random numbers by address: the same address gives the same draw on every machine, in any order.

Training never keeps the state of a random generator. Each decision has an address (seed, epoch, document, ...), and
its generator is made from that address, so a run can begin anywhere, and any number of processes see the same data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


def stable_hash(*address: int | str) -> int:
    """Turn an address into 64 bits that look random.

    >>> stable_hash(1, "masks", 2) == stable_hash(1, "masks", 2) != stable_hash(1, "masks", 3)
    True
    """
    text = "/".join(map(str, address)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def make_rng(*address: int | str) -> np.random.Generator:
    """Make the random generator of an address."""
    return np.random.Generator(np.random.Philox(key=stable_hash(*address)))


_ROUNDS = 4
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Permutation:
    """A random order of `range(size)` that needs no memory: each element is computed when asked for.

    A Feistel network shuffles the next power of four above `size`; what falls outside is shuffled again until it
    falls inside (Black and Rogaway 2002), fewer than four times on average.

    >>> sorted(Permutation(10, 7)[index] for index in range(10)) == list(range(10))
    True
    """

    size: int
    key: int

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        value = self._shuffle(index)
        while value >= self.size:
            value = self._shuffle(value)
        return value

    def _shuffle(self, value: int) -> int:
        half = max(1, (self.size - 1).bit_length() + 1 >> 1)
        low = (1 << half) - 1
        left, right = value >> half, value & low
        for turn in range(_ROUNDS):
            left, right = right, left ^ (_splitmix64(right ^ self.key ^ turn << 56) & low)
        return left << half | right


def _splitmix64(value: int) -> int:
    """Mix 64 bits well (the finaliser of SplitMix64, Steele et al. 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
