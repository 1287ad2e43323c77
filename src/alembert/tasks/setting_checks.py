"""What the settings of several tasks share: checks, each with its sentence, and how they are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from alembert.errors import BadSetting
from alembert.settings import changed

S = TypeVar("S")
LARGEST: Final = 1e300
"""No number of a task is further from 0."""


def check_choices(settings: object, choices: Mapping[str, Sequence[object]]) -> None:
    """Refuse a setting that is none of those that it can be: name -> what it can be."""
    for name, known in choices.items():
        value = getattr(settings, name)
        if value not in known:
            raise BadSetting(f"`{name}` of the task is {value!r}; expected one of {', '.join(map(str, known))}.")


def check_windows(length: int, overlap: int) -> None:
    """Refuse windows that are too short to be read, or that share more than half of their tokens."""
    if length < 16:
        raise BadSetting(f"`length` of the task is {length}; a window needs at least 16 tokens.")
    if not 0 <= overlap <= length // 2:
        raise BadSetting(f"`overlap` of the task is {overlap}; expected 0 to half of `length` ({length // 2}).")


def saved(settings_class: Callable[[], S], table: Mapping[str, Any]) -> S:
    """Make settings again from what was saved, whose types are checked; what is refused is a ValueError.

    Nobody has asked for these values, so a sentence about a setting would mislead.
    """
    try:
        return changed(settings_class(), table, "the settings")
    except BadSetting as wrong:
        raise ValueError(str(wrong)) from None


def saved_number(table: Mapping[str, Any], name: str, least: float, most: float) -> float:
    """Return a number that was saved; raise ValueError for what is none, or is outside of these bounds."""
    value = table[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"`{name}` is {str(value)[:20]}; expected a number from {least:g} to {most:g}")
    return float(value)


def saved_temperature(table: Mapping[str, Any]) -> float:
    """Return the temperature that was saved; far outside of what calibration finds (0.1 to 10), it was changed."""
    return saved_number(table, "temperature", 1e-3, 1e3)
