"""Windows: every token is owned once, with context, and borders stand where they should."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.data.windows import Window, compute_windows
from alembert.errors import BadSetting


@st.composite
def texts(draw: st.DrawFn) -> tuple[int, int, int, list[int], npt.NDArray[np.bool_]]:
    """Draw words of up to 9 tokens, some of which start sentences, and a limit and an overlap."""
    sizes = draw(st.lists(st.integers(1, 9), max_size=60))
    starts = np.cumsum([0, *sizes])
    solid = np.ones(starts[-1], bool)
    solid[starts[:-1]] = False
    breaks = [int(start) for start in starts[:-1] if draw(st.integers(0, 3)) == 0]
    limit = draw(st.integers(1, 40))
    return len(solid), limit, draw(st.integers(0, limit - 1)), breaks, solid


def word_starts(solid: npt.NDArray[np.bool_], limit: int) -> set[int]:
    """Say where borders may stand, one token after the other."""
    found = [at for at in range(len(solid)) if at == 0 or not solid[at]] + [len(solid)]
    long = {at for one, other in pairwise(found) if other - one > limit for at in range(one, other)}
    return set(found) | long


@given(texts())
def test_own_zones_share_out_all_tokens_in_order(text):
    length, *settings = text
    owned = [at for window in compute_windows(length, *settings) for at in range(window.own_start, window.own_end)]
    assert owned == list(range(length))


@given(texts())
def test_own_zones_lie_inside_windows_within_the_limit(text):
    length, limit, *_ = text
    for window in compute_windows(*text):
        assert 0 <= window.start <= window.own_start < window.own_end <= window.end <= length
        assert window.end - window.start <= limit


@given(texts())
def test_windows_advance(text):
    for one, other in pairwise(compute_windows(*text)):
        assert one.start < other.start <= one.end < other.end


@given(texts())
def test_no_border_stands_inside_a_word(text):
    _, limit, _, _, solid = text
    allowed = word_starts(solid, limit)
    for window in compute_windows(*text):
        assert {window.start, window.end, window.own_start, window.own_end} <= allowed


@given(texts())
def test_own_zones_keep_away_from_cut_borders_where_words_allow_it(text):
    _, limit, overlap, _, solid = text
    allowed = word_starts(solid, limit)
    for one, other in pairwise(compute_windows(*text)):
        safe = range(other.start + overlap // 2, one.end - overlap // 2 + 1)
        assert one.own_end in safe or allowed.isdisjoint(safe)


@given(texts())
def test_a_text_that_fits_is_one_window(text):
    length, limit, *_ = text
    if 0 < length <= limit:
        assert compute_windows(*text) == [Window(0, length, 0, length)]


@given(st.integers(1, 2000), st.integers(2, 100), st.data())
def test_without_words_windows_are_full_and_overlap_exactly(length, limit, data):
    overlap = data.draw(st.integers(0, limit - 1))
    found = compute_windows(length, limit, overlap)
    assert all(window.end - window.start == limit for window in found[:-1])
    assert all(one.end - other.start == overlap for one, other in pairwise(found))


@given(st.integers(8, 60), st.data())
def test_sentences_shorter_than_the_reach_are_never_cut_by_a_window(limit, data):
    overlap = data.draw(st.integers(0, limit // 2))
    sizes = data.draw(st.lists(st.integers(1, (limit - overlap) // 4), max_size=80))
    starts = {0, *np.cumsum(sizes).tolist()}
    for window in compute_windows(sum(sizes), limit, overlap, sorted(starts)):
        assert {window.start, window.end} <= starts


@given(texts())
def test_the_first_window_ends_at_the_last_sentence_start_within_reach(text):
    length, limit, overlap, breaks, _ = text
    within = [at for at in breaks if limit - (limit - overlap) // 4 <= at <= limit and at > 0]
    if within and length > limit:
        assert compute_windows(*text)[0].end == within[-1]


def test_sentences_of_equal_length_are_kept_whole():
    found = compute_windows(1000, 100, 20, range(0, 1000, 10))
    assert all(at % 10 == 0 for window in found for at in (window.start, window.end, window.own_start))


def test_a_sentence_start_out_of_reach_wastes_nothing():
    assert compute_windows(300, 100, 20, [50])[0].end == 100


def test_words_longer_than_the_limit_are_cut_anywhere():
    solid = np.ones(1000, bool)
    assert compute_windows(1000, 100, 20, (), solid) == compute_windows(1000, 100, 20)


def test_words_nearly_as_long_as_the_limit_are_not_cut():
    solid = np.arange(900) % 90 != 0
    assert [window.start for window in compute_windows(900, 100, 50, (), solid)] == list(range(0, 900, 90))


def test_a_long_word_after_short_ones_does_not_make_windows_that_end_alike():
    solid = np.zeros(1000, bool)
    solid[101:550] = True
    found = compute_windows(1000, 510, 64, (), solid)
    assert [(window.start, window.end) for window in found] == [(0, 100), (40, 550), (100, 610), (550, 1000)]


def test_sentence_starts_inside_a_word_or_outside_the_text_are_left_out():
    solid = np.zeros(200, bool)
    solid[98] = True
    assert compute_windows(200, 100, 20, [-5, 98, 700], solid) == compute_windows(200, 100, 20, (), solid)


@pytest.mark.parametrize("length", [10_000, 1_000_000])
def test_long_texts_are_cut_into_as_few_windows_as_the_advance_allows(length):
    chance = np.random.default_rng(7)
    solid = chance.random(length) < 0.3
    breaks = np.flatnonzero(~solid & (chance.random(length) < 0.04)).tolist()
    found = compute_windows(length, 510, 128, breaks, solid)
    assert length / (510 - 128) - 1 <= len(found) <= 2 * length / (510 - 128) + 1
    assert sum(window.own_end - window.own_start for window in found) == length


def test_an_empty_text_has_no_window():
    assert compute_windows(0, 10, 2) == []


@pytest.mark.parametrize(("limit", "overlap"), [(0, 0), (-3, 0), (10, 10), (10, 12), (10, -1)])
def test_settings_that_cannot_work_are_refused(limit, overlap):
    with pytest.raises(BadSetting, match="expected"):
        compute_windows(100, limit, overlap)


def test_the_sentence_about_overlaps_says_what_was_found_and_what_can_be():
    with pytest.raises(BadSetting, match="is 10 tokens, and a window has at most 8; expected an overlap from 0 to 7"):
        compute_windows(100, 8, 10)
