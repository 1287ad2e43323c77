"""What `augment` can be told; apart from the verb, so that settings are checked before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from alembert.errors import BadSetting

_MAX_COUNT: Final = 1000


@dataclass(frozen=True, kw_only=True)
class AugmentSettings:
    """How many copies are made of each example, and how much of them is replaced; the defaults are TinyBERT's."""

    copies: int = 10
    """New texts for each example, at most; 0: none."""
    rate: float = 0.4
    """Chance of each word to be replaced."""
    candidates: int = 15
    """Words that a word may be replaced by, each as likely."""
    entities: float = 0.0
    """Chance of each entity to be replaced as a whole, by another of its type."""
    seed: int = 0
    """Decides about all chance."""

    def __post_init__(self) -> None:
        for name, least in (("copies", 0), ("candidates", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_COUNT:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from {least} to {_MAX_COUNT}.")
        for name in ("rate", "entities"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected a chance from 0 to 1.")
        if not self.rate and not self.entities:
            raise BadSetting(
                "`rate` and `entities` are both 0, so that all copies would be equal to their original. Raise one."
            )
