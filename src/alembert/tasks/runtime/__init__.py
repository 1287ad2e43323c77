"""What a task asks of the model when it predicts, whatever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from alembert.errors import BadFile
from alembert.tasks.decoding.generation import IncrementalDecoder
from alembert.tasks.example import EncodedExample

Outputs = npt.NDArray[np.float32]
ExampleOutputs = Sequence[Sequence[Outputs]]
"""Those of each row of each example."""


class Runner(Protocol):
    """A model with the head of a task, in evaluation mode."""

    def outputs(self, encoded: Sequence[EncodedExample]) -> list[list[Outputs]]:
        """Return the head's outputs at the places of each row of each example."""

    def decoder(self, segment: int = 0) -> IncrementalDecoder:
        """Return what writes token by token with a head over the vocabulary; new tokens are of this segment."""


def check_finite(numbers: npt.NDArray[Any], what: str) -> None:
    """Refuse numbers of a model that are NaN or infinite, since every answer made of them would be wrong."""
    if not np.isfinite(numbers).all():
        raise BadFile(
            f"{what} of the model are NaN or infinite: its weights are damaged, or its training failed. Restore the "
            "folder, or train the model again."
        )
