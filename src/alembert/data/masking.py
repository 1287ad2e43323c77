"""What a model in training sees in place of a text's tokens: masks, or other words and entities.

`choose_positions` and `corrupt` mask. In: an instance, settings, a random generator. Out: the chosen positions with the
unit that each belongs to, and the corrupted tokens. Pieces are chosen as BERT was published (Devlin et al. 2019), words
as its whole-word checkpoints (a word that no longer fits is skipped). Spans follow SpanBERT (Joshi et al. 2020), except
that a word at the end of the budget is left out where SpanBERT masks a part of it. Entities are our own: each is masked
whole or not at all.

`ReplacementTable` replaces without a generator: entities give way to others of their type, words to words of the same
text; ELECTRA (Clark et al. 2020) draws tokens from a small language model instead. A unit and its replacement have the
same number of pieces: positions, masks and tags stay where they are, and the length of a word does not betray it. A
replacement is drawn among all occurrences, so that frequent words come often; it may happen to be what stood there
already, and then nothing was replaced, as in ELECTRA. The table reads a sample of the training documents, always the
same one, so that it fits into memory and opens soon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START, TokenArrays
from alembert.data.feed import HeldOutSplit
from alembert.data.order import Permutation, stable_hash
from alembert.data.sequences import Instance
from alembert.errors import BadSetting

MaskUnit = Literal["piece", "word", "span", "entity"]
PositionArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """What is masked, how much of it, and by what it is replaced."""

    rate: float = 0.15
    """Masking rate: share of the tokens, including `[CLS]` and `[SEP]`, that are predicted; at least one is."""
    unit: MaskUnit = "piece"
    """Unit that is masked as a whole: piece, word, span (of words), or entity (and words between entities)."""
    mask_share: float = 0.8
    """Share of the predicted tokens that become `[MASK]`."""
    random_share: float = 0.1
    """Share of the predicted tokens that become a random token; the rest is unchanged."""
    max_predictions: int | None = None
    """Maximum predicted tokens per sequence (BERT: 20 at length 128); none: no limit."""
    entity_rate: float = 0.5
    """Unit entity: probability that an entity is masked."""
    span_stop: float = 0.2
    """Unit span: probability that a span ends after each of its words (SpanBERT: 0.2)."""
    span_words: int = 10
    """Unit span: maximum words of a span."""
    together: bool = False
    """Choose between [MASK], random and unchanged once per unit instead of once per piece, as BERT does."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(MaskUnit):
            raise BadSetting(f"`unit` is {self.unit!r}. Use one of {', '.join(get_args(MaskUnit))}.")
        for name in ("rate", "span_stop"):
            if not 0 < getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; it must be above 0 and at most 1.")
        for name in ("mask_share", "random_share", "entity_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; it must be from 0 to 1.")
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise BadSetting(
                f"`mask_share` ({self.mask_share}) and `random_share` ({self.random_share}) are more than 1 together. "
                "What they leave of 1 is the share of tokens that are kept; lower one of them."
            )
        if self.span_words < 1:
            raise BadSetting(f"`span_words` is {self.span_words}; a span has at least one word.")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise BadSetting(
                f"`max_predictions` is {self.max_predictions}; use 1 or more, or leave it out for no limit."
            )


@dataclass(frozen=True, slots=True, eq=False)
class MaskedPositions:
    """The positions of an instance that are predicted."""

    positions: PositionArray
    """In ascending order."""
    units: PositionArray
    """For each position a number that it shares with the rest of its word, span or entity."""

    def __len__(self) -> int:
        return len(self.positions)


def choose_positions(instance: Instance, settings: MaskSettings, rng: np.random.Generator) -> MaskedPositions:
    """Choose the positions to predict, never `[CLS]` or `[SEP]`.

    As published, a unit that has more pieces than may still be predicted is passed over: fewer positions than the
    rate asks for are chosen then, and none at all if no unit fits.
    """
    candidates = np.flatnonzero(~instance.special)
    return _CHOOSERS[settings.unit](instance, candidates, settings, rng)


def corrupt(
    ids: npt.NDArray[np.int32],
    chosen: MaskedPositions,
    settings: MaskSettings,
    rng: np.random.Generator,
    *,
    mask_id: int,
    vocab_size: int,
) -> npt.NDArray[np.int32]:
    """Replace the chosen tokens by `[MASK]`, by a token drawn evenly from the whole vocabulary, or not at all."""
    draws = rng.random(chosen.units.max(initial=-1) + 1)[chosen.units] if settings.together else rng.random(len(chosen))
    masked = draws < settings.mask_share
    changed = ~masked & (draws < settings.mask_share + settings.random_share)
    corrupted = ids.copy()
    corrupted[chosen.positions[masked]] = mask_id
    corrupted[chosen.positions[changed]] = rng.integers(vocab_size, size=np.count_nonzero(changed))
    return corrupted


def _budget(tokens: int, settings: MaskSettings, *, least: int = 1, used: int = 0) -> int:
    """Count the predictions for so many tokens, when `used` predictions of the sequence are spent already."""
    budget = max(least, round(tokens * settings.rate))
    return budget if settings.max_predictions is None else min(budget, settings.max_predictions - used)


