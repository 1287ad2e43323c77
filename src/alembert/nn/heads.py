"""Heads: small modules that turn the encoder's states into logits.

A head is described by a `HeadSpec` (kind and number of outputs), so that a model with several heads, also of one kind,
is a mapping from names to specs. Every head is called with the same `States`.
"""

# N tokens, P predicted positions, B documents, D width, E embedding width, V vocabulary, C outputs
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from alembert.errors import BadSetting
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.encoder import ACTIVATION


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """What a head predicts."""

    kind: str
    """One of `KINDS`."""
    outputs: int = 2
    """Number of labels; fixed for masked_lm, span and choice."""
    dropout: float = 0.1
    """Dropout before the last layer of classifying heads."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadSetting(f"There is no head of kind `{self.kind}`; expected one of {', '.join(KINDS)}.")
        if not 1 <= self.outputs <= 1_000_000:
            raise BadSetting(f"A head has {self.outputs} outputs; expected 1 to 1,000,000.")

    @property
    def needs_pooler(self) -> bool:
        return KINDS[self.kind].pooled


@dataclass(frozen=True)
class States:
    """What heads read."""

    batch: Batch
    hidden_ND: Tensor
    pooled_BD: Tensor | None
    token_embedding_VE: Tensor
    predicted_P: Tensor | None = None
    """Positions in the flat row at which masked-LM logits are wanted; none: everywhere."""


class Pooler(nn.Module):
    """Dense layer and tanh on the first token of each document."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_BD: Tensor) -> Tensor:
        return torch.tanh(self.dense(first_BD))


class MaskedLM(nn.Module):
    """Logits over the vocabulary, tied to the token embedding, at the predicted positions only."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_width)
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATION[config.hidden_act]

    def forward(self, states: States) -> Tensor:
        hidden = states.hidden_ND if states.predicted_P is None else states.hidden_ND[states.predicted_P]
        transformed_PE = self.norm(self.activation(self.dense(hidden)))
        return functional.linear(transformed_PE, states.token_embedding_VE, self.bias)


class DocumentClassifier(nn.Module):
    """Logits (B, C) from the pooled first token."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dropout = nn.Dropout(spec.dropout)
        self.linear = nn.Linear(config.hidden_size, spec.outputs)

    def forward(self, states: States) -> Tensor:
        assert states.pooled_BD is not None
        return self.linear(self.dropout(states.pooled_BD))


class TokenClassifier(nn.Module):
    """Logits (N, C) for every token."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dropout = nn.Dropout(spec.dropout)
        self.linear = nn.Linear(config.hidden_size, spec.outputs)

    def forward(self, states: States) -> Tensor:
        return self.linear(self.dropout(states.hidden_ND))


@dataclass(frozen=True)
class _Kind:
    build: Callable[[EncoderConfig, HeadSpec], nn.Module]
    pooled: bool


KINDS: Final = {
    "masked_lm": _Kind(MaskedLM, pooled=False),
    "next_sentence": _Kind(DocumentClassifier, pooled=True),
    "classify": _Kind(DocumentClassifier, pooled=True),
    "choice": _Kind(DocumentClassifier, pooled=True),
    "tag": _Kind(TokenClassifier, pooled=False),
    "span": _Kind(TokenClassifier, pooled=False),
}
"""next_sentence: 0 is next, 1 is random. choice: one score a document. span: start and end logits a token."""


def build_head(config: EncoderConfig, spec: HeadSpec) -> nn.Module:
    """Make the module that a spec describes."""
    return KINDS[spec.kind].build(config, spec)
