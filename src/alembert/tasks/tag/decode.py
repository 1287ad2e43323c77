"""Outputs of a tagger to entities: best paths of many texts at once, spans, and how sure the model is; numpy alone.

The recursions of `crf` cost a few calls of numpy a place, whatever the number of texts. Here all texts take a step
together: the first places of all texts stand side by side, then the second places of those that have one, and so on,
the longest text first. Nothing is padded. Paths are exactly those of `viterbi_decode`; probabilities are those of
`compute_marginals` but for the last digits.

Spans are read from the vectors of a span head (`alembert.nn.tag_outputs`). The table of all pairs is made in strips of
first tokens, so that memory grows with the length of the row, not its square, and with `longest` not even the time
does. Temperatures are fitted on development data: of the words' probabilities, of whole paths, or of spans.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from alembert.tasks.example import EncodedExample
from alembert.tasks.metrics import calibration
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.tag.crf import (
    FORBIDDEN_SCORE,
    AllowedTransitions,
    CrfDecoder,
    ScoreArray,
    TagIds,
    find_best_paths,
    to_factors,
)
from alembert.tasks.tag.data import PredictedEntity, TagExample, TagPrediction
from alembert.tasks.tag.rows import TagLayout
from alembert.tasks.tag.tags import LabelledSpan, WordOffsets, from_tags

if TYPE_CHECKING:
    from alembert.tasks.tag.task import TagTask


# B texts, W places of all texts, C tags


ChainScores = tuple[ScoreArray, ScoreArray, ScoreArray]
"""Of moves (from, to), and of tags at the start and at the end."""
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedTexts:
    """Texts that stand one after the other, in an order in which they take their steps together."""

    forward_W: _Ints
    """Where the places stand, from the first places of all texts to the last of the longest text."""
    backward_W: _Ints
    """The same from the last places of all texts to the first."""
    stops: list[int]
    """Where the places of each step end."""

    @classmethod
    def of(cls, lengths: Sequence[int]) -> PackedTexts:
        """Arrange texts of these lengths.

        >>> packed = PackedTexts.of([1, 3])
        >>> packed.forward_W.tolist(), packed.backward_W.tolist(), packed.stops
        ([1, 0, 2, 3], [3, 0, 2, 1], [2, 3, 4])
        """
        lengths_B = np.asarray(lengths, np.int64)
        by_length_B = np.argsort(-lengths_B, kind="stable")
        starts_B = (np.cumsum(lengths_B) - lengths_B)[by_length_B]
        lengths_B = lengths_B[by_length_B]
        text_W = np.repeat(np.arange(len(lengths_B)), lengths_B)
        place_W = np.arange(len(text_W)) - np.repeat(np.cumsum(lengths_B) - lengths_B, lengths_B)
        order_W = np.argsort(place_W, kind="stable")
        text_W, place_W = text_W[order_W], place_W[order_W]
        starts_W = starts_B[text_W]
        stops: list[int] = np.cumsum(np.bincount(place_W)).tolist() if len(place_W) else []
        return cls(starts_W + place_W, starts_W + lengths_B[text_W] - 1 - place_W, stops)

    def steps(self) -> list[tuple[int, int]]:
        """Return where each step begins and ends."""
        return list(zip([0, *self.stops], self.stops, strict=False))


def viterbi_decode_batch(
    emissions_WC: ScoreArray,
    lengths: Sequence[int],
    scores: ChainScores,
    legal: AllowedTransitions,
) -> TagIds:
    """Return the legal paths with the highest score, of texts that stand one after the other."""
    transitions_CC, start_C, end_C = scores
    packed = PackedTexts.of(lengths)
    moves_CC = np.where(legal.transitions, transitions_CC, FORBIDDEN_SCORE)
    # Tags are lines: a step adds and compares long stretches of memory.
    scores_CW = np.ascontiguousarray(np.asarray(emissions_WC, np.float64)[packed.forward_W].T)
    steps = packed.steps()
    for (before, _), (begin, end) in zip([(0, 0), *steps], steps, strict=False):
        if begin == 0:
            scores_CW[:, :end] += np.where(legal.start, start_C, FORBIDDEN_SCORE)[:, None]
        else:
            reached_CCB = moves_CC[:, :, None] + scores_CW[:, None, before : before + end - begin]
            scores_CW[:, begin:end] += reached_CCB.max(0)
    best_W = np.empty(len(emissions_WC), np.int64)
    best_W[packed.forward_W] = _backtrace(scores_CW, moves_CC, np.where(legal.end, end_C, FORBIDDEN_SCORE), steps)
    return best_W


def _backtrace(scores_CW: _Floats, moves_CC: _Floats, end_C: _Floats, steps: Sequence[tuple[int, int]]) -> TagIds:
    """Follow the best paths back: the move that was best is found again, for the tags on the path alone."""
    path_W = np.empty(scores_CW.shape[1], np.int64)
    to_CC = np.ascontiguousarray(moves_CC.T)
    next_B = np.empty(0, np.int64)
    for begin, end in reversed(steps):
        scores_BC, going_on = scores_CW[:, begin:end].T, len(next_B)
        path_W[begin : begin + going_on] = (to_CC[next_B] + scores_BC[:going_on]).argmax(1)
        path_W[begin + going_on : end] = (scores_BC[going_on:] + end_C).argmax(1)
        next_B = path_W[begin:end]
    return path_W


def compute_marginals_batch(
    emissions_WC: ScoreArray,
    lengths: Sequence[int],
    scores: ChainScores,
    legal: AllowedTransitions,
) -> _Floats:
    """Return the probability of each tag at each place (W, C), over all legal paths of its text."""
    transitions_CC, start_C, end_C = scores
    packed = PackedTexts.of(lengths)
    emissions_WC = np.asarray(emissions_WC, np.float64)
    factors_WC = np.exp(emissions_WC - emissions_WC.max(1, keepdims=True))
    moves_CC = to_factors(transitions_CC, legal.transitions)
    joint_WC = factors_WC.copy()
    for order_W, between_CC, first_C in (
        (packed.forward_W, moves_CC, to_factors(start_C, legal.start)),
        (packed.backward_W, np.ascontiguousarray(moves_CC.T), to_factors(end_C, legal.end)),
    ):
        joint_WC[order_W] *= _forward_sums(factors_WC[order_W], between_CC, first_C, packed.steps())
    found: _Floats = joint_WC / joint_WC.sum(1, keepdims=True)
    return found


def _forward_sums(
    factors_WC: _Floats, moves_CC: _Floats, start_C: _Floats, steps: Sequence[tuple[int, int]]
) -> _Floats:
    """Sum over all paths that come to each place, without its own emission; each place is scaled to the sum of 1."""
    reached_WC = np.empty_like(factors_WC)
    coming_BC = np.broadcast_to(start_C, (steps[0][1] if steps else 0, len(start_C)))
    for begin, end in steps:
        reached_BC = coming_BC[: end - begin]
        reached_WC[begin:end] = reached_BC / reached_BC.sum(1, keepdims=True)
        coming_BC = (reached_WC[begin:end] * factors_WC[begin:end]) @ moves_CC
    return reached_WC


# T tokens, K width of queries and keys, Y types, C columns = 2 K + 2 Y


_STRIP: Final = 256
_FITTED_EXAMPLES: Final = 2000


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


@dataclass(frozen=True, kw_only=True, eq=False)
class TagDecoder:
    """How tags of words are read: of many texts at once, since the calls for one cost as much as for hundreds."""

    tags: tuple[str, ...]
    legal: AllowedTransitions | None
    """None: a head that was trained elsewhere. The best tag of each word counts, legal or not, and the mean of a span's words,
    as users of such a head know it."""
    crf: CrfDecoder | None
    temperature: float

    def decode(self, emissions: Sequence[Outputs]) -> list[list[ScoredSpan]]:
        """Return the spans of each text; `emissions` (words, tags) may be of no word."""
        lengths = [len(each) for each in emissions]
        found: list[list[ScoredSpan]] = [[] for _ in emissions]
        if not any(lengths):
            return found
        emissions_WC = np.concatenate([each for each in emissions if len(each)])
        ends_B = np.cumsum(lengths)
        tags_W = self._best_paths(emissions_WC, lengths)
        spans = from_tags(tags_W, self.tags, frozenset((ends_B - lengths).tolist()))
        if not spans:
            return found
        texts = np.searchsorted(ends_B, [first for first, _, _ in spans], side="right").tolist()
        scores = self._span_scores(emissions_WC, lengths, tags_W, spans, texts)
        begins = (ends_B - lengths).tolist()
        for (first, end, label), text, score in zip(spans, texts, scores, strict=True):
            found[text].append((first - begins[text], end - begins[text], label, score))
        return found

    def decode_documents(
        self, layouts: Sequence[TagLayout], outputs: Sequence[Sequence[Outputs]]
    ) -> Iterator[list[ScoredSpan]]:
        """Yield the spans of each document; its sequences of tags are decoded one by one."""
        sequences = [layout.split_sequences(parts) for layout, parts in zip(layouts, outputs, strict=True)]
        decoded = iter(self.decode([each for parts in sequences for each in parts]))
        for layout, parts in zip(layouts, sequences, strict=True):
            first_words = layout.first_words_of_sequences
            yield [
                (begin + first, begin + end, label, score)
                for begin, spans in zip(first_words, islice(decoded, len(parts)), strict=True)
                for first, end, label, score in spans
            ]

    def _best_paths(self, emissions_WC: Outputs, lengths: Sequence[int]) -> npt.NDArray[np.int64]:
        if self.legal is None:
            best_W: npt.NDArray[np.int64] = emissions_WC.argmax(1)
            return best_W
        if self.crf is None:
            return find_best_paths(emissions_WC, lengths, self.legal)
        if len(lengths) == 1:  # alone it is faster without the order of steps
            return self.crf.decode(emissions_WC, self.legal)
        scores = self.crf.transitions_CC, self.crf.start_C, self.crf.end_C
        return viterbi_decode_batch(emissions_WC, lengths, scores, self.legal)

    def _span_scores(
        self,
        emissions_WC: Outputs,
        lengths: Sequence[int],
        tags_W: npt.NDArray[np.int64],
        spans: Sequence[LabelledSpan],
        texts: Sequence[int],
    ) -> list[float]:
        """Join the probabilities of the words of each span; texts without a span are not computed."""
        is_found_B = np.zeros(len(lengths), np.bool_)
        is_found_B[texts] = True
        kept_W = np.repeat(is_found_B, lengths)
        kept_lengths = np.asarray(lengths)[is_found_B].tolist()
        sure_K = self._probabilities(emissions_WC[kept_W], kept_lengths)[np.arange(kept_W.sum()), tags_W[kept_W]]
        firsts, sizes = np.array([(first, end - first) for first, end, _ in spans]).T
        begins = np.cumsum(sizes) - sizes
        words = np.arange(sizes.sum()) + np.repeat(firsts - begins, sizes)
        sure = sure_K[(np.cumsum(kept_W) - 1)[words]]
        joined = np.add.reduceat(sure, begins) / sizes if self.legal is None else np.minimum.reduceat(sure, begins)
        scores: list[float] = joined.tolist()
        return scores

    def _probabilities(self, emissions_WC: Outputs, lengths: Sequence[int]) -> npt.NDArray[np.float64]:
        """Compute how sure each tag of each word is."""
        if self.crf is None or self.legal is None:
            return calibration.softmax(emissions_WC.astype(np.float64) / self.temperature)
        if len(lengths) == 1:
            return self.crf.marginals(emissions_WC, self.legal, self.temperature)
        scores = self.crf.scaled(self.temperature)
        return compute_marginals_batch(emissions_WC / self.temperature, lengths, scores, self.legal)


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
        pair
        for example, read, parts in zip(examples, encoded, outputs, strict=True)
        if all(map(example.annotates, task.types))
        for pair in _pair_with_labels(read, parts)
    ]
    if not labelled:
        return None
    logits, labels = zip(*labelled, strict=True)
    if task.crf_decoder is not None:
        return task.crf_decoder.fit_temperature(logits, labels, task.allowed_transitions)
    return calibration.fit_temperature(np.concatenate(logits), np.concatenate(labels))


def _pair_with_labels(read: EncodedExample, parts: Sequence[Outputs]) -> Iterator[tuple[Outputs, npt.NDArray[Any]]]:
    """Pair the outputs of each sequence of tags with its labels, if they are known."""
    labels = [row.labels for row in read.rows if row.labels is not None]
    if labels and len(labels) == len(read.rows):
        yield from zip(read.layout.split_sequences(parts), read.layout.split_sequences(labels), strict=True)


def fit_entity_temperature(
    task: TagTask, examples: Sequence[TagExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
) -> float:
    """Fit it to the entities that are found: where types are not annotated, the right tags of most words are not known.

    The entities are the same at every temperature, and how likely it is that they are right is searched step by step,
    on at most `_FITTED_EXAMPLES` of the examples.
    """
    step = max(1, len(examples) // _FITTED_EXAMPLES)
    examples, encoded, outputs = examples[::step], encoded[::step], outputs[::step]

    def loss(temperature: float) -> float:
        predictions = replace(task, temperature=temperature).decode_batch(encoded, outputs)
        judged = [each for pair in zip(examples, predictions, strict=True) for each in task.confidences(*pair)]
        sure, is_right = np.array(judged or [(0.5, True)]).T
        return -float(np.log(np.where(is_right, sure, 1 - sure).clip(min=1e-6)).mean())

    low, high = calibration.MIN_TEMPERATURE, calibration.MAX_TEMPERATURE
    for _ in range(3):
        temperatures = np.geomspace(low, high, 9).tolist()
        best = min(range(9), key=lambda number: loss(temperatures[number]))
        low, high = temperatures[max(0, best - 1)], temperatures[min(8, best + 1)]
    return float(temperatures[best])


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
