"""Outputs of `classify` to predictions, and predictions to scores.

The outputs for the windows of one text are pooled before anything else. Probabilities are those at the temperature that
was fitted on development data; a label is chosen by the outputs alone (one label) or by comparing its probability with
its threshold (several), and thresholds are chosen at that temperature, so calibration changes no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.corpus.examples.labelled import LabelValue
from alembert.data.windows import IntArray
from alembert.tasks.classify.data import (
    ClassifyExample,
    ClassifyKind,
    convert_label,
    find_sentence_spans,
    get_sentences,
)
from alembert.tasks.classify.rows import ClassifyLayout
from alembert.tasks.example import (
    LABEL_SCORES_KEY,
    VALUE_KEY,
    Coverage,
    SampleMetric,
    TaskPrediction,
    TaskScores,
    shorten,
    with_entities,
)
from alembert.tasks.metrics import Floats, classes, f1_measure
from alembert.tasks.metrics.calibration import best_threshold, fit_binary_temperature, fit_temperature, sigmoid, softmax

# A answers, C outputs, P places


@dataclass(frozen=True, kw_only=True)
class ClassifyAnswer:
    """The prediction for one text, pair or sentence: a label, or labels, or a value."""

    label: str | None = None
    labels: tuple[str, ...] | None = None
    value: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    """How sure it is: the probability of the label, or the least one of all yes and no; none for a value."""

    def with_min_score(self, score: float) -> ClassifyAnswer:
        """Leave out the labels whose probability is lower."""
        if self.labels is not None:
            kept = tuple(label for label in self.labels if self.probabilities[label] >= score)
            return replace(self, labels=kept)
        return replace(self, label=None) if self.score is not None and self.score < score else self

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels that are given, whether there may be several or not."""
        if self.labels is not None:
            return self.labels
        return () if self.label is None else (self.label,)

    @property
    def count(self) -> int:
        """How many labels are given."""
        return len(self.all_labels)


def drop_below_score(
    answers: Sequence[ClassifyAnswer], coverage: Coverage, score: float
) -> tuple[tuple[ClassifyAnswer, ...], Coverage]:
    """Leave out the labels of answers whose probability is lower, and count them."""
    kept = tuple(answer.with_min_score(score) for answer in answers)
    gone = sum(answer.count for answer in answers) - sum(answer.count for answer in kept)
    return kept, replace(coverage, withheld=coverage.withheld + gone)


@dataclass(frozen=True)
class ClassifyPrediction(TaskPrediction[ClassifyExample]):
    """The answer for a text or pair, or one for each sentence of a document."""

    answers: tuple[ClassifyAnswer, ...]
    coverage: Coverage

    @property
    def answer(self) -> ClassifyAnswer:
        """The answer where there is one."""
        (only,) = self.answers
        return only

    def to_record(self, example: ClassifyExample, *, is_document: bool = False) -> dict[str, Any]:
        """Return a JSON object; sentences that were found in a text have their offsets."""
        brief = self.coverage.brief()
        if not is_document:
            texts = {"text": example.texts[0]} if len(example.texts) == 1 else {"texts": list(example.texts)}
            return {"id": example.id, **texts, **_answer_record(self.answer), "coverage": brief}
        sentences = [
            {"text": sentence, **_answer_record(answer)}
            for sentence, answer in zip(get_sentences(example), self.answers, strict=True)
        ]
        for sentence, (start, end) in zip(sentences, find_sentence_spans(example) or (), strict=False):
            sentence |= {"start": start, "end": end}
        return {"id": example.id, "sentences": sentences, "coverage": brief}

    def to_lines(self, example: ClassifyExample, *, is_document: bool = False) -> list[str]:
        """Return lines: answer, how sure it is, the beginning of the text."""
        texts = get_sentences(example) if is_document else (" | ".join(example.texts),)
        return [f"{_format_answer(answer)}  {shorten(text)}" for text, answer in zip(texts, self.answers, strict=True)]


@dataclass(frozen=True)
class ClassifyCalibration:
    """What was chosen on development data."""

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()
    """Least probability at which each of several labels is given; empty: one half."""


def pool_windows(outputs_PC: npt.NDArray[np.float32], layout: ClassifyLayout, pool: str) -> Floats:
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


