"""How a student begins; apart from the making of it, so that settings are checked before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from alembert.errors import BadSetting

Start = Literal["auto", "scratch", "teacher"]


@dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How a student begins."""

    start: Start = "auto"
    """teacher: the teacher's layers, narrowed if need be; scratch: fresh weights; auto: as the teacher where its
    weights can be narrowed to the student's shape, from scratch otherwise."""
    heads: int | None = None
    """Attention heads; none: the teacher's number, or the nearest below it that divides the width."""
    inner: int | None = None
    """Width inside the feed-forward part; none: the teacher's at its width, else four times the width (312: 1,200, as
    published), at most the teacher's."""
    layers: tuple[int, ...] = ()
    """Which of the teacher's layers, from 1, the student's begin as; empty: evenly spread, the last included."""

    def __post_init__(self) -> None:
        starts = get_args(Start)
        if self.start not in starts:
            raise BadSetting(f"`start` of the student is {self.start!r}; expected one of {', '.join(starts)}.")
        for name in ("heads", "inner"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadSetting(f"`{name}` of the student is {value}; expected a whole number from 1 up.")
        if self.layers and self.start == "scratch":
            raise BadSetting(
                "`layers` of the student names layers of the teacher, and `start` is scratch, which takes none of them. "
                "Leave one of the two out."
            )
        if any(one >= other for one, other in pairwise(self.layers)):
            raise BadSetting(f"`layers` of the student is {list(self.layers)}; expected rising numbers.")
