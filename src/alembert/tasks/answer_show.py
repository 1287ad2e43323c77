"""Predictions of the task `answer` for programs (JSON) and for people (lines)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from alembert.tasks.answer_decode import Answered, FoundAnswer
from alembert.tasks.answer_example import AnswerExample

_SHOWN: Final = 3
"""Answers that people see."""


def record_of(example: AnswerExample, prediction: Answered) -> dict[str, Any]:
    """Give a prediction as a JSON object; start and end are none where the answer is."""
    answer = prediction.answer
    return {
        "id": example.id,
        "question": example.question,
        "passage": example.passage,
        "text": prediction.text,
        "start": None if answer is None else answer.start,
        "end": None if answer is None else answer.end,
        "score": prediction.score,
        "null_score": prediction.null_score,
        "best": [asdict(each) for each in prediction.best],
        "coverage": prediction.coverage.brief("cut_characters"),
    }


def lines_of(prediction: Answered) -> list[str]:
    """Give a prediction as lines: the answer, then what else it might be."""
    if prediction.answer is None:
        return [f"{prediction.score:.2f}  (no answer)", *map(_line, prediction.best[: _SHOWN - 1])]
    return [_line(answer) for answer in prediction.best[:_SHOWN]]


def _line(answer: FoundAnswer) -> str:
    return f"{answer.score:.2f}  {answer.start}-{answer.end}  {answer.text}"
