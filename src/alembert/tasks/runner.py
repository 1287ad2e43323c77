"""What a task asks of the model when it predicts, whatever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from alembert.tasks.decoding.writing import Writer
from alembert.tasks.example import Encoded

Outputs = npt.NDArray[np.float32]


class Runner(Protocol):
    """A model with the head of a task, in evaluation mode."""

    def outputs(self, encoded: Sequence[Encoded]) -> list[list[Outputs]]:
        """Give the head's outputs at the places of each row of each example."""

    def writer(self, segment: int = 0) -> Writer:
        """Give what writes token by token with a head over the vocabulary; new tokens are of this segment."""
