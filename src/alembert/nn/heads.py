"""Heads: small modules that turn the encoder's states into logits.

A head is described by a `HeadSpec` (kind and number of outputs), so that a model with several heads, also of one kind,
is a mapping from names to specs. Every head is called with the same `HeadInputs`.
"""

# N tokens, P of them that are asked for, B documents, D width, E embedding width, V vocabulary, C outputs
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from alembert.errors import BadSetting
from alembert.nn import tag_outputs
from alembert.nn.attention import select_tokens
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig, is_number, narrow_config
from alembert.nn.dropout import EMBEDDINGS, Dropout, DropoutSeed
from alembert.nn.encoder import (
    ACTIVATION_FUNCTIONS,
    EMBEDDING_POOLINGS,
    POOLINGS,
    POOLINGS_WITH_LAYER,
    Encoder,
    mean_pool,
)
from alembert.nn.kv_cache import KVCache, Prefill
from alembert.nn.tag_outputs import Crf
from alembert.nn.vocabulary_output import CopyMechanism, find_source_rows, project_to_vocabulary

LANGUAGE_MODEL_KINDS: Final = ("masked_lm", "copy_lm")
"""Kinds of heads over the vocabulary, of which one can begin as the other."""
RESERVED_HEAD_NAMES: Final = ("hidden", "pooled")
"""Names of a model's outputs that are no heads."""
GENERATOR_WIDTH: Final = 0.25
"""Width of a generator as a share of the model's, which ELECTRA found to be best for small models."""


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """What a head predicts."""

    kind: str
    """One of `HEAD_KINDS`."""
    outputs: int | None = None
    """Number of labels of `classify`, `tag` and `crf`, of types of `pointer`; the other kinds fix it themselves."""
    dropout: float = 0.1
    """Dropout before the last layer of classifying heads."""
    pooling: str = "first"
    """What `classify` reads: the pooled `first` token, the `mean` of all, or the mean of all in all `layers`; for `embed`
    one of `EMBEDDING_POOLINGS`, which has to be named."""
    answers: str = "single"
    """What the outputs of `classify` say: which `single` label is right, for each whether it is one of several (`multi`), or
    a `number`. The head computes the same; those who read it have to know."""

    def __post_init__(self) -> None:
        if self.kind not in HEAD_KINDS:
            raise BadSetting(f"There is no head of kind {self.kind!r}; expected one of {', '.join(HEAD_KINDS)}.")
        fixed = HEAD_KINDS[self.kind].outputs
        if fixed is None:
            self._check_outputs()
        elif self.outputs not in (None, fixed):
            raise BadSetting(f"A head of kind `{self.kind}` has {fixed} outputs, not {self.outputs}. Leave it out.")
        else:
            object.__setattr__(self, "outputs", fixed or None)
        if not is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise BadSetting(f"The dropout of a head is {self.dropout!r}; expected a number from 0, below 1.")
        self._check_pooling()
        if self.answers not in (("single", "multi", "number") if self.kind == "classify" else ("single",)):
            raise BadSetting(
                f"The answers of a head of kind `{self.kind}` are {self.answers!r}; expected single, or for `classify` "
                "multi or number."
            )

    def _check_pooling(self) -> None:
        poolings = HEAD_KINDS[self.kind].poolings
        if len(poolings) == 1 and self.pooling not in poolings:
            raise BadSetting(f"A head of kind `{self.kind}` has no pooling to choose. Leave it out.")
        if self.pooling not in poolings:
            raise BadSetting(
                f"The pooling of a head of kind `{self.kind}` is {self.pooling!r}; expected one of {', '.join(poolings)}."
            )

    def _check_outputs(self) -> None:
        count = self.outputs
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1_000_000:
            raise BadSetting(
                f"A head of kind `{self.kind}` has {count!r} outputs; expected the number of its labels, from 1 up."
            )

    @property
    def columns(self) -> int:
        """Outputs of a head that counts them."""
        assert self.outputs is not None
        return self.outputs

    @property
    def is_labelled(self) -> bool:
        """Whether its outputs have names."""
        return HEAD_KINDS[self.kind].outputs is None

    @property
    def per_token(self) -> bool:
        """Whether the head answers for tokens; otherwise it does once a document."""
        return HEAD_KINDS[self.kind].build not in (DocumentClassifier, EmbeddingHead)

    @property
    def needs_pooler(self) -> bool:
        return HEAD_KINDS[self.kind].pooled and self.pooling == "first"

    def positions_read(self, batch: Batch, predicted_P: Tensor | None, positions_P: Tensor | None) -> Tensor | None:
        """Return the tokens whose last states the head reads, if it is asked at these; none: all."""
        if self.kind in (*LANGUAGE_MODEL_KINDS, "generator"):
            return positions_P if predicted_P is None else predicted_P
        if self.per_token:
            return positions_P
        return batch.starts_B if self.needs_pooler or self.pooling.startswith("cls") else None


