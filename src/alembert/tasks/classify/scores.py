"""Scores of the task `classify`: right answers against guesses, as a report and as a measure for resampling."""

# N examples, A answers
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from alembert.corpus.examples.labelled import LabelValue
from alembert.data.windows import IntArray
from alembert.tasks.classify.data import ClassifyExample, ClassifyKind, convert_label
from alembert.tasks.classify.decode import ClassifyAnswer, ClassifyPrediction
from alembert.tasks.example import Coverage, SampleMetric, TaskScores
from alembert.tasks.metrics import classes, numbers
from alembert.tasks.metrics.bootstrap import f1_measure
from alembert.tasks.metrics.calibration import best_threshold


@dataclass(frozen=True)
class ClassifyComparison:
    """Right answers and guesses, one after the other."""

    kind: ClassifyKind
    labels: tuple[str, ...]
    golds: list[LabelValue]
    answers: list[ClassifyAnswer]
    counts: IntArray
    """Answers of each example; none where the right ones are not known."""

    @classmethod
    def of(
        cls,
        kind: ClassifyKind,
        labels: tuple[str, ...],
        examples: Sequence[ClassifyExample],
        predictions: Sequence[ClassifyPrediction],
    ) -> ClassifyComparison:
        golds: list[LabelValue] = []
        answers: list[ClassifyAnswer] = []
        for example, prediction in zip(examples, predictions, strict=True):
            if example.golds:
                golds += [cast(LabelValue, convert_label(gold, kind)) for gold in example.golds]
                answers += prediction.answers
        return cls(kind, labels, golds, answers, np.array([len(example.golds) for example in examples], np.int64))

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


def compute_metrics(compared: ClassifyComparison) -> tuple[dict[str, float], Mapping[str, Mapping[str, float]]]:
    """Compute all measures of a kind, and those of each label."""
    if compared.kind == "number":
        return _number_measures(compared), {}
    if compared.kind == "multi":
        several = classes.multilabel_scores(compared.gold_sets, compared.sets, compared.labels)
        measures = {"subset_accuracy": several.subset_accuracy, **_averages(several)}
        return measures, _by_label(several)
    single = classes.class_scores(compared.gold_names, compared.names, compared.labels)
    measures = {
        "accuracy": single.accuracy,
        **_averages(single),
        "balanced_accuracy": single.balanced_accuracy,
        "mcc": single.mcc,
        "kappa": single.kappa,
    }
    return measures, _by_label(single)


def compute_scores(compared: ClassifyComparison, main: str, coverage: Coverage, *, is_tuned: bool) -> TaskScores:
    """Put the measures together with what became of the texts; of several labels also at their best thresholds."""
    measures, by_label = compute_metrics(compared)
    untuned = ""
    if compared.kind == "multi" and not is_tuned and compared.has_probabilities:
        untuned = f"best_{main}"
        measures |= {untuned: compute_metrics(apply_best_thresholds(compared))[0][main]}
    return TaskScores(main=main, measures=measures, by_label=by_label, coverage=coverage, untuned=untuned)


def apply_best_thresholds(compared: ClassifyComparison) -> ClassifyComparison:
    """Choose labels by the thresholds that suit these very data best, which are chosen when a run is over."""
    labels = compared.labels
    sure_AC = np.array([[answer.probabilities[name] for name in labels] for answer in compared.answers])
    gold_AC = np.array([[name in gold for name in labels] for gold in compared.gold_sets])
    thresholds = [best_threshold(sure, yes) for sure, yes in zip(sure_AC.T, gold_AC.T, strict=True)]
    answers = [
        replace(answer, labels=tuple(name for name, yes in zip(labels, row, strict=True) if yes))
        for answer, row in zip(compared.answers, sure_AC >= thresholds, strict=True)
    ]
    return replace(compared, answers=answers)


def _number_measures(compared: ClassifyComparison) -> dict[str, float]:
    gold, guess = compared.gold_values, compared.values
    return {
        "spearman": numbers.spearman(gold, guess),
        "pearson": numbers.pearson(gold, guess),
        "mse": numbers.mse(gold, guess),
        "mae": numbers.mae(gold, guess),
    }


def _averages(scores: classes.LabelScores) -> dict[str, float]:
    return {"macro_f1": scores.macro.f1, "micro_f1": scores.micro.f1, "weighted_f1": scores.weighted.f1}


def _by_label(scores: classes.LabelScores) -> dict[str, dict[str, float]]:
    return {label: tally.to_dict() for label, tally in scores.by_label.items()}


def build_sample_metric(compared: ClassifyComparison, main: str) -> SampleMetric:
    """Prepare the main measure for samples of examples."""
    return metric_by_example(_build_answer_metric(compared, main), compared.counts)


def _build_answer_metric(compared: ClassifyComparison, main: str) -> SampleMetric:
    if compared.kind == "number":
        prepare = numbers.spearman_measure if main == "spearman" else numbers.pearson_measure
        return prepare(compared.gold_values, compared.values)
    if compared.kind == "multi":
        return _multi_measure(compared, main)
    if main in ("accuracy", "micro_f1"):  # the same, where each text has one label
        return classes.accuracy_measure(compared.gold_names, compared.names)
    of = classes.macro_f1 if main == "macro_f1" else classes.mcc
    return classes.confusion_measure(compared.gold_names, compared.names, compared.labels, of)


def _multi_measure(compared: ClassifyComparison, main: str) -> SampleMetric:
    gold, guess = compared.gold_sets, compared.sets
    if main == "subset_accuracy":
        right = np.array([one == other for one, other in zip(gold, guess, strict=True)], np.float64)
        return lambda indices: float(right[indices].mean())
    if main == "macro_f1":
        return classes.multilabel_macro_f1_measure(gold, guess, compared.labels)
    return f1_measure(classes.multilabel_counts(gold, guess))


def metric_by_example(measure: SampleMetric, counts_N: IntArray) -> SampleMetric:
    """Let a sample of examples stand for all of their answers."""
    if (counts_N == 1).all():
        return measure
    firsts_N = np.cumsum(counts_N) - counts_N

    def sampled(indices: IntArray) -> float:
        counts = counts_N[indices]
        shifts = firsts_N[indices] - (np.cumsum(counts) - counts)
        return measure(np.repeat(shifts, counts) + np.arange(counts.sum()))

    return sampled
