"""How a student imitates what a teacher answers; apart from the losses, so that it is checked before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alembert.errors import BadSetting


@dataclass(frozen=True, kw_only=True)
class ImitationSettings:
    """How the answers of a teacher are taught."""

    temperature: float = 1.0
    """What the evidence of both is divided by: above 1, unlikely answers count more. Numbers and vectors have none."""
    crf: Literal["marginals", "path"] = "marginals"
    """What a CRF teaches: marginals (how likely each tag of each word is) or path (its best path, as if it were gold)."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise BadSetting(
                f"`temperature` of imitation is {self.temperature}; expected a positive number (1 is usual)."
            )
        if self.crf not in ("marginals", "path"):
            raise BadSetting(f"`crf` of imitation is {self.crf!r}; expected marginals or path.")
        if self.crf == "path" and self.temperature != 1:
            raise BadSetting(
                f"`crf` of imitation is path and its `temperature` is {self.temperature}, but a path that is learnt as if it "
                "were gold has none. Leave the temperature at 1, or teach marginals."
            )
