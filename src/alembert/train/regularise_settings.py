"""What R-Drop and adversarial training can be told; apart from them, so that settings are checked before torch is
loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from alembert.errors import BadSetting

Method = Literal["none", "fgm", "pgd", "freelb"]


@dataclass(frozen=True)
class Ascent:
    """How a change of the embeddings is made: some steps up the loss, inside a ball."""

    size: float
    steps: int
    step_size: float


USUAL: Final = {"fgm": Ascent(1.0, 1, 1.0), "pgd": Ascent(1.0, 3, 0.3), "freelb": Ascent(0.3, 3, 0.1)}
"""What is usual with models of BERT's kind, whose token embeddings have a length of about 1."""


@dataclass(frozen=True, kw_only=True)
class AdversarialSettings:
    """Training on token embeddings that are changed so that the loss grows. Lengths are those of a whole document."""

    method: Method = "none"
    """fgm: one step (Miyato et al. 2017; a step of training takes about 2.3 times as long). pgd: several small steps
    (Madry et al. 2018; three take about 4 times as long). freelb: learn at every one of them (Zhu et al. 2020; three
    take about 4 times as long, and three times the memory). none: off."""
    size: float | None = None
    """Greatest length of the change; none: 1 for fgm and pgd, 0.3 for freelb."""
    steps: int | None = None
    """Steps of pgd and freelb; none: 3."""
    step_size: float | None = None
    """Length of a step of pgd and freelb; none: 0.3 for pgd, 0.1 for freelb."""
    weight: float = 1.0
    """What the loss after the change counts beside the plain one, with fgm and pgd; freelb has no plain one."""

    def __post_init__(self) -> None:
        methods = get_args(Method)
        _check("method", self.method, self.method in methods, f"one of {', '.join(methods)}")
        _check("size", self.size, self.size is None or 0 <= self.size < math.inf, "0 or a positive number")
        _check("steps", self.steps, self.steps is None or self.steps >= 1, "a whole number from 1 up")
        fits = self.step_size is None or 0 < self.step_size < math.inf
        _check("step_size", self.step_size, fits, "a positive number")
        _check("weight", self.weight, 0 < self.weight < math.inf, "a positive number")
        self._check_used()

    def _check_used(self) -> None:
        for name in ("steps", "step_size"):
            if self.method == "fgm" and getattr(self, name) is not None:
                raise BadSetting(f"fgm takes one step of the length `size`. Leave `{name}` out, or use pgd.")
        if self.method == "freelb" and self.weight != 1:
            raise BadSetting("freelb has no plain loss that `weight` could compare with. Leave it out.")

    @property
    def ascent(self) -> Ascent:
        """Give the steps of a method that is not `none`, with what was left out."""
        usual = USUAL[self.method]
        size = usual.size if self.size is None else self.size
        if self.method == "fgm":
            return Ascent(size, 1, size)
        return Ascent(size, self.steps or usual.steps, self.step_size or usual.step_size)


@dataclass(frozen=True, kw_only=True)
class RegulariseSettings:
    """What makes a model hold against small changes of itself or of its input."""

    r_drop: float = 0.0
    """Weight of the distance between the answers under two dropout masks (Liang et al. 2021: 0.5 to 5); 0: off.
    A step of training takes twice as long."""
    adversarial: AdversarialSettings = field(default_factory=AdversarialSettings)
    """Training on changed embeddings."""

    def __post_init__(self) -> None:
        if not 0 <= self.r_drop < math.inf:
            raise BadSetting(f"`r_drop` is {self.r_drop}; expected 0 (off) or a positive weight, such as 1.")
        if self.r_drop and self.adversarial.method != "none":
            raise BadSetting(
                f"`r_drop` compares two passes that differ in dropout alone, and {self.adversarial.method} changes the "
                "input. Choose one of them."
            )


def _check(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise BadSetting(f"`{name}` of adversarial training is {value!r}; expected {expected}.")
