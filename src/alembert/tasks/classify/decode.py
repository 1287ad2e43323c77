"""Answers of the task `classify`: from the head's outputs to labels, probabilities and numbers, without torch.

The outputs for the windows of one text are pooled before anything else. Probabilities are those at the temperature that
was fitted on development data; a label is chosen by the outputs alone (one label) or by comparing its probability with
its threshold (several), and thresholds are chosen at that temperature, so calibration changes no label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.data.windows import IntArray
from alembert.tasks.classify.data import ClassifyExample, ClassifyKind, find_sentence_spans, get_sentences
from alembert.tasks.classify.rows import ClassifyLayout
from alembert.tasks.example import LABEL_SCORES_KEY, VALUE_KEY, Coverage, TaskPrediction, shorten, with_entities
from alembert.tasks.metrics.bootstrap import Floats
from alembert.tasks.metrics.calibration import (
    best_threshold,
    fit_binary_temperature,
    fit_temperature,
    sigmoid,
    softmax,
)

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


def spread_gradient(
    outputs: Sequence[npt.NDArray[np.float32]],
    layout: ClassifyLayout,
    pool: str,
    answer: int,
    gradient_C: npt.NDArray[np.float32],
) -> list[npt.NDArray[np.float32]]:
    """Return how an answer's pooled outputs change with those of all windows, weighted by `gradient_C`."""
    outputs_PC = np.concatenate(outputs)
    own_P = np.flatnonzero(layout.owners == answer)
    spread_PC = np.zeros(outputs_PC.shape, np.float32)
    if pool == "max":
        highest_C = own_P[outputs_PC[own_P].argmax(0)]
        spread_PC[highest_C, np.arange(len(gradient_C))] = gradient_C
    else:
        spread_PC[own_P] = gradient_C / len(own_P)
    return np.split(spread_PC, np.cumsum([len(each) for each in outputs])[:-1])


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
