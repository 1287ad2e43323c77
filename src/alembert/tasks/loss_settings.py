"""How a task's loss weighs its answers; apart from the losses, so that settings are checked before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alembert.errors import BadSetting


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """What is added to the plain loss."""

    label_smoothing: float = 0.0
    """Share of the probability that is spread over all labels (0.1, say); 0: none."""
    focal: float = 0.0
    """Power of focal loss, which makes sure answers count less (2, say); 0: off."""
    class_weights: Literal["equal", "balanced"] = "equal"
    """balanced: rare labels count more, by the inverse of their frequency in training."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise BadSetting(
                f"`label_smoothing` is {self.label_smoothing}; expected a share from 0, below 1 (0.1 is usual)."
            )
        if not 0 <= self.focal < float("inf"):
            raise BadSetting(f"`focal` is {self.focal}; expected 0 or a positive power (2 is usual).")
        if self.class_weights not in ("equal", "balanced"):
            raise BadSetting(f"`class_weights` is {self.class_weights!r}; expected equal or balanced.")
