"""What the task `relate` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from alembert.errors import BadSetting
from alembert.tasks.setting_checks import check_choices

Reads = Literal["first", "markers"]
Main = Literal["auto", "micro_f1", "macro_f1", "accuracy"]
_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "reads": ("first", "markers"),
    "main": ("auto", "micro_f1", "macro_f1", "accuracy"),
    "directed": (True, False),
}


@dataclass(frozen=True, kw_only=True)
class RelateSettings:
    """How relations between two entities are found."""

    reads: Reads = "first"
    """What is classified: the first token, or the two markers that stand before the entities, side by side."""
    negative: str = "auto"
    """The label that means no relation; auto: told from the data, blank: there is none."""
    distance: int | None = 0
    """Documents: how many sentences two entities may be apart, 0: in one sentence; none: all that fit into `length`."""
    directed: bool = True
    """Documents: a relation from one entity to another is not one back; no: a pair is judged once, in text order."""
    length: int = 256
    """Tokens of a row at most, with special ones; of longer texts those around the two entities are read."""
    main: Main = "auto"
    """Measure that models are chosen by: micro_f1 (auto) or macro_f1 of the relations, or accuracy."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        if self.length < 16:
            raise BadSetting(f"`length` of the task is {self.length}; a row needs at least 16 tokens.")
        if self.distance is not None and self.distance < 0:
            raise BadSetting(
                f"`distance` of the task is {self.distance}; expected a number of sentences from 0, or none."
            )

    @property
    def measure(self) -> str:
        """The measure that models are chosen by."""
        return "micro_f1" if self.main == "auto" else self.main
