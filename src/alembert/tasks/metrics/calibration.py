"""Whether a model is as sure as it is right, and what to do about it.

`fit_temperature` finds the one number that outputs are divided by so that probabilities mean what they say (Guo et al.
2017); the answers stay the same. `reliability_bins`, `ece` and `brier` say how well they do. `compute_coverage_curve` shows what is gained
by leaving the least sure answers to a person. All of it is to be chosen on development data: on the data that it was
chosen on, it looks better than it is.
"""

# N examples, C classes or labels
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics.bootstrap import Floats, f1, ratio
from alembert.tasks.metrics.numbers import sort_descending

MIN_TEMPERATURE: Final = 0.1
MAX_TEMPERATURE: Final = 10.0
"""Bounds of a temperature: where all answers are right the likelihood grows for ever as it falls."""


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Answers of about the same confidence."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean confidence of these answers."""
    accuracy: float


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """What remains, and how much of it is right, if answers below a threshold are withheld; most sure first."""

    threshold: Floats
    coverage: Floats
    """Share of the answers whose confidence is at least the threshold."""
    accuracy: Floats
    """Share of those that is right."""

    def threshold_for(self, accuracy_wanted: float) -> float | None:
        """Find the threshold that keeps most answers at this accuracy or better; None if there is none."""
        good = np.flatnonzero(self.accuracy >= accuracy_wanted)
        return float(self.threshold[good[-1]]) if len(good) else None


# -- temperature


def fit_temperature(logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> float:
    """Find the temperature at which the right classes are most likely; 1 if there are no examples."""
    logits, labels = np.asarray(logits_NC, np.float64), np.asarray(labels_N, np.int64)
    if not len(logits):
        return 1.0
    mean_right = logits[np.arange(len(logits)), labels].mean()

    def slope(scale: float) -> float:
        return float((softmax(logits * scale) * logits).sum(axis=1).mean() - mean_right)

    return solve_temperature(slope)


def fit_binary_temperature(logits: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Find one temperature for yes-or-no outputs of any shape, such as those of many labels."""
    outputs, right = np.asarray(logits, np.float64), np.asarray(gold, np.float64)
    if not outputs.size:
        return 1.0
    return solve_temperature(lambda scale: float(((sigmoid(outputs * scale) - right) * outputs).mean()))


def softmax(logits_NC: Floats) -> Floats:
    """Turn logits into probabilities of exclusive classes."""
    powers = np.exp(logits_NC - logits_NC.max(axis=-1, keepdims=True))
    probabilities: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: Floats) -> Floats:
    """Turn logits into probabilities of yes; exact at both ends."""
    small = np.exp(-np.abs(logits))
    probabilities: Floats = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return probabilities


def solve_temperature(slope: Callable[[float], float]) -> float:
    """Find where the slope of a loss is 0 that is convex in 1 / temperature, which `slope` takes: halving cannot go wrong."""
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    if slope(high) <= 0:
        return MIN_TEMPERATURE
    if slope(low) >= 0:
        return MAX_TEMPERATURE
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 2 / (low + high)


# -- how well confidence fits


def reliability_bins(confidence: npt.ArrayLike, right: npt.ArrayLike, bins: int = 10) -> list[CalibrationBin]:
    """Sort answers into bins of equal width by their confidence, 0 to 1; bins without answers are left out."""
    sure, is_right = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    edges = np.linspace(0, 1, bins + 1)
    places = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, bins - 1)
    counts, sums, hits = (np.bincount(places, weights=weights, minlength=bins) for weights in (None, sure, is_right))
    return [
        CalibrationBin(
            low=float(edges[place]),
            high=float(edges[place + 1]),
            count=int(counts[place]),
            confidence=float(sums[place] / counts[place]),
            accuracy=float(hits[place] / counts[place]),
        )
        for place in np.flatnonzero(counts)
    ]


def ece(bins: Sequence[CalibrationBin]) -> float:
    """Compute the expected calibration error: how far confidence is from accuracy, on average over answers."""
    gaps = sum(part.count * abs(part.accuracy - part.confidence) for part in bins)
    return ratio(gaps, sum(part.count for part in bins))


# -- thresholds


def compute_coverage_curve(confidence: npt.ArrayLike, right: npt.ArrayLike) -> CoverageCurve:
    """Compute the curve of accuracy against coverage; equally sure answers are kept or withheld together."""
    sure, is_right = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    order, kept = sort_descending(sure)
    hits = np.cumsum(is_right[order])[kept - 1]
    return CoverageCurve(sure[order[kept - 1]], kept / max(1, len(sure)), hits / kept)


def best_threshold(scores: npt.ArrayLike, gold: npt.ArrayLike, *, default: float = 0.5) -> float:
    """Find the threshold with the best F1, exactly: guess yes where score >= threshold.

    It lies half way to the next lower score; of equally good ones the highest is taken. Without any yes in gold no
    threshold is better than another, and it is the default.

    >>> best_threshold([0.1, 0.3, 0.6, 0.9], [False, True, False, True])
    0.2
    """
    values, is_gold = np.asarray(scores, np.float64), np.asarray(gold, bool)
    if not is_gold.any():
        return default
    order, kept = sort_descending(values)
    hits = np.cumsum(is_gold[order])[kept - 1]
    best = int(kept[np.argmax(f1(hits, kept - hits, is_gold.sum() - hits))])
    lowest_kept, highest_left = values[order[best - 1]], values[order[best : best + 1]]
    return _between(lowest_kept, highest_left[0]) if len(highest_left) else float(lowest_kept)


def _between(high: float, low: float) -> float:
    """Return the middle, or the upper one of two neighbouring numbers that have none."""
    middle = low + (high - low) / 2
    return float(middle if low < middle else high)
