"""Answers of a model with how sure it is of each and whether it is right: what calibration is computed from.

An answer is what was guessed: the label of an example, each of its labels, each entity. What the model did not say is not
among them: recall is a matter of scores. A task whose answers have no probability, such as regression, has none.

How far a model's own confidence can be trusted, and what is gained by leaving unsure answers to a person.

In: answers of a model on labelled examples (`tasks.judged`). Out: their calibration, and for each share of answers that is
kept, the threshold on the confidence and the precision that it reaches. A fine-tuned model carries the curve of its
development data, so that a user can ask for a precision instead of a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.errors import BadFile, BadSetting
from alembert.tasks.metrics.calibration import (
    CalibrationBin,
    CoverageCurve,
    compute_coverage_curve,
    ece,
    reliability_bins,
)
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
