"""What the settings of several tasks share: checks, each with its sentence, and how they are read again.

How a task's loss weighs its answers, and how a student imitates its teacher's, stand here and not beside the losses, so
that settings are checked before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from alembert.errors import BadSetting
from alembert.settings import apply_changes, rename_old_keys

S = TypeVar("S")
MAX_MAGNITUDE: Final = 1e300
"""No number of a task is further from 0."""


def check_choices(settings: object, choices: Mapping[str, Sequence[object]]) -> None:
    """Refuse a setting that is none of those that it can be: name -> what it can be."""
    for name, allowed in choices.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise BadSetting(f"`{name}` of the task is {value!r}; expected one of {', '.join(map(str, allowed))}.")


def check_windows(length: int, overlap: int) -> None:
    """Refuse windows that are too short to be read, or that share more than half of their tokens."""
    if length < 16:
        raise BadSetting(f"`max_length` of the task is {length}; a window needs at least 16 tokens.")
    if not 0 <= overlap <= length // 2:
        raise BadSetting(f"`overlap` of the task is {overlap}; expected 0 to half of `max_length` ({length // 2}).")


def load_settings(settings_class: Callable[[], S], table: Mapping[str, Any]) -> S:
    """Make settings again from what was saved, whose types are checked; what is refused is a ValueError.

    Nobody has asked for these values, so a sentence about a setting would mislead.
    """
    try:
        return apply_changes(settings_class(), rename_old_keys(table, path=("task",)), "the settings")
    except BadSetting as wrong:
        raise ValueError(str(wrong)) from None


def load_number(table: Mapping[str, Any], name: str, least: float, most: float) -> float:
    """Return a number that was saved; raise ValueError for what is none, or is outside of these bounds."""
    value = table[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"`{name}` is {str(value)[:20]}; expected a number from {least:g} to {most:g}")
    return float(value)


def load_temperature(table: Mapping[str, Any]) -> float:
    """Return the temperature that was saved; far outside of what calibration finds (0.1 to 10), it was changed."""
    return load_number(table, "temperature", 1e-3, 1e3)


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Changes of the loss."""

    label_smoothing: float = 0.0
    """Label smoothing (such as 0.1); 0: off."""
    focal: float = 0.0
    """Gamma of focal loss (such as 2); 0: off."""
    class_weights: Literal["equal", "balanced"] = "equal"
    """Class weights of the loss: equal, or balanced (by inverse frequency of the labels)."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise BadSetting(
                f"`label_smoothing` is {self.label_smoothing}; expected a share from 0, below 1 (0.1 is usual)."
            )
        if not 0 <= self.focal < float("inf"):
            raise BadSetting(f"`focal` is {self.focal}; expected 0 or a positive power (2 is usual).")
        if self.class_weights not in ("equal", "balanced"):
            raise BadSetting(f"`class_weights` is {self.class_weights!r}; expected equal or balanced.")


@dataclass(frozen=True, kw_only=True)
class DistillLossSettings:
    """How the teacher's predictions are distilled."""

    temperature: float = 1.0
    """Softmax temperature of both models; without effect for regression and vectors."""
    crf: Literal["marginals", "path"] = "marginals"
    """Targets of a CRF teacher: marginals (tag probabilities) or path (its best path as labels)."""

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
