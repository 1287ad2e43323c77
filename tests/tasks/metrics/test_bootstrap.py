"""Intervals and tests: deterministic, equal to scipy where it has them, and right about as often as they say."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from alembert.errors import BadInput, BadSetting
from alembert.tasks.metrics import Interval, bootstrap_interval, compare_paired


def mean_of(values: np.ndarray) -> Callable[[np.ndarray], float]:
    return lambda indices: float(values[indices].mean())


def some(seed: int, size: int = 100) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def test_a_seed_gives_the_same_interval() -> None:
    measure = mean_of(some(1))
    assert bootstrap_interval(measure, 100, rounds=50, seed=3) == bootstrap_interval(measure, 100, rounds=50, seed=3)


def test_another_seed_gives_another_interval() -> None:
    measure = mean_of(some(1))
    assert bootstrap_interval(measure, 100, rounds=50, seed=3) != bootstrap_interval(measure, 100, rounds=50, seed=4)


def test_samples_are_full_and_reach_every_example() -> None:
    seen: list[np.ndarray] = []

    def measure(indices: np.ndarray) -> float:
        seen.append(indices)
        return 0.0

    bootstrap_interval(measure, 7, rounds=60, seed=0)
    assert {len(drawn) for drawn in seen} == {7}
    assert set(np.concatenate(seen)) == set(range(7))


def test_the_interval_is_that_of_scipy() -> None:
    values = some(2, 200)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=1).confidence_interval
    ours = bootstrap_interval(mean_of(values), 200, rounds=4000, seed=1)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        found = bootstrap_interval(mean_of(some(seed, 50)), 50, rounds=200, level=0.9, seed=seed)
        held += found.low <= 0 <= found.high
    assert 165 <= held <= 193  # 90 % of 200, four standard deviations around what 50 examples give


def test_a_wider_level_gives_a_wider_interval() -> None:
    narrow, wide = (bootstrap_interval(mean_of(some(1)), 100, rounds=300, level=level, seed=0) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_score_without_spread_has_no_width() -> None:
    assert bootstrap_interval(lambda indices: 0.25, 10, rounds=20, seed=0) == Interval(0.25, 0.25)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap_interval(lambda indices: 0.0, 0),
        lambda: compare_paired(lambda indices: 0.0, lambda indices: 0.0, 0),
    ],
)
def test_examples_that_cannot_be_resampled_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(BadInput):
        call()


@pytest.mark.parametrize("setting", [{"rounds": 0}, {"level": 0.0}, {"level": 1.0}, {"level": 95}])
def test_bad_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(BadSetting):
        bootstrap_interval(lambda indices: 0.0, 3, **setting)


# -- two models


def test_a_model_is_not_better_than_itself() -> None:
    measure = mean_of(some(1))
    found = compare_paired(measure, measure, 100, rounds=50, seed=0)
    assert (found.difference, found.interval, found.p_value) == (0.0, Interval(0.0, 0.0), 1.0)


def test_a_clear_difference_is_seen() -> None:
    found = compare_paired(mean_of(some(1) + 1), mean_of(some(2)), 100, rounds=999, seed=0)
    assert found.p_value == 0.001
    assert found.interval.low > 0


def test_the_paired_p_value_is_near_that_of_the_t_test() -> None:
    one, other = some(5), some(6) - 0.25
    theirs = stats.ttest_rel(one, other).pvalue
    assert compare_paired(mean_of(one), mean_of(other), 100, rounds=4000, seed=0).p_value == pytest.approx(
        theirs, abs=0.03
    )


def test_exchanging_models_turns_the_difference_around() -> None:
    one, other = mean_of(some(5)), mean_of(some(6))
    there, back = compare_paired(one, other, 100, rounds=99, seed=1), compare_paired(other, one, 100, rounds=99, seed=1)
    assert (back.difference, back.p_value) == (-there.difference, there.p_value)


def test_a_chance_difference_is_found_about_as_often_as_it_says() -> None:
    p_values = [
        compare_paired(mean_of(some(2 * seed, 60)), mean_of(some(2 * seed + 1, 60)), 60, rounds=99, seed=seed).p_value
        for seed in range(200)
    ]
    assert 3 <= sum(value <= 0.1 for value in p_values) <= 38


# -- documents


def test_examples_of_one_document_are_drawn_together() -> None:
    seen: list[set[int]] = []

    def measure(drawn: np.ndarray) -> float:
        seen.append(set(drawn.tolist()))
        return 0.0

    bootstrap_interval(measure, 6, rounds=50, kin=np.array([0, 1, 0, 2, 2, 2]))
    assert all(({0, 2} <= each) == (0 in each) and ({3, 4, 5} <= each) == (4 in each) for each in seen)


def test_documents_of_one_example_are_examples() -> None:
    values = np.arange(40.0)
    mean = lambda drawn: float(values[drawn].mean())  # noqa: E731
    assert bootstrap_interval(mean, 40, kin=np.arange(40)) == bootstrap_interval(mean, 40)


def test_copies_of_an_example_do_not_narrow_the_interval() -> None:
    values = np.repeat(np.arange(40.0), 10)
    mean = lambda drawn: float(values[drawn].mean())  # noqa: E731
    apart, together = bootstrap_interval(mean, 400), bootstrap_interval(mean, 400, kin=np.repeat(np.arange(40), 10))
    assert together.high - together.low > 2 * (apart.high - apart.low)
