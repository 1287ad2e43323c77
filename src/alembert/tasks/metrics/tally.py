"""Hits, false alarms and misses, and the ratios that are made of them.

A ratio that has nothing to divide by is 0, as in scikit-learn and seqeval, and there is never a warning: who reports
scores can tell from the tally (`guessed`, `support`) that it was undefined.

>>> Tally(tp=3, fp=1, fn=2).precision, Tally(tp=3, fp=1, fn=2).recall, Tally(tp=0, fp=0, fn=0).f1
(0.75, 0.6, 0.0)
"""

# N examples, R samples
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from alembert.tasks.task import SampleMetric

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