def fit_calibration(logits_AC: Floats, gold: npt.NDArray[Any], kind: ClassifyKind) -> ClassifyCalibration:
    """Fit the temperature, which changes no label, and choose the threshold of each of several labels by F1."""
    if kind == "single":
        return ClassifyCalibration(fit_temperature(logits_AC, gold))
    temperature = fit_binary_temperature(logits_AC, gold)
    sure_AC = sigmoid(logits_AC / temperature)
    thresholds = tuple(best_threshold(sure, yes) for sure, yes in zip(sure_AC.T, gold.T, strict=True))
    return ClassifyCalibration(temperature, thresholds)


def decode_single(logits_AC: Floats, labels: Sequence[str], chosen: ClassifyCalibration) -> list[ClassifyAnswer]:
    """Choose the most probable label of each line."""
    sure_AC = softmax(logits_AC / chosen.temperature)
    best_A: IntArray = logits_AC.argmax(-1)
    return [
        ClassifyAnswer(
            label=labels[best],
            probabilities=dict(zip(labels, sure.tolist(), strict=True)),
            score=float(sure[best]),
        )
        for best, sure in zip(best_A.tolist(), sure_AC, strict=True)
    ]


def decode_multi(logits_AC: Floats, labels: Sequence[str], chosen: ClassifyCalibration) -> list[ClassifyAnswer]:
    """Choose the labels of each line whose probability reaches their threshold."""
    thresholds_C = np.array(chosen.thresholds or [0.5] * len(labels))
    answers = []
    for sure_C in sigmoid(logits_AC / chosen.temperature):
        is_yes = sure_C >= thresholds_C
        answers.append(
            ClassifyAnswer(
                labels=tuple(label for label, yes in zip(labels, is_yes.tolist(), strict=True) if yes),
                probabilities=dict(zip(labels, sure_C.tolist(), strict=True)),
                score=float(np.where(is_yes, sure_C, 1 - sure_C).min()),
            )
        )
    return answers


def decode_numbers(outputs_A1: Floats, mean: float, deviation: float) -> list[ClassifyAnswer]:
    """Return values on the scale of the training data."""
    return [ClassifyAnswer(value=value) for value in (outputs_A1[:, 0] * deviation + mean).tolist()]


def with_labels(document: Document, answer: ClassifyAnswer) -> Document:
    """Add the label or labels that a classifier gave the document; a number goes into `meta`."""
    if answer.value is not None:
        return replace(document, meta={**document.meta, VALUE_KEY: round(answer.value, 6)})
    scores = {label: round(answer.probabilities[label], 4) for label in answer.all_labels}
    known = document.meta.get(LABEL_SCORES_KEY)
    merged = {**known, **scores} if isinstance(known, dict) else scores
    labels = tuple(dict.fromkeys((*document.labels, *scores)))
    return replace(document, labels=labels, meta={**document.meta, LABEL_SCORES_KEY: merged})


def with_labelled_sentences(
    document: Document, example: ClassifyExample, answers: Iterable[ClassifyAnswer]
) -> Document:
    """Add an entity for each label of each sentence."""
    return with_entities(
        document,
        (
            (start, end, label, answer.probabilities[label])
            for (start, end), answer in zip(find_sentence_spans(example) or (), answers, strict=True)
            for label in answer.all_labels
        ),
    )


def _answer_record(answer: ClassifyAnswer) -> dict[str, Any]:
    if answer.value is not None:
        return {"value": answer.value}
    labels = {"label": answer.label} if answer.labels is None else {"labels": list(answer.labels)}
    return {**labels, "score": answer.score, "probabilities": dict(answer.probabilities)}


def _format_answer(answer: ClassifyAnswer) -> str:
    if answer.value is not None:
        return f"{answer.value:.3f}"
    labels = answer.label if answer.labels is None else ", ".join(answer.labels)
    return f"{labels or '(none)'}  {answer.score:.2f}"


def iter_confidences(example: ClassifyExample, prediction: ClassifyPrediction) -> Iterator[tuple[float, bool]]:
    """Yield for each guessed label how sure the model is of it, and whether it is right; numbers have none."""
    for gold, answer in zip(example.golds, prediction.answers, strict=True):
        if answer.labels is not None:
            right = {gold} if isinstance(gold, str) else set(gold) if isinstance(gold, tuple) else set()
            yield from ((answer.probabilities[label], label in right) for label in answer.labels)
        elif answer.label is not None and answer.score is not None:
            yield answer.score, answer.label == gold


# N examples, A answers


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
        "spearman": classes.spearman(gold, guess),
        "pearson": classes.pearson(gold, guess),
        "mse": classes.mse(gold, guess),
        "mae": classes.mae(gold, guess),
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
        prepare = classes.spearman_measure if main == "spearman" else classes.pearson_measure
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
