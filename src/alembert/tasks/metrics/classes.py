"""Scores of labels and of numbers.

For numbers, a correlation with something constant is undefined; here it is 0, since nothing was seen to vary
together, so that a small sample never turns a score into nan. R2 of constant right values is 1 if all guesses are right
and 0 otherwise, as scikit-learn has it.

Of labels an example has one (`class_scores`), or any number (`multilabel_scores`). In come their names, and the list
of labels that there are, which gives the order; out come the measures of scikit-learn under their usual definitions. A
ratio without anything to divide by is 0. Macro averages are over the labels that occur in gold or guess, which is
scikit-learn's choice when it is given no labels: a label that a small test set does not have costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics import Floats, Ints, Tally, f1, ratio, ratios

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


# N examples, L labels


@dataclass(frozen=True, kw_only=True)
class Averages:
    """Precision, recall and F1 of all labels, put into one number each."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, kw_only=True)
class LabelScores:
    """How well each label was found."""

    by_label: Mapping[str, Tally]
    micro: Averages
    macro: Averages
    weighted: Averages


@dataclass(frozen=True, kw_only=True)
class ClassScores(LabelScores):
    """Scores of one label per example."""

    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """Examples by right label (rows) and guessed label (columns)."""
    accuracy: float
    balanced_accuracy: float
    mcc: float
    """Matthews' correlation, for any number of labels (Gorodkin 2004); 0 if gold or guess is constant."""
    kappa: float
    """Cohen's kappa; 0 if gold and guess are one and the same label throughout, where it is undefined."""


@dataclass(frozen=True, kw_only=True)
class MultilabelScores(LabelScores):
    """Scores of any number of labels per example."""

    subset_accuracy: float
    """Share of the examples whose labels are all right."""


def class_scores(gold: Sequence[str], guess: Sequence[str], labels: Sequence[str]) -> ClassScores:
    """Compare one label per example.

    >>> found = class_scores(["a", "a", "b", "c"], ["a", "b", "b", "b"], ["a", "b", "c"])
    >>> found.accuracy, round(found.macro.f1, 3), found.confusion
    (0.5, 0.389, ((1, 1, 0), (0, 1, 0), (0, 1, 0)))
    """
    matrix = confusion_matrix(encode_labels(gold, labels), encode_labels(guess, labels), len(labels))
    by_label = dict(zip(labels, _tallies(*_counts_from_confusion(matrix)), strict=True))
    return ClassScores(
        labels=tuple(labels),
        confusion=tuple(map(tuple, matrix.tolist())),
        accuracy=accuracy(matrix),
        balanced_accuracy=balanced_accuracy(matrix),
        mcc=mcc(matrix),
        kappa=kappa(matrix),
        by_label=by_label,
        **_averages(by_label),
    )


def multilabel_scores(
    gold: Sequence[Collection[str]], guess: Sequence[Collection[str]], labels: Sequence[str]
) -> MultilabelScores:
    """Compare any number of labels per example."""
    one, other = indicator_matrix(gold, labels), indicator_matrix(guess, labels)
    by_label = dict(zip(labels, _tallies(*_counts_from_indicators(one, other)), strict=True))
    right = int((one == other).all(axis=1).sum())
    return MultilabelScores(subset_accuracy=ratio(right, len(one)), by_label=by_label, **_averages(by_label))


# -- measures of a confusion matrix


def confusion_matrix(gold: Ints, guess: Ints, labels: int) -> Ints:
    """Count examples by right label (rows) and guessed label (columns)."""
    counts = np.bincount(gold * labels + guess, minlength=labels * labels)
    return counts.astype(np.int64).reshape(labels, labels)


def accuracy(matrix: Ints) -> float:
    """Compute the share of right guesses."""
    return ratio(int(np.trace(matrix)), int(matrix.sum()))


def balanced_accuracy(matrix: Ints) -> float:
    """Average the recall of the labels that occur in gold."""
    support = matrix.sum(axis=1)
    recalls = ratios(np.diag(matrix), support)
    return ratio(float(recalls.sum()), int((support > 0).sum()))


def macro_f1(matrix: Ints) -> float:
    """Average the F1 of the labels that occur."""
    return _macro_f1(*_counts_from_confusion(matrix))


def mcc(matrix: Ints) -> float:
    """Compute Matthews' correlation of any number of labels."""
    counts = matrix.astype(np.float64)  # products of counts outgrow 64 bits
    rows, columns, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    spread = (total**2 - rows @ rows) * (total**2 - columns @ columns)
    return ratio(float(np.trace(counts) * total - rows @ columns), float(np.sqrt(spread)))


def kappa(matrix: Ints) -> float:
    """Compute Cohen's kappa."""
    counts = matrix.astype(np.float64)
    total = counts.sum()
    by_chance = counts.sum(axis=1) @ counts.sum(axis=0)
    return ratio(float(np.trace(counts) * total - by_chance), float(total**2 - by_chance))


