"""Projection of states to the whole vocabulary, and its loss, in pieces that fit the CPU cache.

In: states (P, E), the embedding (V, E) and a bias. Out: logits (P, V), the same to the bit as those of a linear layer. On a
CPU one product of a few hundred states with 30,000 rows runs at half of the speed that the machine has: its long output
rows chase each other out of the cache. Strips of a thousand rows run at full speed (docs/benchmarks.md). Logits of a
micro-batch are tens of megabytes, so the loss goes over them as rarely as it can.
"""

# P states, E embedding width, V vocabulary
from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_STRIP: Final = 1024
_CACHE_ELEMENTS: Final = 1 << 18
"""Numbers that are changed together: a megabyte of them."""


def project_to_vocabulary(states_PE: Tensor, embedding_VE: Tensor, bias_V: Tensor) -> Tensor:
    """Return logits (P, V)."""
    plain = states_PE.device.type == "cpu" and states_PE.dtype == embedding_VE.dtype == torch.float32
    if not plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return functional.linear(states_PE, embedding_VE, bias_V)
    return _StripProjection.apply(states_PE, embedding_VE, bias_V)  # type: ignore[no-untyped-call]


class _StripProjection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states_PE: Tensor, embedding_VE: Tensor, bias_V: Tensor) -> Tensor:
        ctx.save_for_backward(states_PE, embedding_VE)
        logits_PV = bias_V.repeat(len(states_PE), 1)
        strips = torch.split(logits_PV, _STRIP, 1), torch.split(embedding_VE, _STRIP)
        for strip, rows_VE in zip(*strips, strict=True):
            torch.addmm(strip, states_PE, rows_VE.T, out=strip)
        return logits_PV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logits_PV: Tensor) -> tuple[Tensor | None, ...]:
        states_PE, embedding_VE = ctx.saved_tensors
        needs_gradient = ctx.needs_input_grad
        return (
            d_logits_PV @ embedding_VE if needs_gradient[0] else None,
            _transposed_product(d_logits_PV, states_PE) if needs_gradient[1] else None,
            d_logits_PV.sum(0) if needs_gradient[2] else None,
        )


def _transposed_product(d_logits_PV: Tensor, states_PE: Tensor) -> Tensor:
    """Return the gradient of the embedding (V, E)."""
    product_VE = states_PE.new_empty(d_logits_PV.shape[1], states_PE.shape[1])
    strips = torch.split(product_VE, _STRIP), torch.split(d_logits_PV, _STRIP, 1)
    for strip, d_strip in zip(*strips, strict=True):
        torch.mm(d_strip.T, states_PE, out=strip)
    return product_VE


def vocabulary_loss(logits_PV: Tensor, labels_P: Tensor) -> Tensor:
    """Add up -log p of the right piece of each answer, in float32."""
    if logits_PV.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.cross_entropy(logits_PV.float(), labels_P, reduction="sum")
    return _VocabularyLoss.apply(logits_PV, labels_P)  # type: ignore[no-untyped-call]


class _VocabularyLoss(torch.autograd.Function):
    """Cross-entropy whose gradient, the probabilities less one at the labels, is made row by row and written once."""

    @staticmethod
    def forward(ctx: Any, logits_PV: Tensor, labels_P: Tensor) -> Tensor:
        logs_PV = torch.log_softmax(logits_PV, -1, dtype=torch.float32)
        ctx.save_for_backward(logs_PV, labels_P)
        ctx.dtype = logits_PV.dtype
        return -logs_PV.gather(1, labels_P[:, None]).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, None]:
        logs_PV, labels_P = ctx.saved_tensors
        d_logits_PV = torch.empty_like(logs_PV, dtype=ctx.dtype)
        rows = max(1, _CACHE_ELEMENTS // logs_PV.shape[1])
        parts = (torch.split(tensor, rows) for tensor in (logs_PV, labels_P, d_logits_PV))
        for logs, labels, out in zip(*parts, strict=True):
            probabilities = logs.exp()
            probabilities[torch.arange(len(labels)), labels] -= 1
            torch.mul(probabilities, d_loss, out=out)
        return d_logits_PV, None
