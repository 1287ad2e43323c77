"""The cache of keys and values for generation, so that a new token costs the work of one token.

Prompts are read once, as any batch is, with causal or prefix attention and a `Prefill` that stores their keys and
values. Then each step brings one new token for each row, which sees its prompt and what was generated before it. The
keys and values of a prompt are held once, whatever the number of rows that go on from it (beams, samples); only those
of written tokens, which are few, move when rows are chosen anew. That takes two products in place of one, and spares a
copy of everything at each step.
"""

# S prompts, R rows of a prompt at most, B rows, T tokens of the longest prompt, W written tokens, H heads, K head size,
# D width
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from alembert.nn.batch import Batch, DocumentGroup
from alembert.nn.config import EncoderConfig


@dataclass(frozen=True)
class CopySources:
    """Tokens of prompts that can be copied, padded to the longest."""

    keys_STD: Tensor
    ids_ST: Tensor
    first_ST: Tensor
    """Where the same id stands first in the prompt; -1 at padding."""

    @classmethod
    def empty(cls, prompts: int, longest: int, width: int, like: Tensor) -> CopySources:
        """Make room in the type and on the device of `like`."""
        ids_ST = torch.zeros(prompts, longest, dtype=torch.int64, device=like.device)
        return cls(like.new_zeros(prompts, longest, width), ids_ST, torch.full_like(ids_ST, -1))

    def store(self, numbers: Sequence[int], sources: CopySources) -> None:
        """Store sources by the numbers of their prompts."""
        longest = sources.ids_ST.shape[1]
        self.keys_STD[numbers, :longest] = sources.keys_STD.to(self.keys_STD)
        self.ids_ST[numbers, :longest] = sources.ids_ST
        self.first_ST[numbers, :longest] = sources.first_ST

    def select(self, numbers_S: Tensor, longest: int) -> CopySources:
        """Keep these prompts, of which none is longer."""
        keys_STD, ids_ST, first_ST = (
            values[:, :longest].index_select(0, numbers_S) for values in (self.keys_STD, self.ids_ST, self.first_ST)
        )
        return CopySources(keys_STD, ids_ST, first_ST)


