"""Scores of predictions, how sure they are and how far they can be trusted; numpy alone, so that exported models can be
scored where there is no torch. Each module is for one kind of answer, `calibration` for all.

A `Tally` has hits, false alarms and misses, and the ratios that are made of them. A ratio that has nothing to divide by
is 0, as in scikit-learn and seqeval, and there is never a warning: who reports scores can tell from the tally
(`guessed`, `support`) that it was undefined.

>>> Tally(tp=3, fp=1, fn=2).precision, Tally(tp=3, fp=1, fn=2).recall, Tally(tp=0, fp=0, fn=0).f1
(0.75, 0.6, 0.0)

Intervals, and tests whether one model is better than another, say how far a score can be trusted. A `SampleMetric`
gives the score of a sample of examples, named by their numbers; everything here draws such samples, by addressed
chance, so that a seed always gives the same numbers. What lies inside one document is not independent, so it is never
torn apart: a document is one example, or its examples are drawn together. Work is one call of the measure per round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.data.order import make_rng
from alembert.errors import BadInput, BadSetting

if TYPE_CHECKING:
    from alembert.tasks.task import SampleMetric


# N examples, R samples


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What was found (`tp`), made up (`fp`) and missed (`fn`); halves where half a match counts."""

    tp: float
    fp: float
    fn: float

    @property
    def support(self) -> float:
        """Right answers that there are."""
        return self.tp + self.fn

    @property
    def guessed(self) -> float:
        return self.tp + self.fp

    @property
    def precision(self) -> float:
        return ratio(self.tp, self.guessed)

    @property
    def recall(self) -> float:
        return ratio(self.tp, self.support)

    @property
    def f1(self) -> float:
        return ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def occurs(self) -> bool:
        """Whether there is anything to score: right answers, or guesses."""
        return self.tp + self.fp + self.fn > 0

    def to_dict(self, *more: str) -> dict[str, float]:
        """Return the ratios and the support, with more by name."""
        return {name: getattr(self, name) for name in ("precision", "recall", "f1", "support", *more)}

    @classmethod
    def total(cls, parts: Iterable[Tally]) -> Tally:
        listed = list(parts)
        return cls(
            tp=sum(part.tp for part in listed),
            fp=sum(part.fp for part in listed),
            fn=sum(part.fn for part in listed),
        )


def ratio(part: float, whole: float) -> float:
    """Divide, and give 0 where there is nothing to divide by."""
    return float(part / whole) if whole else 0.0


def ratios(parts: Floats, wholes: Floats) -> Floats:
    """Divide each element as `ratio` does."""
    divided: Floats = np.divide(parts, wholes, out=np.zeros(np.shape(wholes)), where=wholes != 0)
    return divided


def f1(tp: npt.ArrayLike, fp: npt.ArrayLike, fn: npt.ArrayLike) -> Floats:
    """Compute F1 of each element; 0 where there is neither a right answer nor a guess.

    >>> f1([2, 0], [1, 0], [1, 0]).round(3).tolist()
    [0.667, 0.0]
    """
    twice = 2 * np.asarray(tp, np.float64)
    return ratios(twice, twice + np.asarray(fp) + np.asarray(fn))


def f1_of_sums(sums_R3: npt.ArrayLike) -> Floats:
    """Compute micro F1 of each sample from its summed (tp, fp, fn): what `bootstrap.permutation` compares."""
    sums = np.asarray(sums_R3)
    return f1(sums[..., 0], sums[..., 1], sums[..., 2])


def f1_measure(counts_N3: Ints) -> SampleMetric:
    """Prepare micro F1 for resampling, from (tp, fp, fn) of each example."""
    counts = counts_N3.astype(np.float64)  # the product runs in BLAS, and counts below 2**53 stay exact
    return lambda indices: float(f1_of_sums(np.bincount(indices, minlength=len(counts)) @ counts))


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
    group that each example belongs to: groups are then drawn instead of examples, since what is in one is not
    independent.
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
