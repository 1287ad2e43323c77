"""The one encoder: embeddings, then blocks in a row, then pooling to one vector for a document.

BERT, ALBERT and their relatives are settings of it (`EncoderConfig`): shared layers are an order in which the stored
blocks are applied, factorised embeddings one more matrix. It knows no files, no text and no cluster.

Of the poolings, `first` is BERT's: the first token, [CLS], through a trained pooler. `mean` takes all tokens of the
last layer, `layers` all tokens of all layers (without the embeddings); neither needs a pooler, which many checkpoints
lack. Vectors that are compared with each other are the `mean`, or the last state of the first token: as it is (`cls`),
through a linear layer and tanh (`cls_layer`), or through such a layer in training and as it is afterwards
(`cls_train_layer`), as SimCSE (Gao et al. 2021) does without supervision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from alembert.errors import BadInput, BadSetting
from alembert.nn.attention import (
    Attention,
    AttentionPlan,
    ForwardTrace,
    RotaryEmbedding,
    round_rows,
    select_tokens,
    sinusoids,
)
from alembert.nn.batch import Batch, DocumentGroup
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import EMBEDDINGS, Dropout, DropoutSeed
from alembert.nn.kv_cache import KVCache, Prefill

# N tokens, P of them that are selected, B documents, T tokens of a document, D width, E embedding width

POOLINGS: Final = ("first", "mean", "layers")
EMBEDDING_POOLINGS: Final = ("cls", "cls_layer", "cls_train_layer", "mean")
POOLINGS_WITH_LAYER: Final = ("cls_layer", "cls_train_layer")
"""Those of `EMBEDDING_POOLINGS` that have a layer of their own."""


class LayerMean:
    """Adds up the states after each layer of one forward pass, so that none of them has to be kept."""

    def __init__(self) -> None:
        self._sum_ND: Tensor | None = None
        self._count = 0

    def add(self, states_ND: Tensor) -> None:
        """Take the states of one more layer."""
        self._sum_ND = states_ND if self._sum_ND is None else self._sum_ND + states_ND
        self._count += 1

    def value(self) -> Tensor:
        """Return the mean of what was added."""
        assert self._sum_ND is not None
        return self._sum_ND / self._count


def mean_pool(states_ND: Tensor, batch: Batch) -> Tensor:
    """Return the mean (B, D) over the real tokens of each document, in the caller's order."""
    means_BD = torch.cat([_means(states_ND[group.start : group.stop], group) for group in batch.groups])
    documents = [document for group in batch.groups for document in group.documents]
    return means_BD[torch.tensor(documents, device=means_BD.device).argsort()]


def _means(states_ND: Tensor, group: DocumentGroup) -> Tensor:
    states_BTD = torch.unflatten(states_ND, 0, (group.rows, group.length))
    if group.mask_BT is None:
        return states_BTD.mean(1)
    real_BT1 = group.mask_BT[:, :, None]
    return states_BTD.masked_fill(~real_BT1, 0).sum(1) / real_BT1.sum(1)


