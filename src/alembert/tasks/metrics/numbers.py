"""Scores of numbers: correlation and error, right values against guessed ones.

A correlation with something constant is undefined; here it is 0, since nothing was seen to vary together, so that a
small sample never turns a score into nan. R2 of constant right values is 1 if all guesses are right and 0 otherwise, as
scikit-learn has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics.bootstrap import Floats, Ints

if TYPE_CHECKING:
    from alembert.tasks.task import SampleMetric


def pearson(gold: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """Correlate two series; 0 if one of them is constant."""
    one, other = _pair(gold, guess)
    if _constant(one) or _constant(other):
        return 0.0
    one, other = _centre_and_scale(one), _centre_and_scale(other)
    return float(np.clip(one @ other, -1.0, 1.0))


def spearman(gold: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """Correlate the ranks of two series; equal values share their mean rank.

    >>> spearman([1, 2, 3, 4], [10, 20, 20, 1000])
    0.9486832980505138
    """
    one, other = _pair(gold, guess)
    return pearson(mean_ranks(one), mean_ranks(other))


def mse(gold: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """Average the squared error."""
    one, other = _pair(gold, guess)
    return float(np.mean((one - other) ** 2))


def mae(gold: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """Average the absolute error."""
    one, other = _pair(gold, guess)
    return float(np.mean(np.abs(one - other)))


def mean_ranks(values: npt.ArrayLike) -> Floats:
    """Rank values from 1; equal values share the mean of their ranks.

    >>> mean_ranks([5, 1, 5, 9]).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    codes, kinds = _codes(np.asarray(values))
    return _ranks_of_codes(codes, kinds)


def sort_descending(values: Floats) -> tuple[Ints, Ints]:
    """Sort from high to low: the order, and how many can be taken from the top without parting equal values.

    >>> [found.tolist() for found in sort_descending(np.array([0.5, 0.9, 0.5]))]
    [[1, 0, 2], [1, 3]]
    """
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
    return order.astype(np.int64), np.flatnonzero(is_last).astype(np.int64) + 1


def spearman_measure(gold: npt.ArrayLike, guess: npt.ArrayLike) -> SampleMetric:
    """Prepare Spearman's correlation for resampling; values are sorted once, and a sample is ranked by counting."""
    (one, kinds), (other, other_kinds) = map(_codes, _pair(gold, guess))
    return lambda indices: pearson(_ranks_of_codes(one[indices], kinds), _ranks_of_codes(other[indices], other_kinds))


def pearson_measure(gold: npt.ArrayLike, guess: npt.ArrayLike) -> SampleMetric:
    """Prepare Pearson's correlation for resampling."""
    one, other = _pair(gold, guess)
    return lambda indices: pearson(one[indices], other[indices])


def _pair(gold: npt.ArrayLike, guess: npt.ArrayLike) -> tuple[Floats, Floats]:
    one, other = np.asarray(gold, np.float64), np.asarray(guess, np.float64)
    if one.shape != other.shape or one.ndim != 1 or not len(one):
        raise ValueError(f"expected two series of one length, found shapes {one.shape} and {other.shape}")
    return one, other


def _constant(values: Floats) -> bool:
    # The variance of equal numbers is not exactly 0 in floating point.
    return bool(values.min() == values.max())


def _centre_and_scale(values: Floats) -> Floats:
    """Move to mean 0 and scale to length 1; by the largest first, so that squares do not overflow or vanish."""
    moved = values - values.mean()
    moved = moved / np.abs(moved).max()
    scaled: Floats = moved / np.linalg.norm(moved)
    return scaled


def _codes(values: npt.NDArray[np.generic]) -> tuple[Ints, int]:
    """Number the different values in rising order."""
    kinds, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), len(kinds)


def _ranks_of_codes(codes: Ints, kinds: int) -> Floats:
    counts = np.bincount(codes, minlength=kinds)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[codes]
    return ranks
