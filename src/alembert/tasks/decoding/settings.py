"""How a model writes: the method of search, and what keeps texts from growing too long or repeating themselves."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from alembert.errors import BadSetting

DecodingMethod = Literal["greedy", "sample", "beam"]

_INTEGER_RANGES: Final = {
    "max_new_tokens": (1, 1_000_000),
    "top_k": (1, 10_000_000),
    "beams": (1, 1_000),
    "min_new_tokens": (0, 1_000_000),
    "no_repeat_ngram": (1, 1_000_000),
    "seed": (0, 2**63),
    "count": (1, 1_000),
}
_LARGEST_PENALTY: Final = 50
"""The length of the longest text to this power is still a number."""
_METHOD_BY_SETTING: Final = {
    "temperature": "sample",
    "top_k": "sample",
    "top_p": "sample",
    "beams": "beam",
    "length_penalty": "beam",
}


@dataclass(frozen=True, kw_only=True)
class DecodeSettings:
    """How text is generated."""

    method: DecodingMethod = "greedy"
    """`greedy` takes the likeliest token, `sample` draws by probability, `beam` looks for the likeliest text."""
    max_new_tokens: int = 128
    """Maximum new tokens, within the limit of the model."""
    min_new_tokens: int = 0
    """Minimum new tokens before a text may end."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_k: int | None = None
    """Sampling: draw from the k most probable tokens."""
    top_p: float | None = None
    """Sampling: draw from the most probable tokens with this total probability (nucleus sampling)."""
    beams: int = 4
    """Beam search: number of beams."""
    length_penalty: float = 1.0
    """Beam search compares log probability / length ** penalty; larger prefers longer texts."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that have occurred become less probable, as in CTRL."""
    no_repeat_ngram: int | None = None
    """No n-gram of this many tokens may occur twice; none: off."""
    seed: int = 0
    """Random seed; a sample depends on the seed, its prompt and its number alone."""
    count: int = 1
    """Texts for each prompt: samples, or the best of the beams."""

    def __post_init__(self) -> None:
        if self.method not in get_args(DecodingMethod):
            methods = ", ".join(get_args(DecodingMethod))
            raise BadSetting(f"`method` is {self.method!r}; expected one of {methods}.")
        self._check_whole_numbers()
        self._check_numbers()
        self._check_method()
        if self.min_new_tokens > self.max_new_tokens:
            raise BadSetting(
                f"`min_new_tokens` is {self.min_new_tokens}, and `max_new_tokens` is {self.max_new_tokens}. Use less, or more."
            )

    def _check_whole_numbers(self) -> None:
        for name, (least, most) in _INTEGER_RANGES.items():
            value = getattr(self, name)
            if value is None and name in ("top_k", "no_repeat_ngram"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadSetting(f"`{name}` is {value!r}; expected a whole number from {least} to {most:,}.")

    def _check_numbers(self) -> None:
        for name in ("temperature", "repetition_penalty"):
            value = getattr(self, name)
            if not _is_finite(value) or value <= 0:
                raise BadSetting(f"`{name}` is {value!r}; expected a number above 0.")
        if self.top_p is not None and not (_is_finite(self.top_p) and 0 < self.top_p <= 1):
            raise BadSetting(f"`top_p` is {self.top_p!r}; expected a number above 0, at most 1.")
        if not _is_finite(self.length_penalty) or abs(self.length_penalty) > _LARGEST_PENALTY:
            raise BadSetting(
                f"`length_penalty` is {self.length_penalty!r}; expected a number from -{_LARGEST_PENALTY} to "
                f"{_LARGEST_PENALTY}."
            )

    def _check_method(self) -> None:
        usual = {field.name: field.default for field in fields(self)}
        for name, method in _METHOD_BY_SETTING.items():
            if self.method != method and getattr(self, name) != usual[name]:
                raise BadSetting(
                    f"`{name}` is a setting of the method `{method}`, and the method is `{self.method}`. "
                    f"Leave it out, or use `{method}`."
                )
        most = {"greedy": 1, "beam": self.beams}.get(self.method, self.count)
        if self.count > most:
            raise BadSetting(
                f"`count` is {self.count}, and the method `{self.method}` finds {most} for each prompt. "
                "Use the method `sample`, or more beams."
            )

    @property
    def lines(self) -> int:
        """Lines that one prompt may need at once."""
        return self.beams if self.method == "beam" else self.count


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
