"""Confidence: temperature, reliability, abstaining and thresholds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn import metrics

from alembert.tasks.metrics.calibration import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    CalibrationBin,
    best_threshold,
    compute_coverage_curve,
    ece,
    fit_binary_temperature,
    fit_temperature,
    reliability_bins,
    sigmoid,
    softmax,
)

SEEDS = st.integers(0, 10**6)


def drawn_classes(seed: int, temperature: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose right classes are drawn at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 4)) * 2
    chance = softmax(logits / temperature).cumsum(axis=1)
    return logits, (rng.random((count, 1)) > chance).sum(axis=1).clip(0, 3)


@given(SEEDS, st.floats(0.4, 4))
@settings(deadline=None, max_examples=25)
def test_no_temperature_makes_the_answers_more_likely(seed: int, temperature: float) -> None:
    logits, labels = drawn_classes(seed, temperature)

    def loss(log_temperature: float) -> float:
        return metrics.log_loss(labels, softmax(logits / np.exp(log_temperature)), labels=range(4))

    best = minimize_scalar(loss, bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)), method="bounded").fun
    assert loss(np.log(fit_temperature(logits, labels))) <= best + 1e-9


@given(SEEDS, st.floats(0.4, 4))
@settings(deadline=None, max_examples=25)
def test_no_temperature_makes_yes_and_no_more_likely(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(200, 3)) * 3
    gold = rng.random(logits.shape) < sigmoid(logits / temperature)

    def loss(log_temperature: float) -> float:
        return metrics.log_loss(gold.ravel(), sigmoid(logits / np.exp(log_temperature)).ravel())

    best = minimize_scalar(loss, bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)), method="bounded").fun
    assert loss(np.log(fit_binary_temperature(logits, gold))) <= best + 1e-9


def test_the_temperature_is_found_again() -> None:
    assert fit_temperature(*drawn_classes(1, 2.5, count=20_000)) == pytest.approx(2.5, rel=0.05)


def test_answers_that_are_all_right_give_the_lowest_temperature() -> None:
    assert fit_temperature([[9.0, 0.0], [0.0, 9.0]], [0, 1]) == MIN_TEMPERATURE
    assert fit_binary_temperature([[5.0], [-5.0]], [[1], [0]]) == MIN_TEMPERATURE


def test_answers_that_are_all_wrong_give_the_highest_temperature() -> None:
    assert fit_temperature([[9.0, 0.0], [0.0, 9.0]], [1, 0]) == MAX_TEMPERATURE


def test_logits_that_say_nothing_stay_in_bounds() -> None:
    assert MIN_TEMPERATURE <= fit_temperature(np.zeros((3, 2)), [0, 1, 0]) <= MAX_TEMPERATURE


def test_without_examples_the_temperature_is_one() -> None:
    assert fit_temperature(np.zeros((0, 3)), []) == fit_binary_temperature(np.zeros((0, 3)), []) == 1.0


def test_huge_logits_do_not_overflow() -> None:
    assert np.isfinite(softmax(np.array([[1e4, -1e4]]))).all()
    assert sigmoid(np.array([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.5, 1.0]


# -- how well confidence fits


def test_bins_hold_their_upper_edge() -> None:
    found = reliability_bins([0.0, 0.5, 0.51, 1.0], [0, 1, 1, 0], bins=2)
    assert found == [
        CalibrationBin(low=0.0, high=0.5, count=2, confidence=0.25, accuracy=0.5),
        CalibrationBin(low=0.5, high=1.0, count=2, confidence=0.755, accuracy=0.5),
    ]


def test_empty_bins_are_left_out() -> None:
    assert [part.count for part in reliability_bins([0.05, 0.95], [0, 1])] == [1, 1]


@given(st.lists(st.tuples(st.floats(0, 1, allow_subnormal=False), st.booleans()), min_size=1), st.integers(1, 20))
def test_every_answer_is_in_one_bin(answers: list[tuple[float, bool]], bins: int) -> None:
    found = reliability_bins(*zip(*answers, strict=True), bins)
    assert sum(part.count for part in found) == len(answers)
    assert all(part.low - 1e-12 <= part.confidence <= part.high + 1e-12 for part in found)


def test_ece_weighs_gaps_by_answers() -> None:
    found = reliability_bins([0.9, 0.9, 0.9, 0.4], [1, 1, 0, 0])
    assert ece(found) == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.4)


def test_ece_of_nothing_is_zero() -> None:
    assert ece(reliability_bins([], [])) == 0.0


# -- abstaining


def test_abstaining_trades_answers_for_accuracy() -> None:
    curve = compute_coverage_curve([0.9, 0.6, 0.8, 0.6], [1, 0, 1, 1])
    assert curve.threshold.tolist() == [0.9, 0.8, 0.6]
    assert curve.coverage.tolist() == [0.25, 0.5, 1.0]
    assert curve.accuracy.tolist() == [1.0, 1.0, 0.75]


# -- thresholds of labels


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1))
@settings(deadline=None, max_examples=30)
def test_no_threshold_has_a_better_f1(answers: list[tuple[int, bool]]) -> None:
    scores, gold = np.array(answers).T
    all_f1 = [metrics.f1_score(gold, scores >= cut, zero_division=0) for cut in range(11)]
    assert metrics.f1_score(gold, scores >= best_threshold(scores, gold), zero_division=0) == max(all_f1)


def test_without_yes_the_threshold_is_the_default() -> None:
    assert best_threshold([0.2, 0.7], [False, False]) == 0.5


@pytest.mark.parametrize("low", [0.3, float(np.nextafter(0.3, 1))])
def test_the_threshold_parts_neighbouring_numbers(low: float) -> None:
    high = float(np.nextafter(low, 1))
    assert best_threshold([low, high], [False, True]) == high
