"""Predictions of the task `classify` for programs (JSON) and for people (lines)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from alembert.tasks.classify_decode import Answer, ClassifyPrediction
from alembert.tasks.classify_example import ClassifyExample, sentence_spans, sentences_of

_WIDTH: Final = 100


def record_of(example: ClassifyExample, prediction: ClassifyPrediction, *, is_document: bool) -> dict[str, Any]:
    """Give a prediction as a JSON object; sentences that were found in a text have their offsets."""
    brief = prediction.coverage.brief()
    if not is_document:
        texts = {"text": example.texts[0]} if len(example.texts) == 1 else {"texts": list(example.texts)}
        return {"id": example.id, **texts, **_plain(prediction.answer), "coverage": brief}
    spans = sentence_spans(example)
    sentences = [
        {"text": sentence, **_plain(answer)}
        for sentence, answer in zip(sentences_of(example), prediction.answers, strict=True)
    ]
    for sentence, (start, end) in zip(sentences, spans or (), strict=False):
        sentence |= {"start": start, "end": end}
    return {"id": example.id, "sentences": sentences, "coverage": brief}


def lines_of(example: ClassifyExample, prediction: ClassifyPrediction, *, is_document: bool) -> list[str]:
    """Give a prediction as lines: answer, how sure it is, the beginning of the text."""
    texts = sentences_of(example) if is_document else (" | ".join(example.texts),)
    return [f"{_answer(answer)}  {_short(text)}" for text, answer in zip(texts, prediction.answers, strict=True)]


def _plain(answer: Answer) -> dict[str, Any]:
    if answer.value is not None:
        return {"value": answer.value}
    said = {"label": answer.label} if answer.labels is None else {"labels": list(answer.labels)}
    return {**said, "score": answer.score, "probabilities": dict(answer.probabilities)}


def _answer(answer: Answer) -> str:
    if answer.value is not None:
        return f"{answer.value:.3f}"
    said = answer.label if answer.labels is None else ", ".join(answer.labels)
    return f"{said or '(none)'}  {answer.score:.2f}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def confidences_of(example: ClassifyExample, prediction: ClassifyPrediction) -> Iterator[tuple[float, bool]]:
    """Give for each guessed label how sure the model is of it, and whether it is right; numbers have none."""
    for gold, answer in zip(example.golds, prediction.answers, strict=True):
        if answer.labels is not None:
            right = {gold} if isinstance(gold, str) else set(gold) if isinstance(gold, tuple) else set()
            yield from ((answer.probabilities[label], label in right) for label in answer.labels)
        elif answer.label is not None and answer.score is not None:
            yield answer.score, answer.label == gold
