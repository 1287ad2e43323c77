"""The learning rate over a run: a factor from 0 to 1 for a progress from 0 to 1.

What progress means (steps, tokens, time) is the caller's affair. `linear` is the published schedule of BERT: its decay
is counted from the beginning of the run, not from the end of warm-up, so the rate steps down a little there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from alembert.errors import BadSetting

ScheduleKind = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """How the rate changes over the run."""

    kind: ScheduleKind = "linear"
    """Shape after warm-up: linear (as in BERT), cosine or constant."""
    warmup: float = 0.01
    """Share of the run in which the rate rises from zero."""
    final: float = 0.0
    """Share of the rate that is left at the end of the run, if it falls."""
    restart: bool = False
    """Begin anew, with warm-up and without the optimiser's moments, when the parts that come after `first` of the model
    are trained; the rate of `first` itself stays constant after its warm-up."""

    def __post_init__(self) -> None:
        kinds = get_args(ScheduleKind)
        if self.kind not in kinds:
            raise BadSetting(f"The schedule is {self.kind!r}; expected one of {', '.join(kinds)}.")
        for name in ("warmup", "final"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise BadSetting(f"`{name}` is {share}; expected a share from 0 to 1.")
        if self.kind == "constant" and self.final:
            raise BadSetting(
                f"A constant rate does not fall to `final` = {self.final}. Leave it out, or use linear or cosine."
            )


def get_rate_factor(progress: float, settings: ScheduleSettings) -> float:
    """Return the share of the full rate; progress beyond the run counts as its end.

    >>> get_rate_factor(0.005, ScheduleSettings()), get_rate_factor(0.5, ScheduleSettings())
    (0.5, 0.5)
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < settings.warmup:
        return progress / settings.warmup
    if settings.kind == "constant":
        return 1.0
    left = 1 - progress
    if settings.kind == "cosine":
        length = 1 - settings.warmup
        left = 0.5 * (1 - math.cos(math.pi * left / length)) if length else 0.0
    return settings.final + (1 - settings.final) * left
