"""Replaced tokens without a generator: entities give way to others of their type, words to words of the same text.

In: a training sequence, a table of what stands in training text, settings, a random generator. Out: the sequence with
some units replaced. A unit and its replacement have the same number of pieces: positions, masks and tags stay where
they are, and the length of a word does not betray it. A replacement is drawn among all occurrences, so that frequent
words come often; it may happen to be what stood there already, and then nothing was replaced, as in ELECTRA.

The table reads a sample of the training documents, always the same one, so that it fits into memory and opens soon.

Clark et al. 2020 (ELECTRA) draw tokens from a small language model instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START, TokenArrays
from alembert.data.feed import HeldOutSplit
from alembert.data.order import Permutation, stable_hash
from alembert.data.sequences import Instance
from alembert.errors import BadSetting

SAMPLE_TOKENS: Final = 1 << 22
"""Tokens of the text that replacements are drawn from."""
_MAX_PIECES: Final = 64
"""Units of so many pieces or more are never replaced."""
_BoolArray = npt.NDArray[np.bool_]
_Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SwapSettings:
    """How much of a sequence the objective `entity_swap` replaces."""

    entity_rate: float = 0.3
    """Chance of each entity to be replaced by another of its type."""
    word_rate: float = 0.1
    """Chance of each other word to be replaced."""

    def __post_init__(self) -> None:
        for name in ("entity_rate", "word_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` of the swaps is {getattr(self, name)}; it must be from 0 to 1.")
        if not self.entity_rate and not self.word_rate:
            raise BadSetting("`entity_rate` and `word_rate` of the swaps are both 0: nothing would be replaced.")


@dataclass(frozen=True, eq=False)
class ReplaceableUnits:
    """Whole entities, and words of letters outside of them."""

    starts: _Int64Array
    sizes: _Int64Array
    types: _Int64Array
    """0 for words, else 1 + the number of the entity's type."""

    @property
    def keys(self) -> _Int64Array:
        """What a unit shares with its replacements: the type and the number of pieces."""
        return self.types * _MAX_PIECES + self.sizes

    def select(self, kept: _BoolArray) -> ReplaceableUnits:
        return ReplaceableUnits(self.starts[kept], self.sizes[kept], self.types[kept])


def find_units(instance: Instance, is_word: _BoolArray) -> ReplaceableUnits:
    """Find what can be replaced; what truncation left of an entity cannot. `is_word` is about pieces."""
    flags, special = instance.flags, instance.special
    assert instance.types is not None
    inside = flags & IN_ENTITY != 0
    begins = special | (np.where(inside, flags & ENTITY_START, flags & WORD_START) != 0)
    begins[1:] |= special[:-1] | (inside[1:] != inside[:-1])
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(flags)))
    whole = (flags[starts] & ENTITY_START != 0) & (flags[starts + sizes - 1] & ENTITY_END != 0)
    words = (flags[starts] & WORD_START != 0) & is_word[instance.ids[starts]]
    units = ReplaceableUnits(starts, sizes, instance.types[starts].astype(np.int64))
    return units.select(np.where(inside[starts], whole, words) & (sizes < _MAX_PIECES) & ~special[starts])


@dataclass(frozen=True, eq=False)
class ReplacementTable:
    """What stands in training text, ordered by type and number of pieces."""

    ids: npt.NDArray[np.int32]
    starts: _Int64Array
    keys: _Int64Array
    """In ascending order."""
    is_word: _BoolArray
    """For each piece of the vocabulary: whether a word of letters may begin with it."""

    @classmethod
    def build(
        cls, source: TokenArrays, split: HeldOutSplit, pieces: Sequence[str], tokens: int = SAMPLE_TOKENS
    ) -> ReplacementTable:
        """Read a sample of the documents that are trained on."""
        sample = _join_ranges(source, _sample_documents(source, split, tokens))
        is_word = np.array([piece[:1].isalpha() for piece in pieces], np.bool_)
        units = find_units(sample, is_word)
        order = np.argsort(units.keys, kind="stable")
        return cls(sample.ids, units.starts[order], units.keys[order], is_word)

    def draw(self, key: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.int32] | None:
        """Draw a unit of this key, each occurrence alike; none: there is none."""
        low, high = np.searchsorted(self.keys, [key, key + 1])
        if low == high:
            return None
        start = self.starts[rng.integers(low, high)]
        return self.ids[start : start + size]


def replace_units(
    instance: Instance,
    ids: npt.NDArray[np.int32],
    table: ReplacementTable,
    settings: SwapSettings,
    rng: np.random.Generator,
    *,
    taken: npt.NDArray[np.int64],
) -> npt.NDArray[np.int32]:
    """Return `ids` with units replaced by others of their type and size, except those with a token that is `taken`."""
    units = find_units(instance, table.is_word)
    rates = np.where(units.types > 0, settings.entity_rate, settings.word_rate)
    chosen = units.select(rng.random(len(units.starts)) < rates)
    replaced = ids.copy()
    is_taken = np.zeros(len(ids) + 1, np.int64)
    is_taken[taken + 1] = 1
    before = np.cumsum(is_taken)
    for start, size, key in zip(chosen.starts.tolist(), chosen.sizes.tolist(), chosen.keys.tolist(), strict=True):
        if before[start + size] == before[start] and (drawn := table.draw(key, size, rng)) is not None:
            replaced[start : start + size] = drawn
    return replaced


def _sample_documents(source: TokenArrays, split: HeldOutSplit, tokens: int) -> list[tuple[int, int]]:
    """Draw training documents, always the same ones, until they have so many tokens; return their ranges of tokens."""
    order = Permutation(len(source), stable_hash("replacements"))
    ranges: list[tuple[int, int]] = []
    for document in map(order.__getitem__, range(len(source))):
        if tokens <= 0:
            break
        if split.is_training(document):
            ranges.append(source.get_token_range(document))
            tokens -= ranges[-1][1] - ranges[-1][0]
    return sorted(ranges)


def _join_ranges(source: TokenArrays, ranges: Sequence[tuple[int, int]]) -> Instance:
    """Read documents one after the other, as one sequence without special tokens."""

    def joined(values: npt.NDArray[Any], kind: type[np.generic]) -> npt.NDArray[Any]:
        return np.concatenate([np.zeros(0, kind), *(values[start:end] for start, end in ranges)]).astype(kind)

    flags = joined(source.flags, np.uint8)
    nothing = np.zeros(len(flags), np.uint8)
    types = joined(source.types, np.uint16)
    return Instance(joined(source.ids, np.int32), nothing, flags, nothing > 0, types=types)
