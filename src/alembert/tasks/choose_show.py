"""Predictions of the task `choose` for programs (JSON) and for people (lines)."""

from __future__ import annotations

from typing import Any

from alembert.tasks.choose_example import ChooseExample
from alembert.tasks.choose_scores import ChoosePrediction


def record_of(example: ChooseExample, prediction: ChoosePrediction) -> dict[str, Any]:
    """Give a prediction as a JSON object; choices are numbered from 1."""
    passage = {} if example.passage is None else {"passage": example.passage}
    return {
        "id": example.id,
        **passage,
        "question": example.question,
        "choice": prediction.choice + 1,
        "text": example.choices[prediction.choice],
        "score": prediction.score,
        "choices": [
            {"choice": number, "text": text, "probability": probability}
            for number, (text, probability) in enumerate(_pairs(example, prediction), start=1)
        ],
        "coverage": prediction.coverage.brief(),
    }


def lines_of(example: ChooseExample, prediction: ChoosePrediction) -> list[str]:
    """Give all choices, the most likely first: number, probability, text."""
    ranked = sorted(enumerate(_pairs(example, prediction), start=1), key=lambda each: -each[1][1])
    return [f"{number}  {probability:.2f}  {' '.join(text.split())}" for number, (text, probability) in ranked]


def _pairs(example: ChooseExample, prediction: ChoosePrediction) -> zip[tuple[str, float]]:
    return zip(example.choices, prediction.probabilities, strict=True)
