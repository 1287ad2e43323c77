"""Masks are distributed as the published ones, and units are masked whole or not at all."""

from itertools import combinations
from random import Random

import numpy as np
import plain_bert
import pytest
from chi_square import UNLIKELY, alike, fits
from hypothesis import given
from hypothesis import strategies as st

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, WORD_START
from alembert.data.masking import MaskedPositions, MaskSettings, choose_positions, corrupt
from alembert.data.sequences import Instance
from alembert.errors import BadSetting

MASK = 4
UNITS = ("piece", "word", "span", "entity")


def instance_of(*segments: list[int]) -> Instance:
    """Make `[CLS] segment [SEP] ...` from the flags of the tokens."""
    flags, numbers = [0], [0]
    for number, segment in enumerate(segments):
        flags += [*segment, 0]
        numbers += [number] * (len(segment) + 1)
    special = np.zeros(len(flags), np.bool_)
    special[np.cumsum([0, *(len(segment) + 1 for segment in segments)])] = True
    ids = np.arange(10, 10 + len(flags), dtype=np.int32)
    return Instance(ids, np.array(numbers, np.uint8), np.array(flags, np.uint8), special)


def from_tokens(tokens: list[str]) -> Instance:
    """Make an instance from pieces of words, special tokens included."""
    special = np.array([token in plain_bert.SPECIAL for token in tokens])
    flags = np.array([WORD_START * (not token.startswith("##")) for token in tokens], np.uint8)
    segments = np.zeros(len(tokens), np.uint8)
    segments[tokens.index("[SEP]") + 1 :] = 1
    return Instance(np.arange(len(tokens), dtype=np.int32), segments, flags * ~special, special)


def positions(instance: Instance, seed: int = 0, **settings) -> list[int]:
    return choose_positions(instance, MaskSettings(**settings), np.random.default_rng(seed)).positions.tolist()


def drawn(instance: Instance, count: int, **settings) -> list[MaskedPositions]:
    rng, mask = np.random.default_rng(21), MaskSettings(**settings)
    return [choose_positions(instance, mask, rng) for _ in range(count)]


def entity(size: int) -> list[int]:
    """Make the flags of an entity of one-piece words."""
    flags = np.full(size, WORD_START | IN_ENTITY)
    flags[0] |= ENTITY_START
    flags[-1] |= ENTITY_END
    return flags.tolist()


# --- how many ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [20, 76])
@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_as_many_pieces_as_published_at_every_length(rate, most) -> None:
    for length in range(4, 513):
        found = positions(instance_of([WORD_START] * (length - 2)), rate=rate, max_predictions=most)
        assert len(found) == plain_bert.count(length, rate, most)


@pytest.mark.parametrize("unit", UNITS)
def test_at_least_one_is_predicted(unit) -> None:
    assert positions(instance_of([WORD_START]), unit=unit, rate=0.01) == [1]


@pytest.mark.parametrize("unit", UNITS)
def test_everything_can_be_predicted_and_nothing_more(unit) -> None:
    assert positions(instance_of([WORD_START] * 3, [WORD_START] * 2), unit=unit, rate=1.0) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("unit", UNITS)
def test_never_more_than_the_most(unit) -> None:
    assert len(positions(instance_of([WORD_START] * 100), unit=unit, max_predictions=7)) == 7


# --- in distribution ---------------------------------------------------------------------------------------------

TOKENS = ["[CLS]", "##x", "a", "b", "##b", "[SEP]", "##y", "c", "d", "##d", "##d", "e", "[SEP]"]
"""Truncated on both sides: a continuation after `[CLS]`, and one after `[SEP]`."""


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("unit", ["piece", "word"])
def test_the_sets_of_positions_are_distributed_as_published(unit, rate, count) -> None:
    rng = Random(3)
    mine = [tuple(chosen.positions) for chosen in drawn(from_tokens(TOKENS), count, unit=unit, rate=rate)]
    theirs = [tuple(plain_bert.chosen(TOKENS, rate, 20, unit == "word", rng)) for _ in range(count)]
    assert alike(mine, theirs) > UNLIKELY


def test_every_set_of_pieces_is_as_likely() -> None:
    found = [tuple(chosen.positions) for chosen in drawn(instance_of([WORD_START] * 7), 30_000, rate=0.3)]
    assert fits(found, dict.fromkeys(combinations(range(1, 8), 3), 1 / 35)) > UNLIKELY


