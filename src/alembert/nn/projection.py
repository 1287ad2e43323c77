"""The product of states with the whole vocabulary, in strips that fit the cache.

In: states (P, E), the embedding (V, E) and a bias. Out: logits (P, V), the same to the bit as those of a linear layer. On a
CPU one product of a few hundred states with 30,000 rows runs at half of the speed that the machine has: its long output
rows chase each other out of the cache. Strips of a thousand rows run at full speed (docs/benchmarks.md).
"""

# P states, E embedding width, V vocabulary
from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_STRIP: Final = 1024


def to_vocabulary(states_PE: Tensor, embedding_VE: Tensor, bias_V: Tensor) -> Tensor:
    """Return logits (P, V)."""
    plain = states_PE.device.type == "cpu" and states_PE.dtype == embedding_VE.dtype == torch.float32
    if not plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return functional.linear(states_PE, embedding_VE, bias_V)
    return _InStrips.apply(states_PE, embedding_VE, bias_V)  # type: ignore[no-untyped-call]


class _InStrips(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states_PE: Tensor, embedding_VE: Tensor, bias_V: Tensor) -> Tensor:
        ctx.save_for_backward(states_PE, embedding_VE)
        logits_PV = states_PE.new_empty(len(states_PE), len(embedding_VE))
        parts = (
            torch.split(logits_PV, _STRIP, 1),
            torch.split(embedding_VE, _STRIP),
            torch.split(bias_V, _STRIP),
        )
        for out, rows_VE, bias in zip(*parts, strict=True):
            torch.addmm(bias, states_PE, rows_VE.T, out=out)
        return logits_PV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logits_PV: Tensor) -> tuple[Tensor | None, ...]:
        states_PE, embedding_VE = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            d_logits_PV @ embedding_VE if wanted[0] else None,
            d_logits_PV.T @ states_PE if wanted[1] else None,
            d_logits_PV.sum(0) if wanted[2] else None,
        )