def find_required_tokens(
    specs: Iterable[HeadSpec],
    batch: Batch,
    *,
    predicted_P: Tensor | None = None,
    positions_P: Tensor | None = None,
) -> Tensor | None:
    """Return the tokens whose last states any of the heads reads, each once and in ascending order; none: all."""
    read = [None if spec.kind == "copy_lm" else spec.positions_read(batch, predicted_P, positions_P) for spec in specs]
    selections = [tokens_P for tokens_P in read if tokens_P is not None]
    return torch.unique(torch.cat(selections)) if selections and len(selections) == len(read) else None


@dataclass(frozen=True)
class LastHiddenStates:
    """The encoder's output: the last states of all tokens, or of `tokens_P` alone, in ascending order."""

    states_PD: Tensor
    tokens_P: Tensor | None = None

    def at(self, positions_P: Tensor | None) -> Tensor:
        """Return the states at these positions of the batch, in their order; none: all."""
        if positions_P is None or self.tokens_P is None:
            return select_tokens(self.states_PD, positions_P)
        return select_tokens(self.states_PD, torch.searchsorted(self.tokens_P, positions_P))


@dataclass(frozen=True)
class HeadInputs:
    """What heads read."""

    batch: Batch
    last: LastHiddenStates
    pooled_BD: Tensor | None
    token_embedding_VE: Tensor
    positions_P: Tensor | None = None
    """Tokens of the flat row at which the head is asked; none: everywhere."""
    noise: DropoutSeed | None = None
    """Where the head's dropout mask comes from; none: torch's global generator."""
    layers_ND: Tensor | None = None
    """Mean of the states after each layer, made for heads that pool them."""
    memory: KVCache | Prefill | None = None
    """What the encoder was given of texts that are being written."""

    def token_states(self) -> Tensor:
        """Return the states (P, D) of the tokens at which the head is asked."""
        return self.last.at(self.positions_P)

    def document_states(self, pooling: str) -> Tensor:
        """Return one vector a document (B, D)."""
        if pooling.startswith("cls"):
            return self.last.at(self.batch.starts_B)
        if pooling == "mean":
            return mean_pool(self.last.at(None), self.batch)
        if pooling == "layers":
            assert self.layers_ND is not None
            return mean_pool(self.layers_ND, self.batch)
        assert self.pooled_BD is not None
        return self.pooled_BD


class Pooler(nn.Module):
    """Dense layer and tanh on the first token of each document."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first_BD: Tensor) -> Tensor:
        return torch.tanh(self.dense(first_BD))


class MaskedLMHead(nn.Module):
    """Logits (P, V) over the vocabulary, tied to the token embedding."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_width)
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]

    def forward(self, states: HeadInputs) -> Tensor:
        transformed_PE = self.norm(self.activation(self.dense(states.token_states())))
        return project_to_vocabulary(transformed_PE, states.token_embedding_VE, self.bias)


