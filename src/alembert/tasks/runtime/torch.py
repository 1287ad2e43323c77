"""Run a model over rows: what its head says at their places, as numbers that every task can decode.

Batches of rows by a budget of tokens, several at once: how everything that predicts feeds a torch model.

On a CPU one stream of batches runs per core, each operation on one thread; a lone batch has all cores to itself.

What a micro-batch of a task asks of the model: the places in the flat row, and the right answers there.

A torch model that writes: prompts are read once, and each new token costs one token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import torch
from torch import Tensor

from alembert.data.batching import batch_by_tokens, map_in_threads
from alembert.data.windows import Row, stack_features
from alembert.hardware.torch_settings import limit_operation_threads
from alembert.nn.batch import Batch
from alembert.nn.heads import HeadSpec
from alembert.nn.kv_cache import KVCache, Prefill
from alembert.nn.model import Model
from alembert.tasks.generate.decoding import Logits
from alembert.tasks.runtime import HeadRunner, Outputs, check_finite

if TYPE_CHECKING:
    from alembert.tasks.runtime.gradients import ModelGradients

Result = TypeVar("Result")

TOKEN_BUDGET: Final = 1024
"""Tokens in a batch: large enough for full matrix products, small enough for the cache (docs/benchmarks.md)."""


def map_batches(
    compute: Callable[[list[int]], Result], lengths: Sequence[int], device: torch.device
) -> Iterator[Result]:
    """Compute on batches of the numbers of rows with these lengths, short rows first.

    While it runs with several streams, torch computes each operation on one thread, in the whole process.
    """
    batches = list(batch_by_tokens(lengths, TOKEN_BUDGET))
    streams = min(torch.get_num_threads() if device.type == "cpu" else 1, len(batches))
    if streams < 2:
        yield from map(compute, batches)
        return
    with limit_operation_threads(1):
        yield from map_in_threads(compute, batches, streams)


# P places, R rows


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Right answers of rows that are computed at once."""

    batch: Batch
    positions: Tensor
    """Places of all rows in the flat row of the batch, row after row."""
    labels: Tensor
    """The labels of all rows, one row after the other."""
    positions_per_row: tuple[int, ...]
    """How many places each row has."""
    labels_per_row: tuple[int, ...]
    """How many labels (lines of `labels`) each row has: mostly the places, but a span head has its own."""
    example_of_row: tuple[int, ...]
    """Which example of the micro-batch each row belongs to, from 0 up."""
    count: int
    """Answers that the loss is the sum of: the mean is taken over those of the whole step."""

    def to(self, device: torch.device) -> TaskBatch:
        return replace(
            self, batch=self.batch.to(device), positions=self.positions.to(device), labels=self.labels.to(device)
        )

    def labels_by_row(self) -> tuple[Tensor, ...]:
        """Split the labels into the rows."""
        return torch.split(self.labels, list(self.labels_per_row))

    def split_by_row(self, values: Tensor) -> tuple[Tensor, ...]:
        """Split what was computed at the places into the rows."""
        return torch.split(values, list(self.positions_per_row))


def collate_rows(rows: Sequence[Row], example_of_row: Sequence[int], count: int | None = None) -> TaskBatch:
    """Pack rows into a batch, and say where their answers stand in it; `count` is the number of places if not given."""
    segments = [np.zeros_like(row.ids) if row.segments is None else row.segments for row in rows]
    prefixes = [row.length if row.prefix is None else row.prefix for row in rows]
    batch = Batch.packed(
        [row.ids for row in rows],
        segments,
        features=stack_features([row.features for row in rows], [row.length for row in rows]),
        prefixes=prefixes if _has_prefixes(rows) else None,
    )
    starts = batch.starts_B.tolist()
    places = np.concatenate([row.positions + start for row, start in zip(rows, starts, strict=True)])
    labels = [row.labels for row in rows if row.labels is not None]
    return TaskBatch(
        batch=batch,
        positions=torch.from_numpy(places),
        labels=torch.from_numpy(np.concatenate(labels)) if labels else torch.empty(0),
        positions_per_row=tuple(len(row.positions) for row in rows),
        labels_per_row=tuple(0 if row.labels is None else len(row.labels) for row in rows),
        example_of_row=tuple(example_of_row),
        count=len(places) if count is None else count,
    )


