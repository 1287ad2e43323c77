"""Outputs over the vocabulary: the projection of states to it, and copying tokens of the source.

The projection and its loss are computed in pieces that fit the CPU cache. In: states (P, E), the embedding (V, E) and a
bias. Out: logits (P, V), the same to the bit as those of a linear layer. On a CPU one product of a few hundred states
with 30,000 rows runs at half of the speed that the machine has: its long output rows chase each other out of the cache.
Strips of a thousand rows run at full speed (docs/benchmarks.md). Logits of a micro-batch are tens of megabytes, so the
loss goes over them as rarely as it can.

`CopyMechanism` copies tokens of the source, as the pointer-generator network does (See et al. 2017). In: logits over
the vocabulary, the states in which they were asked for, and the source of each. Out: log probabilities of the mixture
P(w) = (1 - g) softmax(logits)(w) + g (attention that the tokens w of the source have together). The gate g depends on
the state, and so do the queries of the attention, whose keys are made of the last states of the source. So a rare word
can be written that the vocabulary alone would never choose. The source of a document is its prefix without the first
and the last token, which are [CLS] and [SEP]. Log probabilities are logits that are normalised already: losses and
searches take them as they take any.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from alembert.nn.attention import select_tokens
from alembert.nn.batch import Batch
from alembert.nn.kv_cache import CopySources, KVCache, Prefill, PromptRows

# P states, E embedding width, V vocabulary


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


# P tokens that are asked for, S sources, R of P in a source at most, T tokens of the longest source, D width, V vocabulary


START_SHARE: Final = 0.1
"""What the gate lets through at first: enough to learn from, too little to spoil what the vocabulary knows."""
_CLOSED: Final = -1e4
"""Logit of a gate that lets nothing through."""


class CopyMechanism(nn.Module):
    """Attention to the source, and the gate between it and the vocabulary."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.gate = nn.Linear(width, 1, bias=False)
        self.bias = nn.Parameter(torch.empty(1))

    def start(self) -> None:
        """Set the gate to what a fresh one has."""
        nn.init.constant_(self.bias, math.log(START_SHARE / (1 - START_SHARE)))

    def read_sources(self, states_ND: Tensor, batch: Batch, memory: KVCache | Prefill | None) -> CopySources:
        """Return the sources of a batch, by its documents; a memory keeps them while texts are written."""
        if isinstance(memory, KVCache):
            assert memory.sources is not None
            return memory.sources
        sources = _pad_sources(self.key(states_ND), batch)
        if memory is not None:
            memory.store_sources(sources)
        return sources

    def forward(self, logits_PV: Tensor, states_PD: Tensor, sources: CopySources, rows: PromptRows) -> Tensor:
        """Return log probabilities (P, V)."""
        q_S1RD = rows.by_prompt(self.query(states_PD)[:, None])
        scores_PT = rows.by_row(q_S1RD @ sources.keys_STD[:, None].mT)[:, 0].float() / math.sqrt(states_PD.shape[1])
        ids_PT, first_PT = sources.ids_ST[rows.owners_B], sources.first_ST[rows.owners_B]
        readable_PT = first_PT >= 0
        shares_PT = scores_PT.masked_fill(~readable_PT, torch.finfo(scores_PT.dtype).min).softmax(-1)
        gate_P1 = (self.gate(states_PD) + self.bias).float()
        # Where there is nothing to copy, a text that has no tokens, the vocabulary is all.
        gate_P1 = gate_P1.masked_fill(~readable_PT.any(-1, keepdim=True), _CLOSED)
        return mix_copies(logits_PV, gate_P1, shares_PT, ids_PT, first_PT)


def mix_copies(logits_PV: Tensor, gate_P1: Tensor, shares_PT: Tensor, ids_PT: Tensor, first_PT: Tensor) -> Tensor:
    """Return the log probabilities of the mixture; only those of ids of the source differ from the vocabulary's.

    `first_PT` is where the id of each token of the source stands first, which is where the shares of its copies are
    added up; -1 where there is no token.
    """
    logs_PV = logits_PV.float().log_softmax(-1) + functional.logsigmoid(-gate_P1)
    together_PT = torch.zeros_like(shares_PT).scatter_add(1, first_PT.clamp_min(0), shares_PT)
    # A share of 0 would have an infinite logarithm, and a gradient that is none.
    copied_PT = together_PT.clamp_min(torch.finfo(together_PT.dtype).tiny).log() + functional.logsigmoid(gate_P1)
    # log(a + b) = log a + softplus(log b - log a)
    more_PT = functional.softplus(copied_PT - logs_PV.gather(1, ids_PT))
    is_first_PT = first_PT == torch.arange(first_PT.shape[1], device=first_PT.device)
    return logs_PV.scatter_add(1, ids_PT, more_PT.masked_fill(~is_first_PT, 0))


def find_source_rows(batch: Batch, positions_P: Tensor | None, memory: KVCache | Prefill | None) -> PromptRows:
    """Return which source belongs to each token that is asked for."""
    if isinstance(memory, KVCache):
        return memory.rows
    device = batch.ids_N.device
    owners = [torch.tensor(g.documents, device=device).repeat_interleave(g.length) for g in batch.groups]
    return PromptRows(select_tokens(torch.cat(owners), positions_P).tolist(), len(batch.lengths), device)


def _pad_sources(keys_ND: Tensor, batch: Batch) -> CopySources:
    prefixes = batch.lengths if batch.prefixes is None else batch.prefixes
    counts_S1 = torch.tensor(prefixes, device=keys_ND.device)[:, None] - 2

    def pad(values_N: Tensor) -> Tensor:
        # An empty source has a token that stands for none, so that the rectangle is never empty.
        parts = [
            own[1 : prefix - 1] if prefix > 2 else own[:1]
            for own, prefix in zip(batch.split(values_N), prefixes, strict=True)
        ]
        return nn.utils.rnn.pad_sequence(parts, batch_first=True)

    ids_ST = pad(batch.ids_N).long()
    is_padding_ST = torch.arange(ids_ST.shape[1], device=ids_ST.device) >= counts_S1
    first_ST = (ids_ST[:, :, None] == ids_ST[:, None]).int().argmax(-1)
    return CopySources(pad(keys_ND), ids_ST, first_ST.masked_fill(is_padding_ST, -1))
