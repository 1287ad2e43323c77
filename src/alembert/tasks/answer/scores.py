"""Answers from the outputs of the head `span`, without torch: the best stretches of the passage, and whether to give
any.

As in the published code of BERT: in each window the best starts are paired with the best ends, a pair scores the sum of
both outputs, equal texts are kept once, and "no answer" scores the sum at [CLS], the least of all windows. A start
counts only in the window that owns it, and is looked for there alone, so no token is scored twice. The answer is none
if it scores more than the best answer by over the threshold. Beyond the published code, no answer begins or ends inside
a word. Answers are compared with what is right for a report, and for resampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Window
from alembert.tasks.answer.data import AnswerExample, AnswerSettings
from alembert.tasks.answer.rows import AnswerLayout, EncodedPassage
from alembert.tasks.example import Coverage, TaskPrediction
from alembert.tasks.metrics import Floats, ratio
from alembert.tasks.metrics.answers import NO_ANSWER, AnswerScorer, best_no_answer_threshold, find_first_rank
from alembert.tasks.metrics.calibration import softmax
from alembert.tasks.runtime import Outputs
from alembert.tasks.task import SampleMetric, TaskScores

# P places of a row, S starts, E ends, K candidates


_MAX_SHOWN: Final = 3
"""Answers that people see."""


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A stretch of the passage: `passage[start:end]` is `text`."""

    text: str
    start: int
    end: int
    score: float
    """Its probability among the best answers and, where that may be right, none."""


@dataclass(frozen=True)
class SpanAnswerPrediction(TaskPrediction[AnswerExample]):
    """The prediction for a question."""

    best: tuple[AnswerSpan, ...]
    """Answers with different texts, the best first."""
    null_score: float
    """How much better no answer scores than the best answer."""
    null_probability: float
    is_null: bool
    """Whether it is answered with none."""
    coverage: Coverage

    @property
    def answer(self) -> AnswerSpan | None:
        """The answer that is given; none: the passage has none."""
        return None if self.is_null or not self.best else self.best[0]

    @property
    def text(self) -> str:
        return NO_ANSWER if self.answer is None else self.answer.text

    @property
    def score(self) -> float:
        """How sure the given answer is."""
        return self.null_probability if self.answer is None else self.answer.score

    def to_record(self, example: AnswerExample) -> dict[str, Any]:
        """Return a JSON object; start and end are none where the answer is."""
        return {
            "id": example.id,
            "question": example.question,
            "passage": example.passage,
            "text": self.text,
            "start": None if self.answer is None else self.answer.start,
            "end": None if self.answer is None else self.answer.end,
            "score": self.score,
            "null_score": self.null_score,
            "best": [asdict(span) for span in self.best],
            "coverage": self.coverage.brief("cut_characters"),
        }

    def to_lines(self, example: AnswerExample) -> list[str]:
        """List the answer, then what else it might be."""
        if self.answer is None:
            return [f"{self.score:.2f}  (no answer)", *map(_format_answer, self.best[: _MAX_SHOWN - 1])]
        return [_format_answer(answer) for answer in self.best[:_MAX_SHOWN]]


def decode_answer(
    layout: AnswerLayout,
    outputs: Sequence[Outputs],
    coverage: Coverage,
    settings: AnswerSettings,
    threshold: float | None,
) -> SpanAnswerPrediction:
    """Read the answers to one question; without a threshold it is always answered, if there is anything to say."""
    passage = layout.passage
    parts = [
        find_candidates(window, outputs_P2, passage, settings)
        for window, outputs_P2 in zip(layout.windows, outputs, strict=True)
    ]
    firsts_K, lasts_K, scores_K = (np.concatenate(column) for column in zip(*parts, strict=True))
    kept = _distinct_candidates(firsts_K, lasts_K, scores_K, passage, settings.n_best)
    logits = scores_K[kept]
    null = min(float(outputs_P2[0].sum()) for outputs_P2 in outputs)
    difference = null - float(logits[0]) if kept else 0.0
    may_be_none = threshold is not None or not kept
    sure = softmax(np.append(logits, [null] if may_be_none else [])[None])[0].tolist()
    return SpanAnswerPrediction(
        best=tuple(
            _to_answer_span(int(firsts_K[number]), int(lasts_K[number]), passage, score)
            for number, score in zip(kept, sure, strict=False)
        ),
        null_score=difference,
        null_probability=sure[-1] if may_be_none else 0.0,
        is_null=not kept or (threshold is not None and difference > threshold),
        coverage=coverage,
    )


