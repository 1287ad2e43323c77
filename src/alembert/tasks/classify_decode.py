"""Answers of the task `classify`: from the head's outputs to labels, probabilities and numbers, without torch.

The outputs for the windows of one text are pooled before anything else. Probabilities are those at the temperature that
was fitted on development data; a label is chosen by the outputs alone (one label) or by comparing its probability with
its threshold (several), and thresholds are chosen at that temperature, so calibration changes no label.
"""

# A answers, C outputs, P places
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray
from alembert.tasks.classify_rows import Layout
from alembert.tasks.example import Coverage
from alembert.tasks.metrics.calibration import sigmoid, softmax
from alembert.tasks.metrics.tally import Floats


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is said of one text, pair or sentence: a label, or labels, or a value."""

    label: str | None = None
    labels: tuple[str, ...] | None = None
    value: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    """How sure it is: the probability of the label, or the least one of all yes and no; none for a value."""

    def with_min_score(self, score: float) -> Answer:
        """Leave out the labels whose probability is lower."""
        if self.labels is not None:
            kept = tuple(label for label in self.labels if self.probabilities[label] >= score)
            return replace(self, labels=kept)
        return replace(self, label=None) if self.score is not None and self.score < score else self

    @property
    def count(self) -> int:
        """How many labels are given."""
        return int(self.label is not None) if self.labels is None else len(self.labels)


def with_min_score(answers: Sequence[Answer], coverage: Coverage, score: float) -> tuple[tuple[Answer, ...], Coverage]:
    """Leave out the labels of answers whose probability is lower, and count them."""
    kept = tuple(answer.with_min_score(score) for answer in answers)
    gone = sum(answer.count for answer in answers) - sum(answer.count for answer in kept)
    return kept, replace(coverage, withheld=coverage.withheld + gone)


@dataclass(frozen=True)
class ClassifyPrediction:
    """The answer for a text or pair, or one for each sentence of a document."""

    answers: tuple[Answer, ...]
    coverage: Coverage

    @property
    def answer(self) -> Answer:
        """The answer where there is one."""
        (only,) = self.answers
        return only


@dataclass(frozen=True)
class Calibration:
    """What was chosen on development data."""

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()
    """Least probability at which each of several labels is given; empty: one half."""


def pooled(outputs_PC: npt.NDArray[np.float32], layout: Layout, pool: str) -> Floats:
    """Put the outputs of all windows together, one line an answer."""
    values, owners = outputs_PC.astype(np.float64), layout.owners
    if len(owners) == layout.answers:
        return values
    if pool == "max":
        result = np.full((layout.answers, values.shape[1]), -np.inf)
        np.maximum.at(result, owners, values)
        return result
    result = np.zeros((layout.answers, values.shape[1]))
    np.add.at(result, owners, values)
    means: Floats = result / np.bincount(owners, minlength=layout.answers)[:, None]
    return means


def single_answers(logits_AC: Floats, labels: Sequence[str], chosen: Calibration) -> list[Answer]:
    """Give the most probable label of each line."""
    sure_AC = softmax(logits_AC / chosen.temperature)
    best_A: IntArray = logits_AC.argmax(-1)
    return [
        Answer(
            label=labels[best],
            probabilities=dict(zip(labels, sure.tolist(), strict=True)),
            score=float(sure[best]),
        )
        for best, sure in zip(best_A.tolist(), sure_AC, strict=True)
    ]


def multi_answers(logits_AC: Floats, labels: Sequence[str], chosen: Calibration) -> list[Answer]:
    """Give the labels of each line whose probability reaches their threshold."""
    thresholds_C = np.array(chosen.thresholds or [0.5] * len(labels))
    answers = []
    for sure_C in sigmoid(logits_AC / chosen.temperature):
        is_yes = sure_C >= thresholds_C
        answers.append(
            Answer(
                labels=tuple(label for label, yes in zip(labels, is_yes.tolist(), strict=True) if yes),
                probabilities=dict(zip(labels, sure_C.tolist(), strict=True)),
                score=float(np.where(is_yes, sure_C, 1 - sure_C).min()),
            )
        )
    return answers


def number_answers(outputs_A1: Floats, mean: float, deviation: float) -> list[Answer]:
    """Give values on the scale of the training data."""
    return [Answer(value=value) for value in (outputs_A1[:, 0] * deviation + mean).tolist()]
