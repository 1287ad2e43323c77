"""Predictions of the task `compare` for programs (JSON) and for people (lines)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from alembert.tasks.compare_decode import Compared
from alembert.tasks.compare_example import CompareExample

_WIDTH: Final = 100
_SHOWN: Final = 4
"""Numbers of a vector that people are shown."""


def record_of(example: CompareExample, prediction: Compared) -> dict[str, Any]:
    """Give the vector of one text, or the similarity of two, or of the first to each of several."""
    brief = prediction.coverage.brief()
    if len(example.texts) == 1:
        vector = prediction.vectors[0].tolist()
        said = {"text": example.texts[0], "dimension": len(vector), "vector": vector}
    elif len(example.texts) == 2:
        said = {"texts": list(example.texts), "similarity": prediction.similarities[0]}
    else:
        said = {"texts": list(example.texts), "similarities": prediction.similarities}
    return {"id": example.id, **said, "coverage": brief}


def lines_of(example: CompareExample, prediction: Compared) -> list[str]:
    """Give similarities with the beginnings of texts; of a vector its size and the first numbers."""
    if len(example.texts) == 1:
        vector = prediction.vectors[0]
        first = " ".join(f"{number:.4f}" for number in vector[:_SHOWN].tolist())
        return [f"{len(vector)} numbers, length {np.linalg.norm(vector):.4f}: {first} ..."]
    others = zip(prediction.similarities, example.texts[1:], strict=True)
    return [f"{similarity:.4f}  {_short(text)}" for similarity, text in others]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