@pytest.mark.parametrize(
    ("tokens", "rate", "stop", "longest"),
    [("a b ##b c d ##d ##d e", 0.45, 0.2, 10), ("a b c d e f g h", 0.5, 0.5, 3)],
)
def test_spans_are_distributed_as_in_spanbert(tokens, rate, stop, longest) -> None:
    tokens, rng = ["[CLS]", *tokens.split(), "[SEP]"], Random(4)
    settings = {"unit": "span", "rate": rate, "span_stop": stop, "span_words": longest}
    mine = [spans_of(chosen) for chosen in drawn(from_tokens(tokens), 12_000, **settings)]
    theirs = [tuple(plain_bert.spans(tokens, rate, stop, longest, rng)) for _ in range(12_000)]
    assert alike(mine, theirs) > UNLIKELY


def spans_of(chosen: MaskedPositions) -> tuple[tuple[int, ...], ...]:
    units = np.unique(chosen.units)
    return tuple(sorted(tuple(chosen.positions[chosen.units == unit].tolist()) for unit in units))


def replaced(count: int, vocab_size: int, **settings) -> np.ndarray:
    """Corrupt tokens that are all 0 and all chosen, each a unit."""
    everything = MaskedPositions(np.arange(count), np.arange(count))
    ids, rng = np.zeros(count, np.int32), np.random.default_rng(31)
    return corrupt(ids, everything, MaskSettings(**settings), rng, mask_id=MASK, vocab_size=vocab_size)


def test_eight_tenths_masked_one_random_one_kept_as_published() -> None:
    size, rng = 10, Random(6)
    vocabulary = [*range(MASK), "[MASK]", *range(MASK + 1, size)]
    theirs = [plain_bert.corrupted(0, vocabulary, rng) for _ in range(100_000)]
    mine = ["[MASK]" if token == MASK else token for token in replaced(100_000, size).tolist()]
    assert alike(mine, theirs) > UNLIKELY


def test_the_shares_are_exact_and_random_tokens_are_even_over_the_whole_vocabulary() -> None:
    size = 50
    shares = dict.fromkeys(range(size), 0.1 / size)
    shares[MASK] += 0.8
    shares[0] += 0.1
    assert fits(replaced(200_000, size).tolist(), shares) > UNLIKELY


def test_other_shares_are_kept_to() -> None:
    found = replaced(50_000, 2, mask_share=0.5, random_share=0.2).tolist()
    assert fits(found, {MASK: 0.5, 0: 0.4, 1: 0.1}) > UNLIKELY


def test_each_entity_is_chosen_on_its_own_at_its_rate() -> None:
    instance = instance_of([*entity(2), WORD_START, *entity(1), WORD_START, WORD_START])
    found = [
        (1 in chosen.positions, 4 in chosen.positions)
        for chosen in drawn(instance, 10_000, unit="entity", entity_rate=0.3)
    ]
    shares = {(True, True): 0.09, (True, False): 0.21, (False, True): 0.21, (False, False): 0.49}
    assert fits(found, shares) > UNLIKELY


# --- words -------------------------------------------------------------------------------------------------------


def words_of(instance: Instance) -> list[list[int]]:
    tokens = [
        "[SEP]" if special else "a" if flags & WORD_START else "##a"
        for special, flags in zip(instance.special, instance.flags, strict=True)
    ]
    return plain_bert.words(tokens, whole=True)


def test_a_word_that_exceeds_the_number_is_passed_over() -> None:
    instance = instance_of([WORD_START, 0, 0, WORD_START, WORD_START, 0, 0, 0])
    assert all(positions(instance, seed, unit="word", rate=0.15) == [4] for seed in range(20))


def test_nothing_is_predicted_when_no_word_fits_as_published() -> None:
    assert positions(instance_of([WORD_START, 0, 0]), unit="word") == []


def test_a_continuation_after_cls_stands_alone() -> None:
    found = {tuple(positions(instance_of([0, WORD_START, 0]), seed, unit="word")) for seed in range(20)}
    assert found == {(1,)}


def test_a_continuation_after_sep_belongs_to_the_word_before_as_published() -> None:
    instance = instance_of([WORD_START], [0, WORD_START, 0, 0])
    assert {tuple(positions(instance, seed, unit="word", rate=0.25)) for seed in range(20)} == {(1, 3)}


# --- entities ----------------------------------------------------------------------------------------------------