# -- measures for resampling


def accuracy_measure(gold: Sequence[str], guess: Sequence[str]) -> SampleMetric:
    """Prepare accuracy for resampling."""
    right = np.array([one == other for one, other in zip(gold, guess, strict=True)], np.float64)
    return lambda indices: float(right[indices].mean())


def confusion_measure(
    gold: Sequence[str], guess: Sequence[str], labels: Sequence[str], of: Callable[[Ints], float]
) -> SampleMetric:
    """Prepare any measure of a confusion matrix (`accuracy`, `macro_f1`, `mcc`, `kappa`, ...) for resampling."""
    one, other = encode_labels(gold, labels), encode_labels(guess, labels)
    return lambda indices: of(confusion_matrix(one[indices], other[indices], len(labels)))


def multilabel_macro_f1_measure(
    gold: Sequence[Collection[str]], guess: Sequence[Collection[str]], labels: Sequence[str]
) -> SampleMetric:
    """Prepare macro F1 of any number of labels for resampling."""
    one, other = indicator_matrix(gold, labels), indicator_matrix(guess, labels)
    return lambda indices: _macro_f1(*_counts_from_indicators(one[indices], other[indices]))


def multilabel_counts(gold: Sequence[Collection[str]], guess: Sequence[Collection[str]]) -> Ints:
    """Count (tp, fp, fn) of each example, one row each; `tally.f1_measure` makes micro F1 of it."""
    pairs = [(set(one), set(other)) for one, other in zip(gold, guess, strict=True)]
    rows = [(len(one & other), len(other - one), len(one - other)) for one, other in pairs]
    return np.array(rows, np.int64).reshape(len(rows), 3)


def balanced_weights(codes_N: Ints, labels: int) -> tuple[float, ...]:
    """Weigh each label by the inverse of its frequency, 1 on average over the examples.

    >>> balanced_weights(np.array([0, 0, 0, 1]), 2)
    (0.6666666666666666, 2.0)
    """
    counts = np.bincount(codes_N, minlength=labels).clip(min=1)
    return tuple((len(codes_N) / (labels * counts)).tolist())


# -- names to numbers


def encode_labels(names: Sequence[str], labels: Sequence[str]) -> Ints:
    """Return the number of each name among the labels; a name that is not there raises KeyError."""
    number_of = {label: number for number, label in enumerate(labels)}
    return np.array([number_of[name] for name in names], np.int64)


def indicator_matrix(names: Sequence[Collection[str]], labels: Sequence[str]) -> Ints:
    """Build a row of 0 and 1 for each example; a name that is not among the labels raises KeyError."""
    number_of = {label: number for number, label in enumerate(labels)}
    table = np.zeros((len(names), len(labels)), np.int64)
    for row, present in enumerate(names):
        table[row, [number_of[name] for name in present]] = 1
    return table


def _counts_from_confusion(matrix: Ints) -> tuple[Ints, Ints, Ints]:
    hits = np.diag(matrix)
    return hits, matrix.sum(axis=0) - hits, matrix.sum(axis=1) - hits


def _counts_from_indicators(gold_NL: Ints, guess_NL: Ints) -> tuple[Ints, Ints, Ints]:
    hits = (gold_NL & guess_NL).sum(axis=0)
    return hits, guess_NL.sum(axis=0) - hits, gold_NL.sum(axis=0) - hits


def _macro_f1(tp_L: Ints, fp_L: Ints, fn_L: Ints) -> float:
    occurring = int((tp_L + fp_L + fn_L > 0).sum())
    return ratio(float(f1(tp_L, fp_L, fn_L).sum()), occurring)


def _tallies(tp_L: Ints, fp_L: Ints, fn_L: Ints) -> list[Tally]:
    return [Tally(tp=tp, fp=fp, fn=fn) for tp, fp, fn in zip(tp_L.tolist(), fp_L.tolist(), fn_L.tolist(), strict=True)]


def _averages(by_label: Mapping[str, Tally]) -> dict[str, Averages]:
    total = Tally.total(by_label.values())
    return {
        "micro": Averages(precision=total.precision, recall=total.recall, f1=total.f1),
        "macro": _weighted(by_label, lambda tally: float(tally.occurs)),
        "weighted": _weighted(by_label, lambda tally: tally.support),
    }


def _weighted(by_label: Mapping[str, Tally], weight: Callable[[Tally], float]) -> Averages:
    rows = [(weight(tally), tally.precision, tally.recall, tally.f1) for tally in by_label.values()]
    table: Floats = np.array(rows, np.float64).reshape(len(rows), 4)
    weights = table[:, 0]
    precision, recall, f1_value = (ratio(float(weights @ column), float(weights.sum())) for column in table.T[1:])
    return Averages(precision=precision, recall=recall, f1=f1_value)
