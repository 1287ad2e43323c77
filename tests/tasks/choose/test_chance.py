"""What guessing gives, against scipy and against counting all guesses."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from alembert.tasks.choose.data import chance_level, chance_p_value


def test_the_level_is_the_mean_over_examples() -> None:
    assert chance_level([4, 5]) == pytest.approx((1 / 4 + 1 / 5) / 2)


@settings(deadline=None)
@given(count=st.integers(1, 3000), choices=st.integers(2, 6), data=st.data())
def test_one_number_of_choices_is_a_binomial(count: int, choices: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, count))
    expected = float(binom.sf(right - 1, count, 1 / choices))
    assert chance_p_value(right, [choices] * count) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(choices=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_mixed_numbers_of_choices_are_counted_out(choices: list[int], data: st.DataObject) -> None:
    right = data.draw(st.integers(0, len(choices)))
    guesses = list(product(*(range(count) for count in choices)))
    lucky = sum(guess.count(0) >= right for guess in guesses)
    assert chance_p_value(right, choices) == pytest.approx(lucky / len(guesses))


def test_without_examples_anything_is_chance() -> None:
    assert (chance_level([]), chance_p_value(0, [])) == (0.0, 1.0)
