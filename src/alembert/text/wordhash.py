"""Split text into small words and hash each to 64 bits, with vectorised operations.

In: a text. Out: the start, end and hash of each word. A word is a run of letters, a run of digits, one Greek letter,
one Chinese or Japanese character, or one punctuation mark; spaces and hyphens only separate. So "IL-6", "IL6" and "IL
6" are the same two words, and "TGFβ" is the same as "TGF-beta".

The hash is a polynomial over the folded characters, computed from one cumulative sum over the text, so that no
Python object is needed per word: this makes the gazetteer several times faster than a regular expression would. The
price is that two different words could have the same hash, with a probability of about 1 in 10^7 for a lexicon of a
million words and a corpus of a million different words. Folding keeps the length, so offsets are those of the original
text.

>>> cut = hash_words("IL-6 in TGFβ")
>>> [(int(start), int(end)) for start, end in zip(cut.starts, cut.ends)]
[(0, 2), (3, 4), (5, 7), (8, 11), (11, 12)]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Uint64Array = NDArray[np.uint64]
IndexArray = NDArray[np.int64]

GAP, LETTER, DIGIT, MARK, GREEK, IDEOGRAPH = range(6)
HYPHENS = "-\u2010\u2011\u2012\u2013\u2212"
IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
GREEK_NAMES = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "omicron",
    "pi",
    "rho",
    "sigma",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "chi",
    "psi",
    "omega",
]
_FIRST_GREEK = 0x3B1
WINDOW = 1 << 16
_REACH = 1 << 11
_TABLE_SIZES = (0x80, 0x3000, 0x10000, 0x110000)
"""Code points that tables are made for, the fewest that a text needs: those for all take half a second."""
_BASE = 0x9E3779B97F4A7C15
_WORD_LIKE = np.array([False, True, True, False, True, False])


@dataclass(frozen=True)
class HashedWords:
    """The words of one text: parallel arrays, in order."""

    starts: IndexArray
    ends: IndexArray
    hashes: Uint64Array
    glued: NDArray[np.bool_]
    """True where a word follows another without a word border between them, as β does in "TGFβ"."""


def fold_case(text: str) -> str:
    """Lower-case a text and keep its length.

    >>> len(fold_case("İL-6")) == len("İL-6")
    True
    """
    return text.replace("İ", "i").lower()


def hash_words(text: str) -> HashedWords:
    """Find the words of a text. Memory is about 60 bytes a character: split long texts into windows."""
    codes = _codes(text)
    kinds = _kinds(_table_size(codes))[codes]
    starts = _starts(kinds)
    ends = _ends(kinds)
    first = kinds[starts]
    glued = _WORD_LIKE[first] & _WORD_LIKE[kinds[starts - 1]]
    glued[:1] = False
    return HashedWords(starts, ends, _hashes(codes, first, starts, ends), glued)


def compute_word_hashes(text: str) -> Uint64Array:
    """Return the hashes of all words of a text of any length, in bounded extra memory."""
    parts: list[Uint64Array] = []
    begin = 0
    while begin < len(text):
        end = len(text) if len(text) - begin <= WINDOW else find_split_point(text, begin + WINDOW)
        parts.append(hash_words(text[begin:end]).hashes)
        begin = end
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def find_split_point(text: str, near: int) -> int:
    """Find where to split a text: after the last space or line end before `near`, if one is in reach."""
    space = max(text.rfind(" ", near - _REACH, near), text.rfind("\n", near - _REACH, near))
    return space + 1 if space >= 0 else near


def _codes(text: str) -> NDArray[np.uint8] | NDArray[np.uint32]:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _starts(kinds: NDArray[np.uint8]) -> IndexArray:
    new = kinds != GAP
    new[1:] &= (kinds[1:] != kinds[:-1]) | (kinds[1:] >= MARK)
    return np.flatnonzero(new)


def _ends(kinds: NDArray[np.uint8]) -> IndexArray:
    last = kinds != GAP
    last[:-1] &= (kinds[1:] != kinds[:-1]) | (kinds[:-1] >= MARK)
    return np.flatnonzero(last) + 1


def _hashes(
    codes: NDArray[np.uint8] | NDArray[np.uint32], kinds: NDArray[np.uint8], starts: IndexArray, ends: IndexArray
) -> Uint64Array:
    powers, inverses = _powers(1 << max(12, len(codes).bit_length()))
    sums = np.zeros(len(codes) + 1, dtype=np.uint64)
    np.cumsum(_numbers(_table_size(codes))[codes] * powers[: len(codes)], out=sums[1:])
    stems = ends - _plural(codes, kinds, starts, ends)
    hashes: Uint64Array = (sums[stems] - sums[starts]) * inverses[starts]
    greek = np.flatnonzero(kinds == GREEK)
    if greek.size:
        hashes[greek] = _greek_hashes()[codes[starts[greek]] - 0x370]
    return hashes


def _plural(
    codes: NDArray[np.uint8] | NDArray[np.uint32], kinds: NDArray[np.uint8], starts: IndexArray, ends: IndexArray
) -> NDArray[np.bool_]:
    """Mark the words with a plural "s", which is left out of the hash: "tumors" equals "tumor"."""
    last, before = codes[ends - 1], codes[ends - 2]
    plural: NDArray[np.bool_] = ((last | 32) == ord("s")) & (kinds == LETTER) & (ends - starts >= 5)
    for letter in b"siu":
        plural &= (before | 32) != letter
    return plural


@cache
def _powers(size: int) -> tuple[Uint64Array, Uint64Array]:
    """Compute the powers of the base and of its inverse modulo 2^64 (the base is odd, so it has one)."""
    inverse = pow(_BASE, -1, 1 << 64)
    return _powers_of(_BASE, size), _powers_of(inverse, size)


def _powers_of(base: int, size: int) -> Uint64Array:
    powers = np.full(size, base, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _table_size(codes: NDArray[np.uint8] | NDArray[np.uint32]) -> int:
    highest = int(codes.max(initial=0))
    return next(size for size in _TABLE_SIZES if highest < size)


def _characters(size: int) -> str:
    return "".join(map(chr, range(size)))


@cache
def _kinds(size: int) -> NDArray[np.uint8]:
    """Classify the first code points for splitting words."""
    every = _characters(size)
    kinds = np.full(size, MARK, dtype=np.uint8)
    kinds[np.fromiter(map(str.isalnum, every), dtype=bool, count=size)] = LETTER
    kinds[np.fromiter(map(str.isdecimal, every), dtype=bool, count=size)] = DIGIT
    kinds[np.fromiter(map(str.isspace, every), dtype=bool, count=size)] = GAP
    kinds[[ord(sign) for sign in HYPHENS if ord(sign) < size]] = GAP
    kinds[0x300:0x370] = LETTER  # combining accents belong to the letter before them
    kinds[0x391:0x3AA] = kinds[_FIRST_GREEK : _FIRST_GREEK + len(GREEK_NAMES)] = GREEK
    for low, high in IDEOGRAPHS:
        kinds[low : high + 1] = IDEOGRAPH
    return kinds


@cache
def _numbers(size: int) -> Uint64Array:
    """Map the first code points to a pseudo-random number of their folded character (the finaliser of SplitMix64)."""
    folded = fold_case(_characters(size).replace("Σ", "σ"))  # a lone sigma: lower() would look at its neighbours
    mixed = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    mixed = (mixed + np.uint64(1)) * np.uint64(_BASE)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@cache
def _greek_hashes() -> Uint64Array:
    """Hash the name of each Greek letter, small and capital, counted from U+0370."""
    names = hash_words(" ".join(GREEK_NAMES)).hashes
    table = np.zeros(0x90, dtype=np.uint64)
    table[0x21:0x3A] = table[_FIRST_GREEK - 0x370 : _FIRST_GREEK - 0x370 + len(names)] = names
    return table
