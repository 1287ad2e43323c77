"""Answers of the task `choose` and how good they are, beside what guessing would give.

What guessing would score is its level, and how often it is as right as a model was. Examples may have different numbers of choices, so the number of lucky guesses is a sum of binomials, one for each
number of choices; its distribution is computed exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import Any, Final

import numpy as np

from alembert.tasks.choose.data import ChooseExample
from alembert.tasks.example import Coverage, TaskPrediction
from alembert.tasks.metrics.bootstrap import Floats, ratio
from alembert.tasks.metrics.calibration import MAX_TEMPERATURE, fit_temperature, softmax
from alembert.tasks.task import SampleMetric, TaskScores

# N examples, K right guesses


SIGNIFICANCE_LEVEL: Final = 0.05
"""Guessing that does as well as a model no more often than this does not explain its score."""


def chance_level(choices_N: Sequence[int]) -> float:
    """Compute the accuracy that guessing has on average: the mean of 1 / choices; 0 without examples.

    >>> chance_level([4, 4, 2, 2])
    0.375
    """
    return sum(1 / count for count in choices_N) / len(choices_N) if choices_N else 0.0


def chance_p_value(right: int, choices_N: Sequence[int]) -> float:
    """Compute how likely guessing is right at least so often.

    >>> chance_p_value(2, [2, 2]), chance_p_value(1, [4])
    (0.25, 0.25)
    """
    parts = [_binomial(count, 1 / choices) for choices, count in sorted(Counter(choices_N).items())]
    distribution_K = reduce(np.convolve, parts, np.ones(1))
    return float(min(1.0, distribution_K[right:].sum()))


def _binomial(count: int, share: float) -> Floats:
    """Compute the probability of each number of successes, 0 to `count`; in logarithms, since they are tiny."""
    if share == 1:
        return np.append(np.zeros(count), 1.0)
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, count + 1))))
    right = np.arange(count + 1)
    ways = logs[-1] - logs - logs[::-1]
    probabilities: Floats = np.exp(ways + right * np.log(share) + (count - right) * np.log1p(-share))
    return probabilities


# N examples, C choices


_PADDING_GAP: Final = 1000 * MAX_TEMPERATURE
"""So far below the other scores a choice has probability 0 at every temperature."""


@dataclass(frozen=True)
class ChoosePrediction(TaskPrediction[ChooseExample]):
    """How likely each choice is to be the right one."""

    probabilities: tuple[float, ...]
    coverage: Coverage
    choice: int
    """The best one, from 0."""

    @classmethod
    def of(cls, scores_C: Floats, temperature: float, coverage: Coverage) -> ChoosePrediction:
        """Compare the scores of the choices; the temperature changes no choice."""
        probabilities = softmax(scores_C / temperature)
        return cls(tuple(probabilities.tolist()), coverage, int(scores_C.argmax()))

    @property
    def score(self) -> float:
        """How sure it is."""
        return self.probabilities[self.choice]

    def to_record(self, example: ChooseExample) -> dict[str, Any]:
        """Return a JSON object; choices are numbered from 1."""
        passage = {} if example.passage is None else {"passage": example.passage}
        return {
            "id": example.id,
            **passage,
            "question": example.question,
            "choice": self.choice + 1,
            "text": example.choices[self.choice],
            "score": self.score,
            "choices": [
                {"choice": number, "text": text, "probability": probability}
                for number, text, probability in self._numbered(example)
            ],
            "coverage": self.coverage.brief(),
        }

    def to_lines(self, example: ChooseExample) -> list[str]:
        """List all choices, the most likely first: number, probability, text."""
        ranked = sorted(self._numbered(example), key=lambda choice: -choice[2])
        return [f"{number}  {probability:.2f}  {' '.join(text.split())}" for number, text, probability in ranked]

    def _numbered(self, example: ChooseExample) -> zip[tuple[int, str, float]]:
        return zip(count(1), example.choices, self.probabilities, strict=False)


def fit_choice_temperature(scores: Sequence[Floats], golds: Sequence[int]) -> float:
    """Find the temperature at which the right choices are most likely."""
    widest = max(map(len, scores), default=0)
    padded_NC = np.array(
        [np.append(scores_C, np.full(widest - len(scores_C), scores_C.min() - _PADDING_GAP)) for scores_C in scores]
    )
    return fit_temperature(padded_NC, golds)


def compute_scores(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> TaskScores:
    """Compute accuracy, also by number of choices, and compare it with guessing."""
    graded = _graded_choices(examples, predictions)
    right = [is_right for _, is_right in graded]
    counts = [choices for choices, _ in graded]
    level, explained = chance_level(counts), chance_p_value(sum(right), counts)
    accuracy = ratio(sum(right), len(right))
    return TaskScores(
        main="accuracy",
        measures={"accuracy": accuracy, "chance": level, "p_of_chance": explained},
        by_label={f"{choices} choices": _scores_of_count(graded, choices) for choices in sorted(set(counts))},
        coverage=Coverage.total(prediction.coverage for prediction in predictions),
        notes=(_near_chance(accuracy, level, explained),) if graded and explained > SIGNIFICANCE_LEVEL else (),
    )


def build_sample_metric(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> SampleMetric:
    """Prepare accuracy for resampling; examples without an answer have no part in it."""
    right = np.array(
        [
            np.nan if example.gold is None else example.gold == prediction.choice
            for example, prediction in zip(examples, predictions, strict=True)
        ]
    )

    def sampled(indices: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
        drawn = right[indices]
        drawn = drawn[~np.isnan(drawn)]
        return ratio(float(drawn.sum()), len(drawn))

    return sampled


def _graded_choices(
    examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]
) -> list[tuple[int, bool]]:
    """List the number of choices and whether the guess is right, where the answer is known."""
    return [
        (len(example.choices), example.gold == prediction.choice)
        for example, prediction in zip(examples, predictions, strict=True)
        if example.gold is not None
    ]


def _scores_of_count(graded: Sequence[tuple[int, bool]], count: int) -> dict[str, float]:
    right = [is_right for choices, is_right in graded if choices == count]
    return {"accuracy": ratio(sum(right), len(right)), "chance": 1 / count, "support": len(right)}


def _near_chance(accuracy: float, level: float, explained: float) -> str:
    return (
        f"Near chance: guessing has an accuracy of {level:.4f} on average, and {accuracy:.4f} or more in {explained:.1%} of "
        "all tries, so this score does not show that the model has learnt anything."
    )