def test_with_no_chance_for_entities_only_words_between_them_are_masked() -> None:
    instance = instance_of([*entity(3), WORD_START, WORD_START, *entity(2)])
    found = {place for seed in range(50) for place in positions(instance, seed, unit="entity", entity_rate=0)}
    assert found == {4, 5}


def test_a_chosen_entity_is_enough_where_few_other_tokens_are() -> None:
    instance = instance_of([*entity(4), WORD_START])
    assert positions(instance, unit="entity", entity_rate=1) == [1, 2, 3, 4]


def test_the_rate_holds_for_the_tokens_outside_entities() -> None:
    instance = instance_of([*entity(10), *[WORD_START] * 38])
    found = positions(instance, unit="entity", entity_rate=1, rate=0.25)
    assert (found[:10], len(found)) == (list(range(1, 11)), 10 + 10)


def test_entities_that_touch_are_two() -> None:
    instance = instance_of([*entity(2), *entity(2)])
    found = {tuple(positions(instance, seed, unit="entity")) for seed in range(60)}
    assert found == {(), (1, 2), (3, 4), (1, 2, 3, 4)}


def test_what_truncation_left_of_an_entity_is_a_unit() -> None:
    instance = instance_of(entity(4)[2:], entity(5)[:3])
    found = {tuple(positions(instance, seed, unit="entity")) for seed in range(60)}
    assert found == {(), (1, 2), (4, 5, 6), (1, 2, 4, 5, 6)}


def test_an_entity_above_the_most_predictions_is_passed_over() -> None:
    instance = instance_of([*entity(5), WORD_START, *entity(2)])
    for seed in range(20):
        assert positions(instance, seed, unit="entity", entity_rate=1, max_predictions=3)[-2:] == [7, 8]


def test_entities_and_words_share_the_most_predictions() -> None:
    instance = instance_of([*entity(2), *[WORD_START] * 8])
    for seed in range(20):
        found = positions(instance, seed, unit="entity", entity_rate=1, rate=0.9, max_predictions=5)
        assert (found[:2], len(found)) == ([1, 2], 5)


def test_a_word_does_not_go_on_behind_an_entity() -> None:
    instance = instance_of([WORD_START, *entity(1), 0, 0])
    found = {tuple(positions(instance, seed, unit="entity", entity_rate=0)) for seed in range(30)}
    assert found == {(1,)}


# --- for all instances -------------------------------------------------------------------------------------------

words = st.integers(1, 4).map(lambda size: [WORD_START] + [0] * (size - 1))


def named(parts: list[list[int]]) -> list[int]:
    flags = [flag | IN_ENTITY for part in parts for flag in part]
    flags[0] |= ENTITY_START
    flags[-1] |= ENTITY_END
    return flags


entities = st.lists(words, min_size=1, max_size=3).map(named)


@st.composite
def segments(draw: st.DrawFn) -> list[int]:
    """Draw the flags of words and entities, cut at both ends as truncation does."""
    parts = draw(st.lists(st.one_of(words, words, entities), min_size=1, max_size=12))
    flags = [flag for part in parts for flag in part]
    start = draw(st.integers(0, min(3, len(flags) - 1)))
    end = draw(st.integers(start + 1, len(flags)))
    return flags[start:end]


instances = st.lists(segments(), min_size=1, max_size=2).map(lambda found: instance_of(*found))
rates = st.floats(0.01, 1)
limits = st.none() | st.integers(1, 20)
seeds = st.integers(0, 2**32)


def runs(instance: Instance) -> list[list[int]]:
    """Find the entities, token by token."""
    found: list[list[int]] = []
    open_ = False
    for place, flags in enumerate(instance.flags.tolist()):
        if not flags & IN_ENTITY:
            open_ = False
            continue
        if flags & ENTITY_START or not open_:
            found.append([])
        found[-1].append(place)
        open_ = not flags & ENTITY_END
    return found


def split(units: list[list[int]], found: list[int]) -> bool:
    """Say whether some unit is neither whole nor absent."""
    return any(0 < len(set(unit) & set(found)) < len(unit) for unit in units)


@given(instances, st.sampled_from(UNITS), rates, limits, seeds)
def test_positions_are_sorted_and_never_special(instance, unit, rate, limit, seed) -> None:
    found = positions(instance, seed, unit=unit, rate=rate, max_predictions=limit)
    assert found == sorted(set(found))
    assert not instance.special[found].any()


