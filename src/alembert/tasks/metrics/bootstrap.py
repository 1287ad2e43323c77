"""How far a score can be trusted: intervals, and tests whether one model is better than another.

A `Measure` gives the score of a sample of examples, named by their numbers; everything here draws such samples or
exchanges answers between two models, by addressed chance, so that a seed always gives the same numbers. One example is
one unit (a document, for entities): what lies inside one document is not independent, so it is never torn apart.
Work is one call of the measure per round; permutation is a matrix product.
"""

# N examples, K counts of an example, R rounds
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.data.order import generator
from alembert.errors import BadInput, BadSetting
from alembert.tasks.metrics.tally import Floats, Ints

if TYPE_CHECKING:
    from alembert.tasks.task import Measure

_BLOCK = 1 << 22
"""Coins tossed at once, so that many rounds over many examples fit into memory."""


@dataclass(frozen=True)
class Interval:
    """Where a score lies, but for the chance in the choice of the examples."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Score of one model minus that of another on the same examples."""

    difference: float
    interval: Interval
    p_value: float
    """Two-sided: how often chance alone would make a difference as large as this."""


@dataclass(frozen=True, kw_only=True)
class McNemar:
    """Examples that only one of two models gets right, and how often chance would part them so unevenly."""

    only_a: int
    only_b: int
    p_value: float


def interval(
    measure: Measure, count: int, *, rounds: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Find the interval of a score: percentiles over samples of `count` examples, drawn with repetition.

    Percentile bootstrap, Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    values = np.array([measure(drawn) for drawn in _draws(count, rounds, seed)])
    return _percentiles(values, level)


def paired(
    measure_a: Measure,
    measure_b: Measure,
    count: int,
    *,
    rounds: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same drawn examples; the p-value moves the differences to mean 0 first.

    Paired bootstrap, Efron and Tibshirani (1993), chapter 16; for language, Berg-Kirkpatrick et al. (2012).
    """
    everything = np.arange(count)
    draws = _draws(count, rounds, seed)
    values = np.array([measure_a(drawn) - measure_b(drawn) for drawn in draws])
    difference = measure_a(everything) - measure_b(everything)
    p_value = _as_extreme(values - difference, difference)
    return Comparison(difference=difference, interval=_percentiles(values, level), p_value=p_value)


def permutation(
    counts_a: Ints,
    counts_b: Ints,
    score: Callable[[Ints], Floats],
    *,
    rounds: int = 10_000,
    seed: int = 0,
) -> float:
    """Test whether it matters which model gave which answer: the p-value when they are exchanged example by example.

    Approximate randomisation, Noreen (1989), for language Yeh (2000). In: counts (N, K) of each model that add up over
    examples; `score` turns sums (R, K) into R scores, such as `tally.f1_of_sums`.
    """
    _check(len(counts_a), rounds)
    if counts_a.shape != counts_b.shape:
        raise BadInput(
            "Two models can be compared on the same examples only, and these have different numbers."
        )
    observed = float((score(counts_a.sum(axis=0)[None]) - score(counts_b.sum(axis=0)[None]))[0])
    swings = [
        score(counts_a.sum(axis=0) - moved) - score(counts_b.sum(axis=0) + moved)
        for moved in _exchanged(counts_a - counts_b, rounds, seed)
    ]
    return _as_extreme(np.concatenate(swings), observed)


def mcnemar(right_a: npt.ArrayLike, right_b: npt.ArrayLike) -> McNemar:
    """Compare the accuracy of two models by the examples that only one gets right, as tosses of a fair coin.

    The exact form of McNemar (1947), which is right for few examples too; in: whether each example is right.
    """
    one, other = np.asarray(right_a, bool), np.asarray(right_b, bool)
    only_a, only_b = int((one & ~other).sum()), int((other & ~one).sum())
    return McNemar(only_a=only_a, only_b=only_b, p_value=_fair_coin(min(only_a, only_b), only_a + only_b))


def _draws(count: int, rounds: int, seed: int) -> Iterator[Ints]:
    _check(count, rounds)
    chance = generator(seed, "bootstrap")
    return (chance.integers(count, size=count) for _ in range(rounds))


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


def _as_extreme(values: Floats, observed: float) -> float:
    """Give the share of values at least as far from 0, the observed one included, so that it is never 0."""
    # Sums in another order differ in the last bits, and equal differences must count as equal.
    extreme = int((np.abs(values) >= abs(observed) - 1e-12).sum())
    return (extreme + 1) / (len(values) + 1)


def _exchanged(differences_NK: Ints, rounds: int, seed: int) -> Iterator[Ints]:
    """Give what the exchanged examples add up to, for blocks of rounds."""
    count, chance = len(differences_NK), generator(seed, "permutation")
    size = max(1, _BLOCK // count)
    differences = differences_NK.astype(
        np.float64
    )  # the product runs in BLAS, and counts below 2**53 stay exact
    for start in range(0, rounds, size):
        coins = chance.integers(2, size=(min(size, rounds - start), count), dtype=np.bool_)
        yield np.rint(coins.astype(np.float64) @ differences).astype(np.int64)


def _fair_coin(fewer: int, tosses: int) -> float:
    """Give the two-sided chance of at most `fewer` heads, or tails, in so many tosses."""
    places = np.arange(1, fewer + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((tosses - places + 1) / places))])
    highest = float(logs.max())
    below = math.exp(highest - tosses * math.log(2)) * float(np.exp(logs - highest).sum())
    return min(1.0, 2 * below)
