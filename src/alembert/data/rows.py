"""What a model reads at once: one window of one example, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
USUAL_TOKENS: Final = 128
"""Length of the row for which the cost of a model is told: attention makes a token of a longer one dearer."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Token ids of one window, where answers are wanted in it, and, if known, the right ones."""

    ids: Numbers
    places: Numbers
    """Tokens of the row at which the head is asked, in order; a task that asks about the whole row has [0]."""
    labels: npt.NDArray[Any] | None = None
    """The right answers in the form that the task's loss takes; none: not known."""
    segments: Numbers | None = None
    prefix: int | None = None
    """For prefix attention: how many tokens at the beginning see each other both ways."""

    @property
    def length(self) -> int:
        return len(self.ids)
