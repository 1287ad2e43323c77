"""Multi-head self-attention over a flat batch, its position encodings, and records of its insides.

`AttentionPlan` says once a forward pass how each group of the batch attends (mask, causal or not); each layer then runs
`scaled_dot_product_attention` once a group, or `attention_with_dropout` when a `DropoutSeed` draws the dropout masks.
Sinusoids (Vaswani et al. 2017) and rotations (Su et al. 2021) are computed from the positions of the batch at hand, so
that no table has to be stored or sized in advance.

Fused kernels do not return probabilities, so a `ForwardTrace` computes the scores again for the requested documents
only. For distillation, a `LayerRecorder` keeps queries, keys and values instead of scores: they grow with the tokens of
a document and not with their square, and scores are one product away.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import linear, scaled_dot_product_attention

from alembert.errors import BadSetting
from alembert.nn.batch import Batch, DocumentGroup
from alembert.nn.config import ATTENTIONS, EncoderConfig, should_subset_queries
from alembert.nn.dropout import (
    BLOCKS,
    AttentionRectangle,
    DropoutSeed,
    attention_with_dropout,
    build_rectangles,
    query_attention_with_dropout,
)
from alembert.nn.kv_cache import KVCache, Prefill

# N tokens, P of them that are selected, B documents of a group, T tokens of a document, W of them that have queries,
# D width, H heads, K head size

_ROW_ROUNDING: Final = 32
"""What numbers of rows are rounded up to a multiple of."""


def sinusoids(positions_N: Tensor, width: int) -> Tensor:
    """Return (N, width): sines in the even columns, cosines in the odd ones."""
    angles = _angles(positions_N, width)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width]


class RotaryEmbedding:
    """Rotates queries and keys by an angle that grows with the position; built once a forward pass."""

    def __init__(self, positions_N: Tensor, head_size: int) -> None:
        angles = _angles(positions_N, head_size)
        self.cos_N1K = torch.cat((angles, angles), dim=-1).cos()[:, None]
        self.sin_N1K = torch.cat((angles, angles), dim=-1).sin()[:, None]

    def at(self, tokens_P: Tensor) -> RotaryEmbedding:
        """Return the rotation of some of the tokens."""
        rotation = copy(self)
        rotation.cos_N1K, rotation.sin_N1K = self.cos_N1K[tokens_P], self.sin_N1K[tokens_P]
        return rotation

    def __call__(self, states_NHK: Tensor) -> Tensor:
        left, right = states_NHK.chunk(2, dim=-1)
        turned = torch.cat((-right, left), dim=-1)
        return (states_NHK * self.cos_N1K + turned * self.sin_N1K).to(states_NHK.dtype)


def _angles(positions_N: Tensor, width: int) -> Tensor:
    steps = torch.arange(0, width, 2, device=positions_N.device, dtype=torch.float32)
    return positions_N[:, None] * 10_000.0 ** (-steps / width)


@dataclass(frozen=True)
class GroupAttentionPlan:
    """How the documents of one group attend."""

    group: DocumentGroup
    allowed_B1TT: Tensor | None
    """True where a token (row) may look at a token (column); none: everywhere, or `causal`."""
    causal: bool

    def attention_mask(self, device: torch.device) -> Tensor | None:
        """Return `allowed_B1TT`, written out also for causal attention; none: everything is allowed."""
        if not self.causal:
            return self.allowed_B1TT
        return torch.ones(1, 1, self.group.length, self.group.length, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class AttentionPlan:
    """What every layer of one forward pass needs to know about the batch."""

    groups: tuple[GroupAttentionPlan, ...]
    rotation: RotaryEmbedding | None = None
    trace: ForwardTrace | None = None
    dropout_seed: DropoutSeed | None = None
    """Where dropout masks come from; none: torch's global generator."""
    kv_cache: KVCache | Prefill | None = None
    """Where keys and values are stored, or, when single tokens continue documents, read."""
    layer: int = 0
    """Which layer it is for."""
    rectangles: tuple[AttentionRectangle, ...] = ()
    """The groups as they attend in training, with a `dropout_seed`."""

    @classmethod
    def for_batch(
        cls,
        batch: Batch,
        attention: str,
        rotation: RotaryEmbedding | None = None,
        trace: ForwardTrace | None = None,
        noise: DropoutSeed | None = None,
        *,
        memory: KVCache | Prefill | None = None,
    ) -> AttentionPlan:
        """Work out the masks of a batch for `bidirectional`, `causal` or `prefix` attention."""
        if attention not in ATTENTIONS:
            raise BadSetting(f"`attention` is {attention!r}; expected one of {', '.join(ATTENTIONS)}.")
        if attention == "prefix" and batch.prefixes is None:
            raise BadSetting("Prefix attention needs the prefix length of each document; give `prefixes` to the Batch.")
        groups = tuple(_plan_group(group, batch, attention) for group in batch.groups)
        plan = cls(groups, rotation, trace, noise, memory)
        if noise is None:
            return plan
        device = batch.ids_N.device
        masks = [group.attention_mask(device) for group in groups]
        return replace(plan, rectangles=build_rectangles(batch.groups, masks, device))

    @property
    def can_round_rows(self) -> bool:
        """Whether rows may follow the tokens of the batch (`round_rows`)."""
        return self.dropout_seed is not None and self.rotation is None and self.trace is None and self.kv_cache is None

    def for_layer(self, layer: int) -> AttentionPlan:
        """Return the plan for a layer."""
        return replace(self.with_seed_path(BLOCKS).with_seed_path(layer), layer=layer)

    def with_seed_path(self, part: int) -> AttentionPlan:
        """Return the plan for a numbered part of the model, which has dropout masks of its own."""
        return self if self.dropout_seed is None else replace(self, dropout_seed=self.dropout_seed.derive(part))