class CopyLMHead(MaskedLMHead):
    """Log probabilities (P, V): the vocabulary's, mixed with those of copying a token of the source."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__(config, spec)
        self.copy = CopyMechanism(config.hidden_size)

    def forward(self, states: HeadInputs) -> Tensor:
        sources = self.copy.read_sources(states.last.at(None), states.batch, states.memory)
        rows = find_source_rows(states.batch, states.positions_P, states.memory)
        return self.copy(super().forward(states), states.token_states(), sources, rows)


class ReplacedTokenHead(nn.Module):
    """Logits (P, 1) for tokens: whether each was replaced. A layer and one row, as in ELECTRA (Clark et al. 2020)."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self.linear = nn.Linear(config.hidden_size, spec.columns)

    def forward(self, states: HeadInputs) -> Tensor:
        return self.linear(self.activation(self.dense(states.token_states())))


class GeneratorHead(nn.Module):
    """A masked LM of its own, narrower than the model, with the model's token embedding: logits (P, V).

    It reads the batch and none of the model's states: what it makes of masked tokens is what the model has to find.
    """

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        narrow = narrow_config(config, GENERATOR_WIDTH)
        self.encoder = Encoder(narrow)
        del self.encoder.embeddings.token
        self.head = MaskedLMHead(narrow, spec)

    def forward(self, states: HeadInputs) -> Tensor:
        batch, noise, embedding_VE = states.batch, states.noise, states.token_embedding_VE
        tokens_NE = functional.embedding(batch.ids_N, embedding_VE)
        first_ND = self.encoder.embeddings.finish(tokens_NE, batch, None if noise is None else noise.derive(EMBEDDINGS))
        selected_P = None if states.positions_P is None else torch.unique(states.positions_P)
        last_PD = self.encoder.run(first_ND, batch, attention="bidirectional", noise=noise, selected_P=selected_P)
        return self.head(replace(states, last=LastHiddenStates(last_PD, selected_P)))


class DocumentClassifier(nn.Module):
    """Logits (B, C) from one vector a document."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.pooling = spec.pooling
        self.dropout = Dropout(spec.dropout)
        self.linear = nn.Linear(config.hidden_size, spec.columns)

    def forward(self, states: HeadInputs) -> Tensor:
        return self.linear(self.dropout(states.document_states(self.pooling), states.noise))


class TokenClassifier(nn.Module):
    """Logits (P, C) for tokens."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.linear = nn.Linear(config.hidden_size, spec.columns)

    def forward(self, states: HeadInputs) -> Tensor:
        return self.linear(self.dropout(states.token_states(), states.noise))


class MarkerPairClassifier(TokenClassifier):
    """Logits (P, 2 C) for tokens: at the first marker of a pair the first C count, at its second the others.

    Their sum is what one layer over the states of both, side by side, says of the pair.
    """

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__(config, replace(spec, outputs=2 * spec.columns))


class CrfTagger(TokenClassifier):
    """Logits (P, C) for tokens, and a CRF that makes a path of them: its loss and decoding are the task's."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__(config, spec)
        self.crf = Crf(spec.columns)


class SpanPointer(nn.Module):
    """Vectors (P, C) of tokens, from which `pointer_scores` scores spans."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.linear = nn.Linear(config.hidden_size, tag_outputs.count_pointer_columns(spec.columns))

    def forward(self, states: HeadInputs) -> Tensor:
        vectors_PC = self.linear(self.dropout(states.token_states(), states.noise))
        return tag_outputs.rotate_queries_and_keys(
            vectors_PC, select_tokens(states.batch.positions_N, states.positions_P)
        )