def find_candidates(
    window: Window, outputs_P2: Outputs, passage: EncodedPassage, settings: AnswerSettings
) -> tuple[IntArray, IntArray, Floats]:
    """Pair the best starts of a window's own zone with the best ends of the window: tokens of the passage, and scores."""
    logits_T2 = outputs_P2[1:].astype(np.float64)
    own, all_of_it = slice(window.own_start, window.own_end), slice(window.start, window.end)
    begins = np.flatnonzero(passage.may_begin_T[own]) + window.own_start - window.start
    ends = np.flatnonzero(passage.may_end_T[all_of_it])
    starts_S = begins[_top_k(logits_T2[begins, 0], settings.n_best)]
    ends_E = ends[_top_k(logits_T2[ends, 1], settings.n_best)]
    length_SE = ends_E[None, :] - starts_S[:, None] + 1
    pairs_S, pairs_E = np.nonzero((length_SE > 0) & (length_SE <= settings.max_answer_length))
    firsts_K, lasts_K = starts_S[pairs_S], ends_E[pairs_E]
    return window.start + firsts_K, window.start + lasts_K, logits_T2[firsts_K, 0] + logits_T2[lasts_K, 1]


def _top_k(values: Floats, count: int) -> IntArray:
    """Rank the highest values, the highest first; of equal ones the first."""
    ranked: IntArray = np.argsort(-values, kind="stable")[:count]
    return ranked


def _distinct_candidates(
    firsts_K: IntArray, lasts_K: IntArray, scores_K: Floats, passage: EncodedPassage, count: int
) -> list[int]:
    """List the numbers of the best candidates that differ in their text, the best first."""
    kept: dict[str, int] = {}
    for number in _top_k(scores_K, len(scores_K)).tolist():
        kept.setdefault(passage.text_of(firsts_K[number], lasts_K[number]), number)
        if len(kept) == count:
            break
    return list(kept.values())


def _to_answer_span(first: int, last: int, passage: EncodedPassage, score: float) -> AnswerSpan:
    start, end = int(passage.starts_T[first]), int(passage.ends_T[last])
    return AnswerSpan(passage.text[start:end], start, end, score)


# N questions