def _plan_group(group: DocumentGroup, batch: Batch, attention: str) -> GroupAttentionPlan:
    if attention == "causal" and group.mask_BT is None:
        return GroupAttentionPlan(group, None, causal=True)
    if attention == "bidirectional" and group.mask_BT is None:
        return GroupAttentionPlan(group, None, causal=False)
    device = batch.ids_N.device
    allowed = torch.ones(1, 1, 1, group.length, dtype=torch.bool, device=device)
    if attention != "bidirectional":
        seen = torch.arange(group.length, device=device)
        allowed = (seen[None, :] <= seen[:, None])[None, None]
        if attention == "prefix":
            assert batch.prefixes is not None
            prefix_B = torch.tensor([batch.prefixes[document] for document in group.documents], device=device)
            allowed = allowed | (seen < prefix_B[:, None])[:, None, None]
    if group.mask_BT is not None:
        allowed = allowed & group.mask_BT[:, None, None]
    return GroupAttentionPlan(group, allowed, causal=False)


@dataclass(frozen=True)
class QuerySubset:
    """The tokens of a group that have queries, at most W of each document, as a rectangle."""

    plan: GroupAttentionPlan
    max_queries: int
    """W."""
    at_P: Tensor
    """Where they are in their documents."""
    cells_P: Tensor
    """Where they are in the rectangle (B x W)."""

    @classmethod
    def select(cls, plan: GroupAttentionPlan, selected_P: Tensor) -> QuerySubset:
        """Find the tokens of a group among the selected ones, which are in ascending order."""
        group = plan.group
        own_P = selected_P[(selected_P >= group.start) & (selected_P < group.stop)] - group.start
        document_P, at_P = own_P // group.length, own_P % group.length
        count_B = torch.bincount(document_P, minlength=group.rows)
        before_B = count_B.cumsum(0) - count_B
        rank_P = torch.arange(len(own_P), device=own_P.device) - before_B[document_P]
        max_queries = int(count_B.max())
        return cls(plan, max_queries, at_P, document_P * max_queries + rank_P)

    @property
    def count(self) -> int:
        return len(self.at_P)

    def pad_queries(self, q_PHK: Tensor) -> Tensor:
        """Return the queries as (B, H, W, K), padded with zeros whose outputs are never read."""
        cells = q_PHK.new_zeros(self.plan.group.rows * self.max_queries, *q_PHK.shape[1:])
        filled = cells.index_copy(0, self.cells_P, q_PHK)
        return filled.view(-1, self.max_queries, *q_PHK.shape[1:]).transpose(1, 2)

    def gather_outputs(self, mixed_BHWK: Tensor) -> Tensor:
        """Return the outputs of the real queries, (P, H x K)."""
        return mixed_BHWK.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, self.cells_P)

    def attention_mask(self, device: torch.device) -> Tensor | None:
        """Return where they may look, (B or 1, 1, W or 1, T); none: everywhere."""
        mask = self.plan.attention_mask(device)
        if mask is None or mask.shape[2] == 1:
            return mask
        rows, length = self.plan.group.rows, self.plan.group.length
        at_BW = torch.zeros(rows * self.max_queries, dtype=torch.int64, device=device)
        at_BW = at_BW.index_copy(0, self.cells_P, self.at_P).view(rows, 1, self.max_queries, 1)
        return mask.expand(rows, 1, length, length).gather(2, at_BW.expand(-1, -1, -1, length))