def _has_prefixes(rows: Sequence[Row]) -> bool:
    return any(row.prefix is not None for row in rows)


# P prompts or lines, V vocabulary


class TorchDecoder:
    """A model in evaluation mode, whose masked-LM head says what comes next."""

    def __init__(self, model: Model, head: str, attention: str | None = None, segment: int = 0) -> None:
        """Write with causal or prefix attention (none: the model's own); new tokens are of this segment."""
        self.model = model
        self.head = head
        self.attention = attention or model.config.attention
        self.segment = segment
        self._memory: KVCache | None = None

    def prefill(self, prompts: Sequence[Row]) -> Logits:
        """Read prompts, short ones first; their last token is where each is asked."""
        weight = next(self.model.parameters())
        copies = self.model.spec(self.head).kind == "copy_lm"
        memory = KVCache(self.model.config, [row.length for row in prompts], weight, copies=copies)

        def compute(numbers: list[int]) -> tuple[list[int], Logits]:
            target = collate_rows([prompts[number] for number in numbers], numbers).to(weight.device)
            asked = {"positions_P": target.positions, "attention": self.attention}
            with torch.inference_mode():
                found = self.model(target.batch, [self.head], **asked, only=True, memory=Prefill(memory, numbers))
            return numbers, found[self.head].float().cpu().numpy()

        logits_PV = np.empty((len(prompts), self.model.config.vocab_size), np.float32)
        for numbers, found in map_batches(compute, [row.length for row in prompts], weight.device):
            logits_PV[numbers] = found
        check_finite(logits_PV, f"Outputs of the head `{self.head}`")
        self._memory = memory
        return logits_PV

    @torch.inference_mode()
    def step(self, parents: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Write a token after lines of the last call."""
        assert self._memory is not None
        batch = self._memory.next_batch(parents, tokens, self.segment)
        # A line sees all that stands before its new token, whatever the attention inside the prompt was.
        found = self.model(batch, [self.head], only=True, attention="causal", memory=self._memory)
        logits_PV: Logits = found[self.head].float().cpu().numpy()
        check_finite(logits_PV, f"Outputs of the head `{self.head}`")
        return logits_PV


@dataclass(frozen=True)
class ModelRunner(HeadRunner):
    """A torch model, in evaluation mode, with the name of the head that a task asks."""

    model: Model
    head: str
    attention: str | None = None

    @property
    def per_token(self) -> bool:
        return self.model.spec(self.head).per_token

    def compute(self, heads: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, Mapping[str, Outputs]]]:
        return compute_head_outputs(self.model, heads, rows, self.attention)

    def decoder(self, segment: int = 0) -> TorchDecoder:
        return TorchDecoder(self.model, self.head, self.attention, segment)

    def gradients(self) -> ModelGradients:
        from alembert.tasks.runtime.gradients import ModelGradients

        return ModelGradients(self.model, self.head, self.attention)


def compute_head_outputs(
    model: Model, heads: Sequence[str], rows: Sequence[Row], attention: str | None
) -> Iterator[tuple[int, dict[str, Outputs]]]:
    """Yield the number of each row and what the heads say at its places, short rows first.

    A head that answers once a document gives one line for each row, wherever it is asked.
    """
    device = next(model.parameters()).device

    def compute(numbers: list[int]) -> tuple[list[int], list[dict[str, Outputs]]]:
        target = collate_rows([rows[number] for number in numbers], numbers).to(device)
        with torch.inference_mode():
            asked = {"positions_P": target.positions, "attention": attention}
            outputs = model(target.batch, heads, **asked, only=True)
        found = {head: outputs[head].float().cpu() for head in heads}
        for head, each in found.items():
            check_finite(each.numpy(), f"Outputs of the head `{head}`")
        parts = {head: split_outputs(each, target, model.spec(head)) for head, each in found.items()}
        return numbers, [{head: parts[head][place].numpy() for head in heads} for place in range(len(numbers))]

    for numbers, found in map_batches(compute, [row.length for row in rows], device):
        yield from zip(numbers, found, strict=True)


def split_outputs(outputs: Tensor, target: TaskBatch, spec: HeadSpec) -> tuple[Tensor, ...]:
    """Split what a head says of a batch into its rows."""
    return target.split_by_row(outputs) if spec.per_token else torch.split(outputs, 1)
