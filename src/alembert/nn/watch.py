"""What distillation looks at inside a model: hidden states, and queries, keys and values, of all tokens of a batch.

A `Watch` goes into a forward pass as a `Trace`, whose hidden states it keeps too. Queries and keys are kept instead of
attention scores: they grow with the tokens of a document and not with their square, and scores are one product away.
"""

# N tokens, H heads, K head size
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from alembert.nn.attention import Plan, Trace


@dataclass
class Watch(Trace):
    """Records queries, keys and values of chosen layers."""

    layers: Collection[int] = ()
    """Layers, from 0."""
    qkv: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> (N, 3, H, K)."""

    def see(self, qkv_N3HK: Tensor, plan: Plan) -> None:
        if plan.layer in self.layers:
            self.qkv[plan.layer] = qkv_N3HK