@dataclass
class ForwardTrace:
    """Records what happens inside one forward pass: hidden states, and attention scores of chosen documents."""

    documents: Collection[int] = ()
    """Whose attention is recorded, by the caller's document numbers."""
    hidden: list[Tensor] = field(default_factory=list)
    """(N, D) after the embeddings and after each layer."""
    scores: list[dict[int, Tensor]] = field(default_factory=list)
    """For each layer, document -> (H, T, T) before the softmax, minus infinity where not allowed."""

    def probabilities(self, layer: int, document: int) -> Tensor:
        """Return (H, T, T): each row sums to one."""
        return self.scores[layer][document].softmax(-1)

    def record_layer(self, qkv_N3HK: Tensor, plan: AttentionPlan) -> None:
        """Record what one layer attends with."""
        if self.documents:
            self.record_attention_scores((group, q, k) for group, (q, k, _) in _split_groups(qkv_N3HK, plan))

    def record_attention_scores(self, parts: Iterable[tuple[GroupAttentionPlan, Tensor, Tensor]]) -> None:
        """Compute the scores of one layer from the queries and keys of each group."""
        layer: dict[int, Tensor] = {}
        for plan, q_BHTK, k_BHTK in parts:
            for row, document in enumerate(plan.group.documents):
                if document in self.documents:
                    layer[document] = _scores(q_BHTK[row], k_BHTK[row], plan, row)
        self.scores.append(layer)


def _scores(q_HTK: Tensor, k_HTK: Tensor, plan: GroupAttentionPlan, row: int) -> Tensor:
    scores_HTT = q_HTK @ k_HTK.mT / math.sqrt(q_HTK.shape[-1])
    length = plan.group.length
    mask = plan.attention_mask(q_HTK.device)
    if mask is not None:
        allowed = mask.expand(plan.group.rows, 1, length, length)[row]
        scores_HTT = scores_HTT.masked_fill(~allowed, -math.inf)
    real_BT = plan.group.mask_BT
    real = length if real_BT is None else int(real_BT[row].sum())
    return scores_HTT[:, :real, :real]


