"""How sure a model is of its answers, whether it is as sure as it is right, and what to do about it.

An answer is what was guessed: the label of an example, each of its labels, each entity. What the model did not say
is not among them: recall is a matter of scores. A task whose answers have no probability, such as regression, has none.

In: answers of a model on labelled examples (`JudgedAnswer`). Out: their calibration, and for each share of answers
that is kept, the threshold on the confidence and the precision that it reaches. A fine-tuned model carries the curve of
its development data, so that a user can ask for a precision instead of a threshold.

`fit_temperature` finds the one number that outputs are divided by so that probabilities mean what they say (Guo et
al. 2017); the answers stay the same. `reliability_bins`, `ece` and `brier` say how well they do.
`compute_coverage_curve` shows what is gained by leaving the least sure answers to a person. All of it is to be chosen
on development data: on the data that it was chosen on, it looks better than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.errors import BadFile, BadSetting
from alembert.tasks.metrics import Floats, Ints, f1, ratio
from alembert.tasks.metrics.classes import confusion_matrix, encode_labels
from alembert.tasks.task import AnyTask

# N answers


@dataclass(frozen=True, eq=False)
class Confidences:
    """How sure and how right answers are."""

    answer_name: str
    """What an answer is, in the plural."""
    confidences_N: npt.NDArray[np.float64]
    correct_N: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.confidences_N)


def collect_confidences(task: AnyTask, examples: Sequence[Any], predictions: Sequence[Any]) -> Confidences | None:
    """Compare each answer with the right ones; none if the task's answers have no probability."""
    answers = [
        answer
        for example, prediction in zip(examples, predictions, strict=True)
        for answer in task.confidences(example, prediction)
    ]
    if not answers:
        return None
    sure, right = (np.array(column) for column in zip(*answers, strict=True))
    return Confidences(task.answer_name, sure, right)


def build_confusion_matrix(
    task: AnyTask, examples: Sequence[Any], predictions: Sequence[Any]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]] | None:
    """Count answers by right label (rows) and guessed label (columns); none unless each answer is one label."""
    label_pairs = task.label_pairs(examples, predictions)
    if label_pairs is None:
        return None
    gold, guess = (encode_labels(labels, task.labels) for labels in label_pairs)
    counts = confusion_matrix(gold, guess, len(task.labels))
    return task.labels, tuple(map(tuple, counts.tolist()))


_MAX_POINTS: Final = 101
"""Points of a curve that are kept: a test set has as many thresholds as answers."""


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """What remains if answers below a threshold are withheld."""

    threshold: float
    coverage: float
    """Share of the answers that remains."""
    accuracy: float
    """Share of those that is right; of entities it is called precision."""


@dataclass(frozen=True, kw_only=True)
class ConfidenceCurve:
    """How well confidence fits, and what withholding unsure answers gains."""

    what: str
    """What an answer is, in the plural."""
    answers: int
    ece: float
    """How far confidence is from accuracy, on average over answers."""
    bins: tuple[CalibrationBin, ...]
    curve: tuple[OperatingPoint, ...]
    """Most sure first."""

    def find_operating_point(self, accuracy: float) -> OperatingPoint | None:
        """Find the point that withholds least at this accuracy or better; none if no threshold reaches it."""
        return _find_operating_point(self.curve, accuracy)


def build_confidence_curve(answers: Confidences) -> ConfidenceCurve:
    """Compute how well the confidence of answers fits."""
    bins = reliability_bins(answers.confidences_N, answers.correct_N)
    return ConfidenceCurve(
        what=answers.answer_name,
        answers=len(answers),
        ece=ece(bins),
        bins=tuple(bins),
        curve=_sample_points(compute_coverage_curve(answers.confidences_N, answers.correct_N)),
    )


def _sample_points(curve: CoverageCurve) -> tuple[OperatingPoint, ...]:
    """Keep points at even steps of coverage, and the last one, which withholds nothing."""
    steps = np.linspace(0, 1, _MAX_POINTS)
    numbers = np.unique(np.searchsorted(curve.coverage, steps).clip(max=len(curve.coverage) - 1))
    return tuple(
        OperatingPoint(
            threshold=float(curve.threshold[number]),
            coverage=float(curve.coverage[number]),
            accuracy=float(curve.accuracy[number]),
        )
        for number in numbers
    )


def build_curve_table(answers: Confidences | None) -> dict[str, Any] | None:
    """Return the curve as a model's folder keeps it; None if the answers have no confidence.

    Nothing is rounded: sure models have answers at 0.9999999, and a threshold of 1 would withhold them all.
    """
    if answers is None:
        return None
    points = build_confidence_curve(answers).curve
    return {
        "answers": len(answers),
        "points": [[point.threshold, point.coverage, point.accuracy] for point in points],
    }


def find_threshold(precision: float, training: Mapping[str, Any], where: str) -> float:
    """Look up the least confidence whose answers reached a precision on the development data.

    >>> kept = {"answers": 3, "points": [[0.99, 0.33, 1.0], [0.8, 0.67, 1.0], [0.3, 1.0, 0.67]]}
    >>> find_threshold(0.95, {"confidence": kept}, "work/ner")
    0.8
    """
    curve = _read_points(training, where)
    point = _find_operating_point(curve, precision)
    if point is None:
        best = max(each.accuracy for each in curve)
        raise BadSetting(
            f"A precision of {precision:g} was asked for; on the development data of {where} no threshold reaches it, and "
            f"the best is {best:.3f}. Ask for less, or set the least score yourself."
        )
    return point.threshold


def _read_points(training: Mapping[str, Any], where: str) -> list[OperatingPoint]:
    table = training.get("confidence")
    if table is None:
        raise BadSetting(
            f"{where} does not say which score reached which precision: it was fine-tuned elsewhere, by an older version, or "
            "its answers have no confidence. Set the least score yourself."
        )
    try:
        points = [
            OperatingPoint(threshold=float(threshold), coverage=float(coverage), accuracy=float(accuracy))
            for threshold, coverage, accuracy in table["points"]
        ]
    except (KeyError, TypeError, ValueError):
        points = []
    if not points or not all(0 <= number <= 1 for p in points for number in (p.threshold, p.accuracy)):
        raise BadFile(f"{where}: `confidence` in task.json is damaged. Fine-tune again, or set the least score.")
    return points


def _find_operating_point(curve: Sequence[OperatingPoint], accuracy: float) -> OperatingPoint | None:
    good = [point for point in curve if point.accuracy >= accuracy]
    return good[-1] if good else None


# N examples, C classes or labels


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


def sort_descending(values: Floats) -> tuple[Ints, Ints]:
    """Sort from high to low: the order, and how many can be taken from the top without parting equal values.

    >>> [found.tolist() for found in sort_descending(np.array([0.5, 0.9, 0.5]))]
    [[1, 0, 2], [1, 3]]
    """
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
    return order.astype(np.int64), np.flatnonzero(is_last).astype(np.int64) + 1


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
