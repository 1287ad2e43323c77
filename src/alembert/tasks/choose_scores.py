"""Answers of the task `choose` and how good they are, beside what guessing would give."""

# N examples, C choices
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from alembert.tasks.choose_example import ChooseExample
from alembert.tasks.example import Coverage
from alembert.tasks.metrics.calibration import HIGHEST, fit_temperature, softmax
from alembert.tasks.metrics.chance import UNLIKELY, chance_level, chance_of
from alembert.tasks.metrics.tally import Floats, ratio
from alembert.tasks.task import Measure, Scores

_NEVER: Final = 1000 * HIGHEST
"""So far below the other scores a choice has probability 0 at every temperature."""


@dataclass(frozen=True)
class ChoosePrediction:
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


def temperature_of(scores: Sequence[Floats], golds: Sequence[int]) -> float:
    """Find the temperature at which the right choices are most likely."""
    widest = max(map(len, scores), default=0)
    padded_NC = np.array([np.append(each, np.full(widest - len(each), each.min() - _NEVER)) for each in scores])
    return fit_temperature(padded_NC, golds)


def scores_of(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> Scores:
    """Compute accuracy, also by number of choices, and compare it with guessing."""
    known = _known(examples, predictions)
    right = [is_right for _, is_right in known]
    counts = [choices for choices, _ in known]
    level, explained = chance_level(counts), chance_of(sum(right), counts)
    accuracy = ratio(sum(right), len(right))
    return Scores(
        main="accuracy",
        measures={"accuracy": accuracy, "chance": level, "p_of_chance": explained},
        by_label={f"{count} choices": _of_count(known, count) for count in sorted(set(counts))},
        coverage=Coverage.total(prediction.coverage for prediction in predictions),
        notes=(_near_chance(accuracy, level, explained),) if known and explained > UNLIKELY else (),
    )


def measure_of(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> Measure:
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


def _known(examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> list[tuple[int, bool]]:
    """Give the number of choices and whether the guess is right, where the answer is known."""
    return [
        (len(example.choices), example.gold == prediction.choice)
        for example, prediction in zip(examples, predictions, strict=True)
        if example.gold is not None
    ]


def _of_count(known: Sequence[tuple[int, bool]], count: int) -> dict[str, float]:
    right = [is_right for choices, is_right in known if choices == count]
    return {"accuracy": ratio(sum(right), len(right)), "chance": 1 / count, "support": len(right)}


def _near_chance(accuracy: float, level: float, explained: float) -> str:
    return (
        f"Near chance: guessing has an accuracy of {level:.4f} on average, and {accuracy:.4f} or more in {explained:.1%} of "
        "all tries, so this score does not show that the model has learnt anything."
    )