ACTIVATION_FUNCTIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class FeatureEmbedding(nn.Module):
    """The sum of a vector for each feature of a token.

    New ones are zeros: a gate that is closed until training opens it, so that a model begins as it was without
    features. Row 0 stands for no feature and gets no gradient, so that it stays zero.
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))

    def forward(self, features_NF: Tensor) -> Tensor:
        return functional.embedding(features_NF, self.weight, padding_idx=0).sum(1)


class Embeddings(nn.Module):
    """Token, segment and (if learned) position embeddings, normalised, widened to `hidden_size` if narrower.

    A batch may leave the features of its tokens out, or have features that a model without them does not read.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_width
        self.token = nn.Embedding(config.vocab_size, width)
        self.segment = nn.Embedding(config.type_vocab_size, width)
        self.features = None if config.token_features is None else FeatureEmbedding(config.token_features, width)
        learned = config.position_embedding_type == "absolute"
        self.position = nn.Embedding(config.max_position_embeddings, width) if learned else None
        self.sinusoidal = config.position_embedding_type == "sinusoidal"
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.widen = nn.Linear(width, config.hidden_size) if config.embedding_size is not None else None

    def forward(self, batch: Batch, noise: DropoutSeed | None = None, added_NE: Tensor | None = None) -> Tensor:
        tokens_NE = self.token(batch.ids_N)
        return self.finish(tokens_NE if added_NE is None else tokens_NE + added_NE, batch, noise)

    def finish(self, tokens_NE: Tensor, batch: Batch, noise: DropoutSeed | None = None) -> Tensor:
        """Turn token embeddings, possibly perturbed or mixed by the caller, into the encoder's input."""
        states_NE = tokens_NE + self.segment(batch.segments_N)
        if self.features is not None and batch.features_NF is not None:
            states_NE = states_NE + self.features(batch.features_NF)
        if self.position is not None:
            states_NE = states_NE + self.position(batch.positions_N)
        elif self.sinusoidal:
            states_NE = states_NE + sinusoids(batch.positions_N, states_NE.shape[1]).to(states_NE.dtype)
        states_NE = self.dropout(self.norm(states_NE), noise)
        return states_NE if self.widen is None else self.widen(states_NE)


