"""How several tasks share a run, and how masked LM goes along with any task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alembert.errors import BadSetting


@dataclass(frozen=True, kw_only=True)
class SeveralSettings:
    """How several tasks share a run; without effect for one."""

    mixing: Literal["size", "temperature"] = "size"
    """size: every example of every task once in a pass. temperature: tasks have turns by size ^ (1 / temperature)."""
    temperature: float = 2.0
    """For mixing by temperature: 1 is by size; the higher, the more equal are the tasks' turns."""

    def __post_init__(self) -> None:
        if self.mixing not in ("size", "temperature"):
            raise BadSetting(f"`mixing` is {self.mixing!r}; expected size or temperature.")
        if not 1 <= self.temperature < float("inf"):
            raise BadSetting(
                f"`temperature` of [several] is {self.temperature}; expected 1 (by size) or more (2 is usual)."
            )

    @property
    def sharpness(self) -> float:
        """The temperature that turns are found by."""
        return self.temperature if self.mixing == "temperature" else 1.0


@dataclass(frozen=True, kw_only=True)
class MaskedLMSettings:
    """Masked LM on the rows of the task, so that the encoder does not forget the language."""

    weight: float = 0.0
    """Weight of its mean loss beside that of the task (0.1, say); 0: off."""
    rate: float = 0.15
    """Share of the tokens that are masked, anew in every pass."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < float("inf"):
            raise BadSetting(
                f"`weight` of [masked_lm] is {self.weight}; expected 0 (off) or a positive number (0.1 is usual)."
            )
        if not 0 < self.rate < 1:
            raise BadSetting(
                f"`rate` of [masked_lm] is {self.rate}; expected a share above 0, below 1 (0.15 is usual)."
            )