class KVCache:
    """Keys and values of prompts and of the rows that go on from them."""

    def __init__(self, config: EncoderConfig, lengths: Sequence[int], like: Tensor, *, copies: bool = False) -> None:
        """Make room for prompts of these lengths, in the type and on the device of `like`, and for their `sources`."""
        prompts, heads, size = len(lengths), config.num_attention_heads, config.head_size
        layers = range(len(config.layer_order))
        self._prompts = [like.new_zeros(2, prompts, heads, max(lengths), size) for _ in layers]
        self._written = [like.new_zeros(2, prompts, heads, 0, size) for _ in layers]
        self._lengths_S = torch.tensor(lengths, device=like.device)
        self._padding_S11T = self._padding()
        self.rows = PromptRows(list(range(prompts)), prompts, like.device)
        self.sources = CopySources.empty(prompts, max(lengths), config.hidden_size, like) if copies else None

    def store_prompt(self, layer: int, number: int, keys_and_values: Tensor) -> None:
        """Store the keys and values (2, H, T, K) of a prompt, by its number."""
        self._prompts[layer][:, number, :, : keys_and_values.shape[2]] = keys_and_values

    def next_batch(self, parents: Sequence[int], ids: Sequence[int], segment: int) -> Batch:
        """Continue rows of the last step, named by their numbers there, and return a batch of their new tokens.

        A row may be named any number of times. At first the prompts are the rows.
        """
        before = self.rows.owners
        self._reassign_rows([before[parent] for parent in parents])
        device = self._lengths_S.device
        chosen_B = torch.tensor(parents, device=device)
        self._written = [layer.index_select(1, chosen_B) for layer in self._written]
        positions_B = self._lengths_S[self.rows.owners_B] + self._written[0].shape[3]
        return Batch.single_tokens(torch.tensor(ids, device=device), positions_B, segment)

    def attend(self, layer: int, qkv_B3HK: Tensor) -> Tensor:
        """Let the new token of each row attend to its prompt, what was written, and itself; return (B, H x K)."""
        q_BHK, keys_and_values = qkv_B3HK[:, 0], qkv_B3HK[:, 1:].transpose(0, 1)[:, :, :, None]
        self._written[layer] = torch.cat((self._written[layer], keys_and_values), 3)
        k_BHWK, v_BHWK = self._written[layer]
        k_SHTK, v_SHTK = self._prompts[layer]
        q_SHRK = self.rows.by_prompt(q_BHK)
        read_SHRT = (q_SHRK @ k_SHTK.mT).masked_fill_(self._padding_S11T, -math.inf)
        scores_BHX = torch.cat((self.rows.by_row(read_SHRT), (k_BHWK @ q_BHK[..., None])[..., 0]), -1)
        shares = (scores_BHX / math.sqrt(q_BHK.shape[-1])).softmax(-1)
        read_BHT, written_BHW = torch.split(shares, [k_SHTK.shape[2], k_BHWK.shape[2]], -1)
        of_prompts_BHK = self.rows.by_row(self.rows.by_prompt(read_BHT) @ v_SHTK)
        return (of_prompts_BHK + (written_BHW[..., None, :] @ v_BHWK)[..., 0, :]).flatten(1)

    def _padding(self) -> Tensor:
        positions_T = torch.arange(self._prompts[0].shape[3], device=self._lengths_S.device)
        return (positions_T >= self._lengths_S[:, None])[:, None, None]

    def _reassign_rows(self, owners: list[int]) -> None:
        """Set which prompt each row continues; prompts without rows are dropped once they are half of all."""
        live = sorted(set(owners))
        if 2 * len(live) <= len(self._lengths_S):
            live_S = torch.tensor(live, device=self._lengths_S.device)
            longest = int(self._lengths_S[live_S].max())
            self._prompts = [layer[:, :, :, :longest].index_select(1, live_S) for layer in self._prompts]
            self._lengths_S = self._lengths_S[live_S]
            self._padding_S11T = self._padding()
            self.sources = None if self.sources is None else self.sources.select(live_S, longest)
            owners = [live.index(owner) for owner in owners]
        self.rows = PromptRows(owners, len(self._lengths_S), self._lengths_S.device)


class PromptRows:
    """Which prompt each row belongs to, and its cell in the rectangle of prompts and their rows."""

    def __init__(self, owners: list[int], prompts: int, device: torch.device) -> None:
        self.owners = owners
        self.owners_B = torch.tensor(owners, device=device)
        counts = [0] * prompts
        ranks = []
        for owner in owners:
            ranks.append(counts[owner])
            counts[owner] += 1
        self._shape = prompts, max(counts)
        self._cells_B = self.owners_B * max(counts) + torch.tensor(ranks, device=device)

    def by_prompt(self, values_BHX: Tensor) -> Tensor:
        """Put rows beside those of the same prompt: (S, H, R, X), zero where a prompt has fewer."""
        prompts, rows = self._shape
        empty = values_BHX.new_zeros(prompts * rows, *values_BHX.shape[1:])
        placed = empty.index_copy(0, self._cells_B, values_BHX)
        return placed.view(prompts, rows, *values_BHX.shape[1:]).transpose(1, 2)

    def by_row(self, values_SHRX: Tensor) -> Tensor:
        """Take the rows apart again: (B, H, X)."""
        return values_SHRX.transpose(1, 2).flatten(0, 1).index_select(0, self._cells_B)


@dataclass(frozen=True)
class Prefill:
    """Keeps the keys and values of a batch of prompts, while the model reads them."""

    cache: KVCache
    prompt_indices: Sequence[int]
    """Number in the cache of each document of the batch."""

    def store(self, layer: int, parts: Iterable[tuple[DocumentGroup, Tensor, Tensor]]) -> None:
        """Store one layer's keys and values of each group; padding is stored too, and never attended to."""
        for group, k_BHTK, v_BHTK in parts:
            for row, document in enumerate(group.documents):
                pair = torch.stack((k_BHTK[row], v_BHTK[row]))
                self.cache.store_prompt(layer, self.prompt_indices[document], pair)

    def store_sources(self, sources: CopySources) -> None:
        """Store what can be copied of each document, if anything is."""
        if self.cache.sources is not None:
            self.cache.sources.store(self.prompt_indices, sources)
