"""Scores of numbers, equal to scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from alembert.tasks.metrics import calibration, classes

VALUES = st.integers(-5, 5) | st.floats(-100, 100, width=16, allow_subnormal=False)
SERIES = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=30)
Series = list[tuple[float, float]]


def varied(series: Series) -> bool:
    """Whether both sides vary by more than what scipy warns about as nearly constant."""
    return all(np.std(side) > 1e-6 * (1 + np.abs(side).max()) for side in np.array(series).T)


@given(SERIES.filter(varied))
@settings(deadline=None, max_examples=60)
def test_pearson_is_scipys(series: Series) -> None:
    gold, guess = np.array(series, float).T
    assert classes.pearson(gold, guess) == pytest.approx(stats.pearsonr(gold, guess).statistic, abs=1e-9)


@given(SERIES.filter(varied))
@settings(deadline=None, max_examples=60)
def test_spearman_is_scipys(series: Series) -> None:
    gold, guess = np.array(series, float).T
    assert classes.spearman(gold, guess) == pytest.approx(stats.spearmanr(gold, guess).statistic, abs=1e-9)


@given(st.lists(VALUES, min_size=1, max_size=30))
@settings(deadline=None, max_examples=60)
def test_ranks_are_scipys(values: list[float]) -> None:
    assert classes.mean_ranks(values).tolist() == stats.rankdata(values).tolist()


@given(SERIES)
@settings(deadline=None, max_examples=60)
def test_errors_are_scikit_learns(series: Series) -> None:
    gold, guess = np.array(series, float).T
    ours = classes.mse(gold, guess), classes.mae(gold, guess)
    theirs = metrics.mean_squared_error(gold, guess), metrics.mean_absolute_error(gold, guess)
    assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("score", [classes.pearson, classes.spearman])
def test_a_constant_correlates_with_nothing(score: object) -> None:
    assert score([0.1] * 3, [1.0, 2.0, 3.0]) == score([1.0, 2.0, 3.0], [0.1] * 3) == 0.0  # type: ignore[operator]


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_pearson_neither_overflows_nor_vanishes(scale: float) -> None:
    assert classes.pearson(np.array([1, 2, 4]) * scale, [1, 2, 4]) == pytest.approx(1)


def test_series_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        classes.mse([1, 2], [1])


def test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        classes.mae([], [])


@given(SERIES, st.data())
def test_a_resampled_spearman_is_that_of_the_sample(series: Series, data: st.DataObject) -> None:
    gold, guess = np.array(series, float).T
    drawn = np.array(data.draw(st.lists(st.integers(0, len(series) - 1), min_size=1, max_size=40)))
    measure = classes.spearman_measure(gold, guess)
    assert measure(drawn) == pytest.approx(classes.spearman(gold[drawn], guess[drawn]), abs=1e-12)


def test_a_resampled_pearson_is_that_of_the_sample() -> None:
    gold, guess, drawn = np.array([1.0, 2, 5]), np.array([2.0, 1, 7]), np.array([0, 2, 2, 1])
    assert classes.pearson_measure(gold, guess)(drawn) == classes.pearson(gold[drawn], guess[drawn])


def test_equal_values_are_not_parted() -> None:
    _, kept = calibration.sort_descending(np.array([0.5, 0.9, 0.5, -np.inf, -np.inf]))
    assert kept.tolist() == [1, 3, 5]
