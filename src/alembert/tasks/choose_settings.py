"""What the task `choose` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from alembert.errors import BadSetting
from alembert.tasks.setting_checks import check_choices, check_windows


@dataclass(frozen=True, kw_only=True)
class ChooseSettings:
    """How choices are read."""

    length: int = 256
    """Tokens of a window at most, with special ones; a longer passage, question or choice needs several."""
    overlap: int = 32
    """Tokens that neighbouring windows share."""
    pool: Literal["max", "mean"] = "max"
    """How the scores of the windows of one choice are put together."""
    train_windows: int | None = None
    """Windows of one choice that are learnt from at most, evenly spread; what is cut is counted. none: all."""

    def __post_init__(self) -> None:
        check_choices(self, {"pool": ("max", "mean")})
        check_windows(self.length, self.overlap)
        if self.train_windows is not None and self.train_windows < 1:
            raise BadSetting(
                f"`train_windows` of the task is {self.train_windows}; expected 1 or more, or none for all."
            )