class EmbeddingHead(nn.Module):
    """One vector a document: (B, D), or (B, 2 D) where its layer is for training alone.

    Then the first half of a row is what the loss reads, and the second, without the layer, what the model is used for.
    Both are always there, so that a vector does not depend on the mode in which the model happens to be.
    """

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.pooling = spec.pooling
        self.width = config.hidden_size
        self.layer = nn.Linear(self.width, self.width) if spec.pooling in POOLINGS_WITH_LAYER else None

    def forward(self, states: HeadInputs) -> Tensor:
        plain_BD = states.document_states(self.pooling)
        if self.layer is None:
            return plain_BD
        layered_BD = torch.tanh(self.layer(plain_BD))
        return layered_BD if self.pooling == "cls_layer" else torch.cat([layered_BD, plain_BD], dim=-1)


@dataclass(frozen=True)
class _HeadKind:
    build: Callable[[EncoderConfig, HeadSpec], nn.Module]
    pooled: bool
    outputs: int | None = None
    """How many it always has; none: a setting. 0: the vocabulary's, or the width of the model."""
    poolings: tuple[str, ...] = POOLINGS[:1]
    """What `HeadSpec.pooling` may be."""


HEAD_KINDS: Final[dict[str, _HeadKind]] = {
    "masked_lm": _HeadKind(MaskedLMHead, pooled=False, outputs=0),
    "copy_lm": _HeadKind(CopyLMHead, pooled=False, outputs=0),
    "next_sentence": _HeadKind(DocumentClassifier, pooled=True, outputs=2),
    "classify": _HeadKind(DocumentClassifier, pooled=True, poolings=POOLINGS),
    "choice": _HeadKind(DocumentClassifier, pooled=True, outputs=1),
    "tag": _HeadKind(TokenClassifier, pooled=False),
    "crf": _HeadKind(CrfTagger, pooled=False),
    "pointer": _HeadKind(SpanPointer, pooled=False),
    "relation": _HeadKind(MarkerPairClassifier, pooled=False),
    "span": _HeadKind(TokenClassifier, pooled=False, outputs=2),
    "boundary": _HeadKind(TokenClassifier, pooled=False, outputs=2),
    "replaced": _HeadKind(ReplacedTokenHead, pooled=False, outputs=1),
    "generator": _HeadKind(GeneratorHead, pooled=False, outputs=0),
    "embed": _HeadKind(EmbeddingHead, pooled=False, outputs=0, poolings=EMBEDDING_POOLINGS),
}
"""copy_lm: a masked LM that also copies tokens of a prefix. next_sentence: 0 is next, 1 is random. choice: one score a document. span: start and end logits a token.
boundary: logits for the first and for the last token of an entity. pointer: vectors whose pairs score spans.
relation: two logits a label, one for either marker of a pair. replaced: one logit a token, above 0 if it was replaced.
generator: a small masked LM beside the model, for training alone.
embed: one vector a document."""


def register_head(
    kind: str,
    build: Callable[[EncoderConfig, HeadSpec], nn.Module],
    *,
    pooled: bool = False,
    outputs: int | None = None,
) -> None:
    """Add a kind of head that stands outside of this package; it answers for tokens."""
    HEAD_KINDS[kind] = _HeadKind(build, pooled, outputs)


def build_head(name: str, config: EncoderConfig, spec: HeadSpec) -> nn.Module:
    """Make the module that a spec describes, under a name that outputs and weights can carry."""
    check_head_name(name)
    return HEAD_KINDS[spec.kind].build(config, spec)


def check_head_name(name: str) -> None:
    """Refuse a name that outputs and weights cannot carry."""
    if not re.fullmatch(r"[A-Za-z][\w-]*", name) or name in RESERVED_HEAD_NAMES or hasattr(nn.ModuleDict, name):
        raise BadSetting(
            f"A task or its head cannot be called {name!r}. Use a word of letters, digits, - and _ that begins with a "
            f"letter; {', '.join(RESERVED_HEAD_NAMES)} and names that torch has a use for, such as train, are taken."
        )