@dataclass(frozen=True, eq=False)
class QuestionScores:
    """How well each question was answered, one number a question."""

    exact_N: Floats
    f1_N: Floats
    best_exact_N: Floats
    """Of the best answer, also where none was given; 0 where none is right."""
    best_f1_N: Floats
    is_none_N: Floats
    """1 for questions whose right answer is none."""
    null_N: Floats
    """How much better no answer scores than the best one."""
    rank_N: Floats
    """1 / the rank of the first right answer among the five best; 0 if it is not there."""

    @classmethod
    def of(
        cls, examples: Sequence[AnswerExample], predictions: Sequence[SpanAnswerPrediction], script: AnswerScorer
    ) -> QuestionScores:
        lines = [_score_question(e, p, script) for e, p in zip(examples, predictions, strict=True)]
        return cls(*np.array(lines, np.float64).reshape(-1, 7).T)

    @property
    def has_none(self) -> bool:
        return bool(self.is_none_N.any())

    def measures(self) -> dict[str, float]:
        """Compute all measures; those about questions without an answer only if there are any."""
        answerable = self.is_none_N == 0
        measures = {"exact": _mean(self.exact_N), "f1": _mean(self.f1_N)}
        if self.has_none:
            measures |= self._by_part(answerable) | self._score_at_best_thresholds()
        ranks = self.rank_N[answerable]
        return measures | {
            "strict_accuracy": _mean(np.floor(ranks)),
            "lenient_accuracy": _mean(np.ceil(ranks)),
            "mrr": _mean(ranks),
        }

    def _by_part(self, answerable: npt.NDArray[np.bool_]) -> dict[str, float]:
        return {
            "has_answer_exact": _mean(self.exact_N[answerable]),
            "has_answer_f1": _mean(self.f1_N[answerable]),
            "no_answer_exact": _mean(self.exact_N[~answerable]),
        }

    def _score_at_best_thresholds(self) -> dict[str, float]:
        """Score at the thresholds that suit these data best, which a model does not know."""
        exact = best_no_answer_threshold(self.best_exact_N, self.is_none_N, self.null_N)
        f1 = best_no_answer_threshold(self.best_f1_N, self.is_none_N, self.null_N)
        return {"best_exact": exact[1], "best_f1": f1[1], "best_f1_threshold": f1[0]}

    def values(self, main: str) -> tuple[Floats, Floats]:
        """Return the value of each question in a measure, and its weight: 0 where the measure does not look at it."""
        everywhere = np.ones(len(self.f1_N))
        if main in ("f1", "exact"):
            return (self.f1_N if main == "f1" else self.exact_N), everywhere
        ranks = {
            "mrr": self.rank_N,
            "strict_accuracy": np.floor(self.rank_N),
            "lenient_accuracy": np.ceil(self.rank_N),
        }
        return ranks[main], 1 - self.is_none_N


def _score_question(
    example: AnswerExample, prediction: SpanAnswerPrediction, script: AnswerScorer
) -> tuple[float, ...]:
    rights = example.gold_texts
    is_none = not rights
    exact, f1 = script.best(rights, prediction.text)
    texts = [answer.text for answer in prediction.best]
    if prediction.text == NO_ANSWER and texts and not is_none:
        best = script.best(rights, texts[0])
    else:
        best = (0.0, 0.0) if is_none else (exact, f1)
    rank = find_first_rank(rights, texts)
    return exact, f1, *best, float(is_none), prediction.null_score, 1 / rank if rank else 0.0


def _mean(values: Floats) -> float:
    return ratio(float(values.sum()), len(values))


def compute_scores(
    compared: QuestionScores, main: str, predictions: Sequence[SpanAnswerPrediction], *, tunes: bool = False
) -> TaskScores:
    """Put the measures together with what became of the texts; `tunes`: whether a threshold is still to be chosen."""
    coverage = Coverage.total(prediction.coverage for prediction in predictions)
    measures = compared.measures()
    notes = tuple(_note_near_chance(name, measures[name], compared) for name in ("f1", "exact") if name == main)
    at_best = f"best_{main}"
    return TaskScores(
        main=main,
        measures=measures,
        coverage=coverage,
        notes=tuple(filter(None, notes)),
        untuned=at_best if tunes and at_best in measures else "",
    )


def _note_near_chance(name: str, value: float, compared: QuestionScores) -> str:
    """Note that a model does no better than one that never answers; nothing if it does."""
    silent = _mean(compared.is_none_N)
    if not silent or value > silent:
        return ""
    return (
        f"Near chance: leaving all questions unanswered gives {name} {silent:.4f}, and this model has {value:.4f}, so the "
        "score does not show that it has learnt anything."
    )


def build_sample_metric(compared: QuestionScores, main: str) -> SampleMetric:
    """Prepare the main measure for samples of examples."""
    values_N, weights_N = compared.values(main)
    return lambda indices: ratio(float((values_N * weights_N)[indices].sum()), float(weights_N[indices].sum()))


def _format_answer(answer: AnswerSpan) -> str:
    return f"{answer.score:.2f}  {answer.start}-{answer.end}  {answer.text}"