def _choose_pieces(
    instance: Instance, candidates: PositionArray, settings: MaskSettings, rng: np.random.Generator
) -> MaskedPositions:
    positions = np.sort(rng.permutation(candidates)[: _budget(len(instance), settings)])
    return MaskedPositions(positions, np.arange(len(positions)))


def _choose_words(
    instance: Instance, candidates: PositionArray, settings: MaskSettings, rng: np.random.Generator
) -> MaskedPositions:
    # As published, a continuation that truncation left at the start of B belongs to the last word of A.
    words = _number_units(instance.flags[candidates] & WORD_START != 0)
    return _take_units(candidates, words, rng.permutation(words.max(initial=-1) + 1), _budget(len(instance), settings))


def _choose_spans(
    instance: Instance, candidates: PositionArray, settings: MaskSettings, rng: np.random.Generator
) -> MaskedPositions:
    words = _number_units((instance.flags[candidates] & WORD_START != 0) | _after_gap(candidates))
    sizes = np.bincount(words).tolist()
    segments = instance.segments[candidates[np.searchsorted(words, np.arange(len(sizes)))]]
    ends = np.searchsorted(segments, segments, side="right").tolist()
    owners = [-1] * len(sizes)
    budget = _budget(len(instance), settings)
    # Words of tokens in random order: the same as drawing a token evenly until one is found that is not yet taken.
    for anchor in words[rng.permutation(len(words))].tolist():
        if budget and owners[anchor] < 0:
            end = min(ends[anchor], anchor + _span_length(settings, rng))
            budget = _grow(owners, sizes, anchor, end, budget)
    units = np.array(owners)[words]
    return MaskedPositions(candidates[units >= 0], units[units >= 0])


def _span_length(settings: MaskSettings, rng: np.random.Generator) -> int:
    """Draw from the geometric distribution cut off at the longest span, as SpanBERT does.

    It has no memory: what goes beyond the longest span starts again from one, which leaves the shares as they are.
    """
    return (int(rng.geometric(settings.span_stop)) - 1) % settings.span_words + 1


def _grow(owners: list[int], sizes: list[int], anchor: int, end: int, budget: int) -> int:
    """Add words to a span up to the first that does not fit, and return the rest of the budget."""
    for word in range(anchor, end):
        if owners[word] < 0:
            if sizes[word] > budget:
                break
            owners[word] = anchor
            budget -= sizes[word]
    return budget


def _choose_entities(
    instance: Instance, candidates: PositionArray, settings: MaskSettings, rng: np.random.Generator
) -> MaskedPositions:
    inside = instance.flags[candidates] & IN_ENTITY != 0
    named, plain = candidates[inside], candidates[~inside]
    chosen = _draw_entities(instance.flags, named, settings, rng)
    words = _number_units((instance.flags[plain] & WORD_START != 0) | _after_gap(plain))
    budget = _budget(len(instance) - len(named), settings, least=0 if len(chosen) else 1, used=len(chosen))
    others = _take_units(plain, words, rng.permutation(words.max(initial=-1) + 1), budget)
    positions = np.concatenate([chosen.positions, others.positions])
    units = np.concatenate([chosen.units, others.units + len(named)])
    order = np.argsort(positions)
    return MaskedPositions(positions[order], units[order])


def _draw_entities(
    flags: npt.NDArray[np.uint8], named: PositionArray, settings: MaskSettings, rng: np.random.Generator
) -> MaskedPositions:
    """Choose entities one by one; what truncation left of an entity counts as one."""
    entities = _number_units((flags[named] & ENTITY_START != 0) | _after_gap(named))
    drawn = np.flatnonzero(rng.random(entities.max(initial=-1) + 1) < settings.entity_rate)
    return _take_units(named, entities, rng.permutation(drawn), settings.max_predictions or len(named))


def _after_gap(positions: PositionArray) -> npt.NDArray[np.bool_]:
    """Mark the positions whose left neighbour is missing."""
    gaps = np.ones(len(positions), np.bool_)
    gaps[1:] = np.diff(positions) != 1
    return gaps


def _number_units(begins: npt.NDArray[np.bool_]) -> PositionArray:
    """Number the units from where they begin; the first begins in any case."""
    begins[:1] = True
    return np.cumsum(begins) - 1


def _take_units(candidates: PositionArray, units: PositionArray, order: PositionArray, budget: int) -> MaskedPositions:
    """Take units in the given order, passing over those that no longer fit."""
    sizes = np.bincount(units).tolist()
    is_chosen = [False] * len(sizes)
    for unit in order.tolist():
        if budget == 0:
            break
        if sizes[unit] <= budget:
            is_chosen[unit] = True
            budget -= sizes[unit]
    chosen = np.array(is_chosen, np.bool_)[units]
    return MaskedPositions(candidates[chosen], units[chosen])


_CHOOSERS: dict[MaskUnit, Callable[[Instance, PositionArray, MaskSettings, np.random.Generator], MaskedPositions]] = {
    "piece": _choose_pieces,
    "word": _choose_words,
    "span": _choose_spans,
    "entity": _choose_entities,
}


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
