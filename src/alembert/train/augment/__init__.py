"""`augment`: more training examples, made of those that are there.

The settings stand here, apart from the verb, so that they are checked before torch is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from alembert.errors import BadSetting

_MAX_COUNT: Final = 1000


@dataclass(frozen=True, kw_only=True)
class AugmentSettings:
    """How many copies are made of each example, and how much of them is replaced; the defaults are TinyBERT's."""

    copies: int = 10
    """Maximum copies of each example; 0: none."""
    replace_probability: float = 0.4
    """Probability that a word is replaced."""
    candidates: int = 15
    """Candidates for each word, chosen with equal probability."""
    entity_probability: float = 0.0
    """Probability that an entity is replaced by another of its type."""
    seed: int = 0
    """Random seed."""

    def __post_init__(self) -> None:
        for name, least in (("copies", 0), ("candidates", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_COUNT:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from {least} to {_MAX_COUNT}.")
        for name in ("replace_probability", "entity_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected a chance from 0 to 1.")
        if not self.replace_probability and not self.entity_probability:
            raise BadSetting(
                "`replace_probability` and `entity_probability` are both 0, so that all copies would be equal to their original. Raise one."
            )
