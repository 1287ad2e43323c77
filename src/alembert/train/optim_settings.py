"""What an optimiser can be told; apart from it, so that settings are checked before torch is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from alembert.errors import BadSetting

Rule = Literal["adamw", "bert_adam", "lamb"]
_LARGEST_BETA: Final = 0.99999


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """How weights follow gradients."""

    name: Rule = "adamw"
    """adamw, bert_adam (as published: moments are not corrected for their start at zero) or lamb (large batches)."""
    rate: float = 1e-4
    """Learning rate at its highest (BERT 1e-4; continued training about 2e-5)."""
    weight_decay: float = 0.01
    """Weight decay; biases and layer norms have none."""
    beta1: float = 0.9
    """Share of the mean of past gradients that is kept in a step."""
    beta2: float = 0.999
    """Share of the mean of past squared gradients that is kept in a step."""
    epsilon: float = 1e-6
    """Added to the root of the mean square, against division by zero."""
    bias_correction: bool = True
    """Whether lamb corrects its moments for their start at zero; adamw always does, bert_adam never."""
    clip: float | None = 1.0
    """Longest gradient over all weights that are updated, which is shortened to it; none: any length."""
    layer_decay: float = 1.0
    """Factor on the rate from each layer to the one below it (0.9, say); 1: the same rate everywhere."""
    head_factor: float = 1.0
    """Factor on the rate of pooler and heads: new ones, a CRF most of all, often learn better with 5 or more."""
    update_every: tuple[int, ...] = ()
    """How many steps each layer collects gradients before it is updated with their mean, from the embeddings up;
    the last number holds for all layers above. Empty: every layer in every step."""
    half_heads: bool = False
    """Train half of the attention heads of each layer at a time: even ones in one step, odd ones in the next."""

    def __post_init__(self) -> None:
        rules = get_args(Rule)
        _check("name", self.name, self.name in rules, f"one of {', '.join(rules)}")
        _check("rate", self.rate, 0 < self.rate < math.inf, "a positive number")
        _check("weight_decay", self.weight_decay, 0 <= self.weight_decay < math.inf, "0 or a positive number")
        _check("beta1", self.beta1, 0 <= self.beta1 < 1, "a number from 0, below 1")
        _check("beta2", self.beta2, 0 <= self.beta2 < 1, "a number from 0, below 1")
        _check("epsilon", self.epsilon, 0 < self.epsilon < math.inf, "a positive number")
        _check("clip", self.clip, self.clip is None or self.clip > 0, "a positive number, or none")
        _check("layer_decay", self.layer_decay, 0 < self.layer_decay <= 1, "a number above 0, at most 1")
        _check("head_factor", self.head_factor, 0 < self.head_factor < math.inf, "a positive number")
        whole = all(isinstance(every, int) and every > 0 for every in self.update_every)
        _check("update_every", self.update_every, whole, "whole numbers from 1 up")
        if not self.corrects:
            fits = max(self.beta1, self.beta2) <= _LARGEST_BETA
            expected = f"betas up to {_LARGEST_BETA} where moments are not corrected"
            _check("beta2", self.beta2, fits, expected)

    @property
    def corrects(self) -> bool:
        """Whether moments are corrected for their start at zero."""
        return self.name == "adamw" or (self.name == "lamb" and self.bias_correction)

    def factor(self, depth: int, layers: int) -> float:
        """Tell the factor on the rate at a depth, from the embeddings (0) to the heads (`layers` + 1)."""
        return self.head_factor if depth > layers else self.layer_decay ** (layers + 1 - depth)

    def every(self, depth: int) -> int:
        """Tell how many steps a layer collects gradients."""
        return self.update_every[min(depth, len(self.update_every) - 1)] if self.update_every else 1


def _check(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise BadSetting(f"`{name}` of the optimiser is {value!r}; expected {expected}.")
