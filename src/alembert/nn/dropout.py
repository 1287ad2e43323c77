"""Dropout with reproducible masks: one seed and one part of the model always give the same mask.

torch draws dropout masks from one generator of the process. Then the result depends on which thread comes first, a
continued run needs the generator's state, and drawing is slow (8 to 12 ns an element on a CPU). A `DropoutSeed` has no state:
each part of the model makes its own generator (SFC64, seeded by `SeedSequence` as numpy advises for independent
streams) and cuts its words into 16-bit numbers, about 1 ns an element with the multiplication. The price: a rate is
rounded to a multiple of 1/65,536. Kept elements are scaled by the rounded rate, so expectations are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

EMBEDDINGS, BLOCKS, HEADS = range(3)
"""Parts of a model; layers and heads are numbered inside theirs."""
_LEVELS: Final = 1 << 16
_WORDS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class DropoutSeed:
    """Where the masks of one forward pass come from."""

    seed: int
    """Not negative."""
    path: tuple[int, ...] = ()
    """Where in the model: part, layer, and so on inwards."""

    def derive(self, *part: int) -> DropoutSeed:
        """Return the seed of a part inside this one; different parts are independent."""
        return DropoutSeed(self.seed, (*self.path, *part))

    def draw_keep_mask(self, rate: float, count: int, device: torch.device) -> Tensor:
        """Draw `count` times: False with probability `effective_rate(rate)`, else True."""
        seed = np.random.SeedSequence(self.seed, spawn_key=self.path)
        if device.type == "cpu":
            bits = _draw_words(seed, -(-count // 4)).view(np.uint16)
            return torch.from_numpy(bits[:count] >= _threshold(rate))
        generator = torch.Generator(device).manual_seed(int(seed.generate_state(1)[0]))
        return torch.rand(count, generator=generator, device=device) >= effective_rate(rate)


def _draw_words(seed: np.random.SeedSequence, count: int) -> npt.NDArray[np.uint64]:
    """Draw the raw words of a generator; unlike `random_raw` this lets other threads of Python run meanwhile."""
    return np.random.Generator(np.random.SFC64(seed)).integers(_WORDS, size=count, dtype=np.uint64)


def _threshold(rate: float) -> int:
    return round(rate * _LEVELS)


def effective_rate(rate: float) -> float:
    """Return the share of elements that `DropoutSeed` really drops.

    >>> effective_rate(0.1)
    0.100006103515625
    """
    return _threshold(rate) / _LEVELS


class Dropout(nn.Module):
    """Sets a share of the elements to zero in training and scales up the rest."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, states: Tensor, noise: DropoutSeed | None = None) -> Tensor:
        """Draw the mask from `noise`, or without it from torch's global generator."""
        if not self.training or not self.rate:
            return states
        if noise is None:
            return functional.dropout(states, self.rate)
        keep = noise.draw_keep_mask(self.rate, states.numel(), states.device).view(states.shape)
        return _DropoutFunction.apply(states, keep, 1 / (1 - effective_rate(self.rate)))  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class _DropoutFunction(torch.autograd.Function):
    """Multiplies by a mask and a number; torch's own product would keep the mask as floats."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return apply_mask(states, keep).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return apply_mask(gradient, keep).mul_(ctx.scale), None, None


def apply_mask(values: Tensor, keep: Tensor) -> Tensor:
    """Return `values * keep`, with zeros where `keep` is False."""
    if values.device.type != "cpu":
        return values * keep
    # numpy casts the mask block by block inside the cache; torch is five times slower on mixed types.
    result = torch.empty_like(values, memory_format=torch.contiguous_format)
    np.multiply(_to_numpy(values.detach()), keep.numpy(), out=_to_numpy(result))
    return result


def _to_numpy(values: Tensor) -> npt.NDArray[Any]:
    """View floats in numpy, those of 16 bits as integers: times one they stay, times zero they are zero."""
    return (values.view(torch.int16) if values.element_size() == 2 else values).numpy()
