"""Scores of the task `answer`: answers against what is right, as a report and as a measure for resampling."""

# N questions
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alembert.tasks.answer_decode import Answered
from alembert.tasks.answer_example import AnswerExample
from alembert.tasks.example import Coverage
from alembert.tasks.metrics.answers import NONE, Script, best_threshold, rank_of
from alembert.tasks.metrics.tally import Floats, ratio
from alembert.tasks.task import Measure, Scores


@dataclass(frozen=True, eq=False)
class Compared:
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
    def of(cls, examples: Sequence[AnswerExample], predictions: Sequence[Answered], script: Script) -> Compared:
        lines = [_line(e, p, script) for e, p in zip(examples, predictions, strict=True)]
        return cls(*np.array(lines, np.float64).reshape(-1, 7).T)

    @property
    def has_none(self) -> bool:
        return bool(self.is_none_N.any())

    def measures(self) -> dict[str, float]:
        """Compute all measures; those about questions without an answer only if there are any."""
        answerable = self.is_none_N == 0
        found = {"exact": _mean(self.exact_N), "f1": _mean(self.f1_N)}
        if self.has_none:
            found |= self._by_part(answerable) | self._at_best()
        ranks = self.rank_N[answerable]
        return found | {
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

    def _at_best(self) -> dict[str, float]:
        """Score at the thresholds that suit these data best, which a model does not know."""
        exact = best_threshold(self.best_exact_N, self.is_none_N, self.null_N)
        f1 = best_threshold(self.best_f1_N, self.is_none_N, self.null_N)
        return {"best_exact": exact[1], "best_f1": f1[1], "best_f1_threshold": f1[0]}

    def values(self, main: str) -> tuple[Floats, Floats]:
        """Give the value of each question in a measure, and its weight: 0 where the measure does not look at it."""
        everywhere = np.ones(len(self.f1_N))
        if main in ("f1", "exact"):
            return (self.f1_N if main == "f1" else self.exact_N), everywhere
        ranks = {
            "mrr": self.rank_N,
            "strict_accuracy": np.floor(self.rank_N),
            "lenient_accuracy": np.ceil(self.rank_N),
        }
        return ranks[main], 1 - self.is_none_N


def _line(example: AnswerExample, prediction: Answered, script: Script) -> tuple[float, ...]:
    rights = example.rights
    is_none = not rights
    exact, f1 = script.best(rights, prediction.text)
    texts = [answer.text for answer in prediction.best]
    if prediction.text == NONE and texts and not is_none:
        best = script.best(rights, texts[0])
    else:
        best = (0.0, 0.0) if is_none else (exact, f1)
    rank = rank_of(rights, texts)
    return exact, f1, *best, float(is_none), prediction.null_score, 1 / rank if rank else 0.0


def _mean(values: Floats) -> float:
    return ratio(float(values.sum()), len(values))


def scores_of(compared: Compared, main: str, predictions: Sequence[Answered], *, tunes: bool = False) -> Scores:
    """Put the measures together with what became of the texts; `tunes`: whether a threshold is still to be chosen."""
    coverage = Coverage.total(prediction.coverage for prediction in predictions)
    measures = compared.measures()
    notes = tuple(_near_chance(name, measures[name], compared) for name in ("f1", "exact") if name == main)
    at_best = f"best_{main}"
    return Scores(
        main=main,
        measures=measures,
        coverage=coverage,
        notes=tuple(filter(None, notes)),
        untuned=at_best if tunes and at_best in measures else "",
    )


def _near_chance(name: str, value: float, compared: Compared) -> str:
    """Say that a model does no better than one that never answers; nothing if it does."""
    silent = _mean(compared.is_none_N)
    if not silent or value > silent:
        return ""
    return (
        f"Near chance: leaving all questions unanswered gives {name} {silent:.4f}, and this model has {value:.4f}, so the "
        "score does not show that it has learnt anything."
    )


def measure_of(compared: Compared, main: str) -> Measure:
    """Prepare the main measure for samples of examples."""
    values_N, weights_N = compared.values(main)
    return lambda indices: ratio(float((values_N * weights_N)[indices].sum()), float(weights_N[indices].sum()))
