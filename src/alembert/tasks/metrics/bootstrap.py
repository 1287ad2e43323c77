"""How far a score can be trusted: intervals, and tests whether one model is better than another.

A `SampleMetric` gives the score of a sample of examples, named by their numbers; everything here draws such samples, by
addressed chance, so that a seed always gives the same numbers. What lies inside one document is not independent, so it is
never torn apart: a document is one example, or its examples are drawn together. Work is one call of the measure per round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alembert.data.order import make_rng
from alembert.errors import BadInput, BadSetting
from alembert.tasks.metrics.tally import Floats, Ints

if TYPE_CHECKING:
    from alembert.tasks.task import SampleMetric


@dataclass(frozen=True)
class Interval:
    """Where a score lies, but for the chance in the choice of the examples."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Score of one model minus that of another on the same examples."""

    difference: float
    interval: Interval
    p_value: float
    """Two-sided: how often chance alone would make a difference as large as this."""


def bootstrap_interval(
    measure: SampleMetric,
    count: int,
    *,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    kin: Ints | None = None,
) -> Interval:
    """Find the interval of a score: percentiles over samples of `count` examples, drawn with repetition.

    Percentile bootstrap, Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. `kin` numbers the
    group that each example belongs to: groups are then drawn instead of examples, since what is in one is not independent.
    """
    values = np.array([measure(drawn) for drawn in _draws(count, rounds, seed, kin)])
    return _percentiles(values, level)


def compare_paired(
    measure_a: SampleMetric,
    measure_b: SampleMetric,
    count: int,
    *,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    kin: Ints | None = None,
) -> PairedComparison:
    """Compare two models on the same drawn examples; the p-value moves the differences to mean 0 first.

    Paired bootstrap, Efron and Tibshirani (1993), chapter 16; for language, Berg-Kirkpatrick et al. (2012).
    """
    everything = np.arange(count)
    draws = _draws(count, rounds, seed, kin)
    values = np.array([measure_a(drawn) - measure_b(drawn) for drawn in draws])
    difference = measure_a(everything) - measure_b(everything)
    p_value = _p_value(values - difference, difference)
    return PairedComparison(difference=difference, interval=_percentiles(values, level), p_value=p_value)


def _draws(count: int, rounds: int, seed: int, kin: Ints | None) -> Iterator[Ints]:
    _check(count, rounds)
    chance = make_rng(seed, "bootstrap")
    if kin is None:
        return (chance.integers(count, size=count) for _ in range(rounds))
    order = np.argsort(kin, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(kin[order])) + 1)
    if len(members) == count:
        return (order[chance.integers(count, size=count)] for _ in range(rounds))
    return (_members(members, chance.integers(len(members), size=len(members))) for _ in range(rounds))


def _members(members: Sequence[Ints], drawn: Ints) -> Ints:
    return np.concatenate([members[group] for group in drawn])


def _check(count: int, rounds: int) -> None:
    if not count:
        raise BadInput("There are no examples, so there is nothing to resample; give a file with examples.")
    if rounds < 1:
        raise BadSetting(f"`rounds` is {rounds}; expected at least 1, and 1000 for an interval of 95 %.")


def _percentiles(values: Floats, level: float) -> Interval:
    if not 0 < level < 1:
        raise BadSetting(f"`level` is {level}; expected a share between 0 and 1, such as 0.95.")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _p_value(values: Floats, observed: float) -> float:
    """Compute the share of values at least as far from 0, the observed one included, so that it is never 0."""
    # Sums in another order differ in the last bits, and equal differences must count as equal.
    extreme = int((np.abs(values) >= abs(observed) - 1e-12).sum())
    return (extreme + 1) / (len(values) + 1)