@given(instances, st.sampled_from(["piece", "word", "span"]), rates, limits, seeds)
def test_the_number_is_never_exceeded(instance, unit, rate, limit, seed) -> None:
    most = plain_bert.count(len(instance), rate, limit or len(instance))
    assert len(positions(instance, seed, unit=unit, rate=rate, max_predictions=limit)) <= most


@given(instances, rates, limits, seeds)
def test_words_are_whole_and_none_that_fits_is_left(instance, rate, limit, seed) -> None:
    found = positions(instance, seed, unit="word", rate=rate, max_predictions=limit)
    left = plain_bert.count(len(instance), rate, limit or len(instance)) - len(found)
    assert not split(words_of(instance), found)
    assert all(len(word) > left for word in words_of(instance) if word[0] not in found)


@given(instances, rates, limits, seeds)
def test_entities_are_whole(instance, rate, limit, seed) -> None:
    found = positions(instance, seed, unit="entity", rate=rate, max_predictions=limit)
    assert not split(runs(instance), found)
    assert len(found) <= (limit or len(instance))


@given(instances, rates, seeds, st.integers(1, 5))
def test_a_span_is_a_few_whole_words_of_one_segment(instance, rate, seed, longest) -> None:
    settings = MaskSettings(unit="span", rate=rate, span_words=longest)
    chosen = choose_positions(instance, settings, np.random.default_rng(seed))
    inside = [
        [place for place in word if instance.segments[place] == segment]
        for word in words_of(instance)
        for segment in (0, 1)
    ]
    assert not split(inside, chosen.positions.tolist())
    for span in spans_of(chosen):
        assert len({instance.segments[place] for place in span}) == 1
        assert sum(word[0] in span for word in inside if word) <= longest


@given(instances, st.sampled_from(["word", "entity"]), rates, seeds)
def test_units_are_the_words_and_entities(instance, unit, rate, seed) -> None:
    chosen = choose_positions(instance, MaskSettings(unit=unit, rate=rate), np.random.default_rng(seed))
    known = words_of(instance) if unit == "word" else runs(instance)
    for group in known:
        assert len(set(chosen.units[np.isin(chosen.positions, group)].tolist())) <= 1


@given(instances, st.sampled_from(UNITS), seeds)
def test_a_unit_is_masked_together_when_asked(instance, unit, seed) -> None:
    settings = MaskSettings(unit=unit, rate=0.7, mask_share=0.5, random_share=0, together=True)
    rng = np.random.default_rng(seed)
    chosen = choose_positions(instance, settings, rng)
    seen = corrupt(instance.ids, chosen, settings, rng, mask_id=MASK, vocab_size=100)
    for number in set(chosen.units.tolist()):
        assert len(set((seen == MASK)[chosen.positions[chosen.units == number]].tolist())) == 1


@given(instances, st.sampled_from(UNITS), st.booleans(), seeds)
def test_other_tokens_and_the_original_stay(instance, unit, together, seed) -> None:
    before = instance.ids.copy()
    settings, rng = MaskSettings(unit=unit, together=together), np.random.default_rng(seed)
    chosen = choose_positions(instance, settings, rng)
    seen = corrupt(instance.ids, chosen, settings, rng, mask_id=MASK, vocab_size=100)
    rest = np.setdiff1d(np.arange(len(instance)), chosen.positions)
    assert (seen[rest] == before[rest]).all()
    assert (instance.ids == before).all()
    assert seen.dtype == np.int32


@given(instances, st.sampled_from(UNITS), seeds)
def test_the_same_generator_gives_the_same_positions(instance, unit, seed) -> None:
    assert positions(instance, seed, unit=unit) == positions(instance, seed, unit=unit)


# --- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": 1.5},
        {"rate": float("nan")},
        {"unit": "letter"},
        {"mask_share": -0.1},
        {"random_share": 1.1},
        {"mask_share": 0.8, "random_share": 0.3},
        {"max_predictions": 0},
        {"entity_rate": 2},
        {"span_stop": 0},
        {"span_words": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_by_name(wrong) -> None:
    with pytest.raises(BadSetting, match="|".join(f"`{name}`" for name in wrong)):
        MaskSettings(**wrong)


def test_the_defaults_are_the_published_ones() -> None:
    settings = MaskSettings()
    assert (settings.rate, settings.mask_share, settings.random_share) == (0.15, 0.8, 0.1)
    assert (settings.unit, settings.together) == ("piece", False)
