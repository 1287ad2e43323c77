"""Hits, false alarms and misses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.tasks.metrics import Tally, f1, f1_measure, f1_of_sums

COUNTS = st.integers(0, 10**6)


@given(COUNTS, COUNTS, COUNTS)
def test_f1_is_the_harmonic_mean(tp: int, fp: int, fn: int) -> None:
    tally = Tally(tp=tp, fp=fp, fn=fn)
    both = tally.precision + tally.recall
    assert tally.f1 == pytest.approx(2 * tally.precision * tally.recall / both if both else 0.0)


@given(COUNTS, COUNTS, COUNTS)
def test_one_and_many_agree(tp: int, fp: int, fn: int) -> None:
    assert f1([tp, 0], [fp, 0], [fn, 0]).tolist() == [Tally(tp=tp, fp=fp, fn=fn).f1, 0.0]


def test_nothing_is_zero() -> None:
    nothing = Tally(tp=0, fp=0, fn=0)
    assert (nothing.precision, nothing.recall, nothing.f1, nothing.occurs) == (0.0, 0.0, 0.0, False)


def test_tallies_add_up() -> None:
    assert Tally.total([Tally(tp=1, fp=2, fn=3), Tally(tp=10, fp=20, fn=30)]) == Tally(tp=11, fp=22, fn=33)


def test_a_measure_counts_repetitions() -> None:
    measure = f1_measure(np.array([[2, 0, 0], [0, 1, 1]]))
    assert measure(np.array([0, 1, 1])) == pytest.approx(4 / 8)


def test_sums_are_scored_row_by_row() -> None:
    assert f1_of_sums(np.array([[1, 1, 1], [0, 0, 0], [3, 0, 0]])).tolist() == [0.5, 0.0, 1.0]
