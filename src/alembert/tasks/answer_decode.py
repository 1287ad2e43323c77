"""Answers from the outputs of the head `span`, without torch: the best stretches of the passage, and whether to give any.

As in the published code of BERT: in each window the best starts are paired with the best ends, a pair scores the sum of
both outputs, equal texts are kept once, and "no answer" scores the sum at [CLS], the least of all windows. A start counts
only in the window that owns it, and is looked for there alone, so no token is scored twice. The answer is none if it
scores more than the best answer by over the threshold. Beyond the published code, no answer begins or ends inside a word.
"""

# P places of a row, S starts, E ends, K candidates
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alembert.data.windows import IntArray, Window
from alembert.tasks.answer_rows import Layout, Passage
from alembert.tasks.answer_settings import AnswerSettings
from alembert.tasks.example import Coverage
from alembert.tasks.metrics.answers import NONE
from alembert.tasks.metrics.calibration import softmax
from alembert.tasks.metrics.tally import Floats
from alembert.tasks.runner import Outputs


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """A stretch of the passage: `passage[start:end]` is `text`."""

    text: str
    start: int
    end: int
    score: float
    """Its probability among the best answers and, where that may be right, none."""


@dataclass(frozen=True)
class Answered:
    """What is said to a question."""

    best: tuple[FoundAnswer, ...]
    """Answers with different texts, the best first."""
    null_score: float
    """How much better no answer scores than the best answer."""
    null_probability: float
    is_null: bool
    """Whether it is answered with none."""
    coverage: Coverage

    @property
    def answer(self) -> FoundAnswer | None:
        """The answer that is given; none: the passage has none."""
        return None if self.is_null or not self.best else self.best[0]

    @property
    def text(self) -> str:
        found = self.answer
        return NONE if found is None else found.text

    @property
    def score(self) -> float:
        """How sure the given answer is."""
        found = self.answer
        return self.null_probability if found is None else found.score


def decode(
    layout: Layout,
    outputs: Sequence[Outputs],
    coverage: Coverage,
    settings: AnswerSettings,
    threshold: float | None,
) -> Answered:
    """Read the answers to one question; without a threshold it is always answered, if there is anything to say."""
    passage = layout.passage
    parts = [
        _candidates(window, outputs_P2, passage, settings)
        for window, outputs_P2 in zip(layout.windows, outputs, strict=True)
    ]
    firsts_K, lasts_K, scores_K = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = _different(firsts_K, lasts_K, scores_K, passage, settings.best)
    logits = scores_K[kept]
    null = min(float(outputs_P2[0].sum()) for outputs_P2 in outputs)
    difference = null - float(logits[0]) if kept else 0.0
    may_be_none = threshold is not None or not kept
    sure = softmax(np.append(logits, [null] if may_be_none else [])[None])[0].tolist()
    return Answered(
        best=tuple(
            _found(int(firsts_K[each]), int(lasts_K[each]), passage, score)
            for each, score in zip(kept, sure, strict=False)
        ),
        null_score=difference,
        null_probability=sure[-1] if may_be_none else 0.0,
        is_null=not kept or (threshold is not None and difference > threshold),
        coverage=coverage,
    )


def _candidates(
    window: Window, outputs_P2: Outputs, passage: Passage, settings: AnswerSettings
) -> tuple[IntArray, IntArray, Floats]:
    """Pair the best starts of a window's own zone with the best ends of the window: tokens of the passage, and scores."""
    logits_T2 = outputs_P2[1:].astype(np.float64)
    own, all_of_it = slice(window.own_start, window.own_end), slice(window.start, window.end)
    begins = np.flatnonzero(passage.may_begin_T[own]) + window.own_start - window.start
    ends = np.flatnonzero(passage.may_end_T[all_of_it])
    starts_S = begins[_highest(logits_T2[begins, 0], settings.best)]
    ends_E = ends[_highest(logits_T2[ends, 1], settings.best)]
    length_SE = ends_E[None, :] - starts_S[:, None] + 1
    pairs_S, pairs_E = np.nonzero((length_SE > 0) & (length_SE <= settings.answer_length))
    firsts_K, lasts_K = starts_S[pairs_S], ends_E[pairs_E]
    return window.start + firsts_K, window.start + lasts_K, logits_T2[firsts_K, 0] + logits_T2[lasts_K, 1]


def _highest(values: Floats, count: int) -> IntArray:
    """Give the places of the highest values, the highest first; of equal ones the first."""
    places: IntArray = np.argsort(-values, kind="stable")[:count]
    return places


def _different(firsts_K: IntArray, lasts_K: IntArray, scores_K: Floats, passage: Passage, count: int) -> list[int]:
    """Give the numbers of the best candidates that differ in their text, the best first."""
    kept: dict[str, int] = {}
    for each in _highest(scores_K, len(scores_K)).tolist():
        kept.setdefault(passage.text_of(firsts_K[each], lasts_K[each]), each)
        if len(kept) == count:
            break
    return list(kept.values())


def _found(first: int, last: int, passage: Passage, score: float) -> FoundAnswer:
    start, end = int(passage.starts_T[first]), int(passage.ends_T[last])
    return FoundAnswer(passage.text[start:end], start, end, score)
