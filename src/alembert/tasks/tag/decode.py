"""Entities of the task `tag`, from ranges of words with scores; numpy alone.

Spans are read from the vectors of a span head (`alembert.nn.pointer`). The table of all pairs is made in strips of first tokens, so that memory grows with the length of the row, not its
square, and with `longest` not even the time does. Temperatures are fitted on development data: of the words'
probabilities, of whole paths, or of spans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.tasks.example import EncodedExample
from alembert.tasks.metrics import calibration
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.tag.data import PredictedEntity, TagExample, TagPrediction
from alembert.tasks.tag.rows import TagLayout
from alembert.tasks.tag.tags import WordOffsets

if TYPE_CHECKING:
    from alembert.tasks.tag.task import TagTask


# T tokens, K width of queries and keys, Y types, C columns = 2 K + 2 Y


_STRIP: Final = 256


class PointerSpan(NamedTuple):
    """Two tokens that belong together, both included."""

    first: int
    last: int
    type: int
    score: float


def find_pointer_spans(
    vectors_TC: npt.NDArray[np.floating[Any]], types: int, threshold: float = 0.0, longest: int | None = None
) -> list[PointerSpan]:
    """Find all spans that score above the threshold, of at most `longest` tokens; ordered by place."""
    width = (vectors_TC.shape[1] - 2 * types) // 2
    query_TK, key_TK, first_TY, last_TY = np.split(vectors_TC, [width, 2 * width, 2 * width + types], axis=1)
    count = len(vectors_TC)
    reach = count if longest is None else longest
    spans: list[PointerSpan] = []
    for begin in range(0, count, _STRIP):
        end = min(begin + _STRIP, count)
        stop = min(end - 1 + reach, count)
        near = query_TK[begin:end] @ key_TK[begin:stop].T / np.sqrt(width)
        lengths = np.arange(stop - begin) - np.arange(end - begin)[:, None] + 1
        near = np.where((lengths >= 1) & (lengths <= reach), near, -np.inf)
        spans += _spans_above(near, first_TY[begin:end], last_TY[begin:stop], threshold, begin)
    return sorted(spans)


def _spans_above(
    near: npt.NDArray[np.floating[Any]],
    first: npt.NDArray[np.floating[Any]],
    last: npt.NDArray[np.floating[Any]],
    threshold: float,
    begin: int,
) -> Iterator[PointerSpan]:
    for kind in range(first.shape[1]):
        scores = near + first[:, kind, None] + last[:, kind]
        for i, j in np.argwhere(scores > threshold).tolist():
            yield PointerSpan(begin + i, begin + j, kind, float(scores[i, j]))


ScoredSpan = tuple[int, int, str, float]
"""First word, the word after the last, type, score."""


def decode_pointer_spans(layout: TagLayout, outputs: Sequence[Outputs], types: Sequence[str]) -> list[ScoredSpan]:
    """Decode the spans of a span head, each by the row that answers for it; their scores are above 0."""
    return sorted(
        (begin + first, begin + last + 1, types[kind], score)
        for begin, own, vectors in zip(layout.first_words, layout.owned_words, outputs, strict=True)
        for first, last, kind, score in find_pointer_spans(vectors, len(types))
        if own[0] <= begin + first < own[1]
    )


def with_probabilities(spans: Iterable[ScoredSpan], temperature: float) -> Iterator[ScoredSpan]:
    """Turn scores above 0 into probabilities."""
    for first, end, label, score in spans:
        yield first, end, label, 1 / (1 + math.exp(-score / temperature))


def to_entities(encoded: EncodedExample, spans: Iterable[ScoredSpan]) -> TagPrediction:
    """Turn ranges of words into entities at characters."""
    words: WordOffsets = encoded.layout.words
    entities = (
        PredictedEntity(int(words.starts_W[first]), int(words.ends_W[end - 1]), label, score)
        for first, end, label, score in spans
    )
    return TagPrediction(tuple(entities), encoded.coverage)


def fit_word_temperature(
    task: TagTask, examples: Sequence[TagExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
) -> float | None:
    """Fit it to the tags of words, or with a CRF to whole paths, where all types are annotated; none: nowhere."""
    labelled = [
        (np.concatenate(parts), np.concatenate([row.labels for row in read.rows]))
        for example, read, parts in zip(examples, encoded, outputs, strict=True)
        if read.rows and all(map(example.annotates, task.types)) and all(row.labels is not None for row in read.rows)
    ]
    if not labelled:
        return None
    logits, labels = zip(*labelled, strict=True)
    if task.crf_decoder is not None:
        return task.crf_decoder.fit_temperature(logits, labels, task.allowed_transitions)
    return calibration.fit_temperature(np.concatenate(logits), np.concatenate(labels))


def fit_span_temperature(
    task: TagTask, examples: Sequence[TagExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
) -> float:
    """Fit it to the entities that are found: nearly all other stretches of words are easy, and would decide alone."""
    judged = [
        confidence
        for example, read, parts in zip(examples, encoded, outputs, strict=True)
        if example.entities is not None
        for confidence in task.confidences(
            example, to_entities(read, decode_pointer_spans(read.layout, parts, task.types))
        )
    ]
    scores, right = zip(*judged, strict=True) if judged else ((), ())
    return calibration.fit_binary_temperature(scores, right)