class Block(nn.Module):
    """Attention and feed-forward, each with residual, dropout and layer norm after (BERT) or before it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.inner = nn.Linear(config.hidden_size, config.intermediate_size)
        self.outer = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        self.pre_norm = config.layer_norm_position == "pre"

    def forward(self, states_ND: Tensor, plan: AttentionPlan, selected_P: Tensor | None = None) -> Tensor:
        """Return the states of the selected tokens (none: all), which have attended to every token."""
        states_PD = select_tokens(states_ND, selected_P)
        if self.pre_norm:
            states_PD = states_PD + self._attend(self.attention_norm(states_ND), plan, selected_P)
            return states_PD + self._feed_forward(self.output_norm(states_PD), plan)
        states_PD = self.attention_norm(states_PD + self._attend(states_ND, plan, selected_P))
        return self.output_norm(states_PD + self._feed_forward(states_PD, plan))

    def _attend(self, states_ND: Tensor, plan: AttentionPlan, selected_P: Tensor | None) -> Tensor:
        return self.dropout(
            self.attention(states_ND, plan.with_seed_path(0), selected_P), plan.with_seed_path(1).dropout_seed
        )

    def _feed_forward(self, states_PD: Tensor, plan: AttentionPlan) -> Tensor:
        return self.dropout(self.outer(self.activation(self.inner(states_PD))), plan.with_seed_path(2).dropout_seed)


class Encoder(nn.Module):
    """Turns a `Batch` of N tokens into N contextual states."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.order = config.layer_order
        self.embeddings = Embeddings(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(max(self.order) + 1))
        pre_norm = config.layer_norm_position == "pre"
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if pre_norm else None
        self.recompute = False
        """Save memory in training: forget activations inside blocks and compute them again in the backward pass."""

    def forward(
        self,
        batch: Batch,
        *,
        attention: str | None = None,
        trace: ForwardTrace | None = None,
        noise: DropoutSeed | None = None,
        added_ND: Tensor | None = None,
        layers: LayerMean | None = None,
        selected_P: Tensor | None = None,
        memory: KVCache | Prefill | None = None,
    ) -> Tensor:
        """Return the last hidden states (N, D); a `trace` records what happens on the way, `layers` adds it up.

        In training, dropout masks come from `noise`, or without it from torch's global generator. `added_ND`, which is
        as wide as the token embedding, is added to the embedded tokens: what adversarial training changes. `selected_P`
        names the tokens that leave the last block (P, D); every token is attended to. A `Prefill` keeps the keys and
        values of the batch in a `KVCache`, which goes in with batches of new tokens (`KVCache.next_batch`).
        """
        self._check(batch)
        states_ND = self.embeddings(batch, None if noise is None else noise.derive(EMBEDDINGS), added_ND)
        return self.run(
            states_ND,
            batch,
            attention=attention,
            trace=trace,
            noise=noise,
            layers=layers,
            selected_P=selected_P,
            memory=memory,
        )

    def run(
        self,
        states_ND: Tensor,
        batch: Batch,
        *,
        attention: str | None = None,
        trace: ForwardTrace | None = None,
        noise: DropoutSeed | None = None,
        layers: LayerMean | None = None,
        selected_P: Tensor | None = None,
        memory: KVCache | Prefill | None = None,
    ) -> Tensor:
        """Apply the blocks to embedded tokens."""
        if selected_P is not None and (trace is not None or layers is not None):
            raise ValueError("A trace and the mean of layers are about all tokens; `selected_P` leaves some out.")
        if trace is not None and self.recompute and self.training:
            raise BadSetting("A trace would record everything twice while activations are recomputed. Switch one off.")
        rotation = self._rotation(batch)
        plan = AttentionPlan.for_batch(batch, attention or self.config.attention, rotation, trace, noise, memory=memory)
        if self.training and plan.can_round_rows and layers is None:
            leaving = len(states_ND if selected_P is None else selected_P)
            return self._apply_blocks(*round_rows(states_ND, selected_P), plan)[:leaving]
        return self._apply_blocks(states_ND, selected_P, plan, layers)

    def _apply_blocks(
        self, states_ND: Tensor, selected_P: Tensor | None, plan: AttentionPlan, layers: LayerMean | None = None
    ) -> Tensor:
        trace = plan.trace
        if trace is not None:
            trace.hidden.append(states_ND)
        for layer, index in enumerate(self.order):
            leaving_P = selected_P if layer == len(self.order) - 1 else None
            states_ND = self._step(self.blocks[index], states_ND, plan.for_layer(layer), leaving_P)
            if trace is not None:
                trace.hidden.append(states_ND)
            if layers is not None:
                layers.add(self._finish(states_ND))
        return self._finish(states_ND)

    def _finish(self, states_ND: Tensor) -> Tensor:
        """Return a layer's states as they would be if it were the last."""
        return states_ND if self.final_norm is None else self.final_norm(states_ND)

    def _step(self, block: nn.Module, states_ND: Tensor, plan: AttentionPlan, selected_P: Tensor | None) -> Tensor:
        if self.recompute and self.training:
            return checkpoint(
                block, states_ND, plan, selected_P, use_reentrant=False, preserve_rng_state=plan.dropout_seed is None
            )
        return block(states_ND, plan, selected_P)

    def _rotation(self, batch: Batch) -> RotaryEmbedding | None:
        if self.config.position_embedding_type != "rotary":
            return None
        return RotaryEmbedding(batch.positions_N, self.config.head_size)

    def _check(self, batch: Batch) -> None:
        limit = self.config.max_position_embeddings
        if self.config.position_embedding_type == "absolute" and batch.longest > limit:
            raise BadInput(
                f"A document of {batch.longest} tokens is longer than the model's limit of {limit}. "
                "Cut it into windows first."
            )
        # On other devices the look would wait for them, and inside a compiled graph it would break it.
        if batch.ids_N.device.type == "cpu" and not torch.compiler.is_compiling():
            _check_range("token ids", batch.ids_N, self.config.vocab_size)
            _check_range("segments", batch.segments_N, self.config.type_vocab_size)
            if self.config.token_features is not None and batch.features_NF is not None:
                _check_range("features", batch.features_NF, self.config.token_features)


def _check_range(what: str, values_N: Tensor, rows: int) -> None:
    low, high = (int(value) for value in values_N.aminmax())
    if low < 0 or high >= rows:
        raise BadInput(f"The {what} of the batch go from {low} to {high}; the model has 0 to {rows - 1}.")
