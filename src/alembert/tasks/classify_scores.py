"""Scores of the task `classify`: right answers against guesses, as a report and as a measure for resampling."""

# N examples, A answers
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from alembert.corpus.examples.labelled import LabelValue
from alembert.data.windows import IntArray
from alembert.tasks.classify_decode import Answer, ClassifyPrediction
from alembert.tasks.classify_example import ClassifyExample, as_kind
from alembert.tasks.classify_settings import Kind
from alembert.tasks.metrics import classes, numbers, tally
from alembert.tasks.metrics.calibration import best_threshold
from alembert.tasks.task import Measure


@dataclass(frozen=True)
class Compared:
    """Right answers and guesses, one after the other."""

    kind: Kind
    labels: tuple[str, ...]
    golds: list[LabelValue]
    answers: list[Answer]
    counts: IntArray
    """Answers of each example; none where the right ones are not known."""

    @classmethod
    def of(
        cls,
        kind: Kind,
        labels: tuple[str, ...],
        examples: Sequence[ClassifyExample],
        predictions: Sequence[ClassifyPrediction],
    ) -> Compared:
        golds: list[LabelValue] = []
        answers: list[Answer] = []
        for example, prediction in zip(examples, predictions, strict=True):
            if example.golds:
                golds += [cast(LabelValue, as_kind(gold, kind)) for gold in example.golds]
                answers += prediction.answers
        return cls(kind, labels, golds, answers, np.array([len(each.golds) for each in examples], np.int64))

    @property
    def has_probabilities(self) -> bool:
        return bool(self.answers) and all(answer.probabilities for answer in self.answers)

    @property
    def gold_names(self) -> list[str]:
        return cast(list[str], self.golds)

    @property
    def names(self) -> list[str]:
        return [cast(str, answer.label) for answer in self.answers]

    @property
    def gold_sets(self) -> list[frozenset[str]]:
        return [frozenset(cast(tuple[str, ...], gold)) for gold in self.golds]

    @property
    def sets(self) -> list[frozenset[str]]:
        return [frozenset(answer.labels or ()) for answer in self.answers]

    @property
    def gold_values(self) -> list[float]:
        return cast(list[float], self.golds)

    @property
    def values(self) -> list[float]:
        return [cast(float, answer.value) for answer in self.answers]


def measures_of(compared: Compared) -> tuple[dict[str, float], Mapping[str, Mapping[str, float]]]:
    """Compute all measures of a kind, and those of each label."""
    if compared.kind == "number":
        return _number_measures(compared), {}
    if compared.kind == "multi":
        several = classes.multi_scores(compared.gold_sets, compared.sets, compared.labels)
        measures = {"subset_accuracy": several.subset_accuracy, **_averages(several)}
        return measures, _by_label(several)
    found = classes.scores(compared.gold_names, compared.names, compared.labels)
    measures = {
        "accuracy": found.accuracy,
        **_averages(found),
        "balanced_accuracy": found.balanced_accuracy,
        "mcc": found.mcc,
        "kappa": found.kappa,
    }
    return measures, _by_label(found)


def at_best_thresholds(compared: Compared) -> Compared:
    """Give several labels as the thresholds would that suit these very data, which are chosen when a run is over."""
    labels = compared.labels
    sure_AC = np.array([[each.probabilities[name] for name in labels] for each in compared.answers])
    gold_AC = np.array([[name in gold for name in labels] for gold in compared.gold_sets])
    thresholds = [best_threshold(sure, yes) for sure, yes in zip(sure_AC.T, gold_AC.T, strict=True)]
    answers = [
        replace(answer, labels=tuple(name for name, yes in zip(labels, row, strict=True) if yes))
        for answer, row in zip(compared.answers, sure_AC >= thresholds, strict=True)
    ]
    return replace(compared, answers=answers)


def _number_measures(compared: Compared) -> dict[str, float]:
    gold, guess = compared.gold_values, compared.values
    return {
        "spearman": numbers.spearman(gold, guess),
        "pearson": numbers.pearson(gold, guess),
        "mse": numbers.mse(gold, guess),
        "mae": numbers.mae(gold, guess),
    }


def _averages(found: classes.LabelScores) -> dict[str, float]:
    return {"macro_f1": found.macro.f1, "micro_f1": found.micro.f1, "weighted_f1": found.weighted.f1}


def _by_label(found: classes.LabelScores) -> dict[str, dict[str, float]]:
    return {
        label: {"precision": each.precision, "recall": each.recall, "f1": each.f1, "support": each.support}
        for label, each in found.by_label.items()
    }


def measure_of(compared: Compared, main: str) -> Measure:
    """Prepare the main measure for samples of examples."""
    return over_examples(_over_answers(compared, main), compared.counts)


def _over_answers(compared: Compared, main: str) -> Measure:
    if compared.kind == "number":
        prepare = numbers.spearman_measure if main == "spearman" else numbers.pearson_measure
        return prepare(compared.gold_values, compared.values)
    if compared.kind == "multi":
        return _multi_measure(compared, main)
    if main in ("accuracy", "micro_f1"):  # the same, where each text has one label
        return classes.accuracy_measure(compared.gold_names, compared.names)
    of = classes.macro_f1 if main == "macro_f1" else classes.mcc
    return classes.confusion_measure(compared.gold_names, compared.names, compared.labels, of)


def _multi_measure(compared: Compared, main: str) -> Measure:
    gold, guess = compared.gold_sets, compared.sets
    if main == "subset_accuracy":
        right = np.array([one == other for one, other in zip(gold, guess, strict=True)], np.float64)
        return lambda indices: float(right[indices].mean())
    if main == "macro_f1":
        return classes.multi_macro_f1_measure(gold, guess, compared.labels)
    return tally.f1_measure(classes.multi_counts(gold, guess))


def over_examples(measure: Measure, counts_N: IntArray) -> Measure:
    """Let a sample of examples stand for all of their answers."""
    if (counts_N == 1).all():
        return measure
    firsts_N = np.cumsum(counts_N) - counts_N

    def sampled(indices: IntArray) -> float:
        counts = counts_N[indices]
        shifts = firsts_N[indices] - (np.cumsum(counts) - counts)
        return measure(np.repeat(shifts, counts) + np.arange(counts.sum()))

    return sampled