class Attention(nn.Module):
    """Self-attention with one matrix for queries, keys and values."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states_ND: Tensor, plan: AttentionPlan, selected_P: Tensor | None = None) -> Tensor:
        """Let the selected tokens (none: all) attend to all tokens of their documents."""
        if selected_P is not None and plan.kv_cache is None and should_subset_queries(len(selected_P), len(states_ND)):
            return self.out(self._attend_subset(selected_P, states_ND, plan))
        qkv_N3HK = self.qkv(states_ND).view(len(states_ND), 3, self.heads, -1)
        if plan.rotation is not None:
            q_and_k, v_N1HK = qkv_N3HK.split((2, 1), dim=1)
            turned = plan.rotation(q_and_k.flatten(1, 2)).view_as(q_and_k)
            qkv_N3HK = torch.cat((turned, v_N1HK), dim=1)
        if plan.trace is not None:
            plan.trace.record_layer(qkv_N3HK, plan)
        if isinstance(plan.kv_cache, Prefill):
            plan.kv_cache.store(
                plan.layer, ((plan_of_group.group, k, v) for plan_of_group, (_, k, v) in _split_groups(qkv_N3HK, plan))
            )
        return self.out(select_tokens(self._mix(qkv_N3HK, plan), selected_P))

    def _attend_subset(self, selected_P: Tensor, states_ND: Tensor, plan: AttentionPlan) -> Tensor:
        """Let the selected tokens alone attend: only they need queries and scores."""
        width = states_ND.shape[1]
        size = width // self.heads
        query, key_value = torch.split(self.qkv.weight, [width, 2 * width])
        query_bias, key_value_bias = torch.split(self.qkv.bias, [width, 2 * width])
        q_PHK = linear(select_tokens(states_ND, selected_P), query, query_bias).view(-1, self.heads, size)
        kv_N2HK = linear(states_ND, key_value, key_value_bias).view(-1, 2, self.heads, size)
        if plan.rotation is not None:
            k_NHK, v_NHK = kv_N2HK.unbind(1)
            q_PHK, k_NHK = plan.rotation.at(selected_P)(q_PHK), plan.rotation(k_NHK)
            kv_N2HK = torch.stack((k_NHK, v_NHK), 1)
        subsets = [QuerySubset.select(group, selected_P) for group in plan.groups]
        queries = torch.split(q_PHK, [subset.count for subset in subsets])
        parts = zip(subsets, queries, _split_groups(kv_N2HK, plan), strict=True)
        mixed = [
            subset.gather_outputs(self._attend_from(subset, own_PHK, kv, plan.with_seed_path(number).dropout_seed))
            for number, (subset, own_PHK, (_, kv)) in enumerate(parts)
            if subset.count
        ]
        return torch.cat(mixed) if mixed else q_PHK.flatten(1)

    def _attend_from(
        self, subset: QuerySubset, q_PHK: Tensor, kv: tuple[Tensor, ...], noise: DropoutSeed | None
    ) -> Tensor:
        q_BHWK, allowed = subset.pad_queries(q_PHK), subset.attention_mask(q_PHK.device)
        if noise is not None and self._needs_own_attention(q_PHK):
            return query_attention_with_dropout(q_BHWK, kv, allowed, self.dropout, noise)
        rate = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(q_BHWK, kv[0], kv[1], attn_mask=allowed, dropout_p=rate)

    def _needs_own_attention(self, states: Tensor) -> bool:
        """Whether torch's fused attention would be slow: in training with dropout, and on a CPU in all training."""
        return self.training and (self.dropout > 0 or states.device.type == "cpu")

    def _mix(self, qkv_N3HK: Tensor, plan: AttentionPlan) -> Tensor:
        if isinstance(plan.kv_cache, KVCache):
            return plan.kv_cache.attend(plan.layer, qkv_N3HK)
        if plan.dropout_seed is not None and self._needs_own_attention(qkv_N3HK):
            return attention_with_dropout(qkv_N3HK, plan.rectangles, self.dropout, plan.dropout_seed)
        mixed = [self._attend(group, *parts) for group, parts in _split_groups(qkv_N3HK, plan)]
        mixed_ND = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        added = len(qkv_N3HK) - len(mixed_ND)
        return functional.pad(mixed_ND, (0, 0, 0, added)) if added else mixed_ND

    def _attend(self, plan: GroupAttentionPlan, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTK: Tensor) -> Tensor:
        mixed_BHTK = scaled_dot_product_attention(
            q_BHTK,
            k_BHTK,
            v_BHTK,
            attn_mask=plan.allowed_B1TT,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=plan.causal,
        )
        return mixed_BHTK.transpose(1, 2).flatten(2).flatten(0, 1)


def round_rows(states_ND: Tensor, selected_P: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Add rows that are never read, so that batches have few different numbers of rows; the same for the selected ones.

    oneDNN compiles a kernel for each number, which takes several times as long as the product and stays in memory.
    """
    if states_ND.device.type != "cpu":
        return states_ND, selected_P
    if selected_P is not None and not should_subset_queries(len(selected_P), len(states_ND)):
        selected_P = functional.pad(selected_P, (0, -len(selected_P) % _ROW_ROUNDING))
    return functional.pad(states_ND, (0, 0, 0, -len(states_ND) % _ROW_ROUNDING)), selected_P


def select_tokens(states_ND: Tensor, selected_P: Tensor | None) -> Tensor:
    """Return the states of the selected tokens; none: of all."""
    # Brackets would do the same, and take about twice as long.
    return states_ND if selected_P is None else states_ND.index_select(0, selected_P)


def _split_groups(qkv_N3HK: Tensor, plan: AttentionPlan) -> Iterator[tuple[GroupAttentionPlan, tuple[Tensor, ...]]]:
    """Yield the queries, keys and values (B, H, T, K) of each group, or those of them that the tensor holds."""
    # Split and not sliced: each slice would make a gradient of the whole batch.
    sizes = [group.group.stop - group.group.start for group in plan.groups]
    added = len(qkv_N3HK) - sum(sizes)
    parts = torch.split(qkv_N3HK, [*sizes, added] if added else sizes)
    for plan_of_group, tokens in zip(plan.groups, parts, strict=False):
        group = plan_of_group.group
        qkv_BT3HK = tokens.view(group.rows, group.length, *tokens.shape[1:])
        yield plan_of_group, qkv_BT3HK.permute(2, 0, 3, 1, 4).unbind(0)


@dataclass
class LayerRecorder(ForwardTrace):
    """Records queries, keys and values of chosen layers."""

    layers: Collection[int] = ()
    """Layers, from 0."""
    qkv: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> (N, 3, H, K)."""

    def record_layer(self, qkv_N3HK: Tensor, plan: AttentionPlan) -> None:
        if plan.layer in self.layers:
            self.qkv[plan.layer] = qkv_N3HK
