"""Run a torch model over rows: outputs of heads, new tokens, gradients and attention, for any task.

Predictions take batches of rows by a budget of tokens, several at once: on a CPU one stream of batches runs per core, each
operation on one thread, and a lone batch has all cores to itself. In training, a micro-batch is asked at its places in
the flat row. A model that writes reads its prompts once, and each new token costs one token.

Explanations ask for integrated gradients (Sundararajan et al. 2017), which go from a baseline to the row along a straight
line in the space of the embeddings. A piece and the features of its token are added up before anything else is done with
them, so a single gradient is that of all of them, and their shares are products with it. Points of the line are those of
Gauss and Legendre; several of them are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.data.batching import batch_by_tokens, map_in_threads
from alembert.data.windows import Row, stack_features
from alembert.hardware.torch_settings import limit_operation_threads
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.heads import HeadSpec
from alembert.nn.kv_cache import KVCache, Prefill
from alembert.nn.model import Model
from alembert.tasks.generate.decoding import Logits
from alembert.tasks.runtime import HeadRunner, OutputGradient, Outputs, check_finite

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


# -- gradients and attention

# N tokens of a batch, T tokens of a row, P places, S points of the line, E width of the embedding, F features


_BATCH_TOKENS: Final = 1024


@dataclass(frozen=True)
class ModelGradients:
    """A torch model in evaluation mode with the head of a task."""

    model: Model
    head: str
    attention_pattern: str | None = None

    def integrate(
        self, rows: Sequence[Row], baselines: Sequence[Row], gradient: OutputGradient, steps: int
    ) -> list[npt.NDArray[np.float64]]:
        """Return integrated gradients (T, 1 + F) of rows: of the piece of each token, and of each of its features."""
        points_S, weights_S = _line(steps)
        parts = [self._differences(row, baseline) for row, baseline in zip(rows, baselines, strict=True)]
        differences_NE = torch.cat([part.sum(1) for part in parts])
        sums_NE = torch.zeros(sum(row.length for row in rows), self.model.config.embedding_width, dtype=torch.float64)
        size = max(1, _BATCH_TOKENS // sum(row.length for row in rows))
        for begin in range(0, steps, size):
            chunk = slice(begin, begin + size)
            gradients_SNE = self._gradients(rows, differences_NE, points_S[chunk], gradient)
            weights_S11 = torch.from_numpy(weights_S[chunk])[:, None, None]
            sums_NE += (gradients_SNE.double().cpu() * weights_S11).sum(0)
        means = torch.split(sums_NE, [row.length for row in rows])
        return [
            (part.double().cpu() * mean_TE[:, None]).sum(-1).numpy() for part, mean_TE in zip(parts, means, strict=True)
        ]

    @torch.no_grad()
    def _differences(self, row: Row, baseline: Row) -> Tensor:
        """Return how far the embeddings of a row are from the baseline's (T, 1 + F, E): of pieces, and of each feature."""
        embeddings = self.model.encoder.embeddings
        device = embeddings.token.weight.device
        ids, base = (torch.from_numpy(each.ids).to(device) for each in (row, baseline))
        pieces_T1E: Tensor = (embeddings.token(ids) - embeddings.token(base))[:, None]
        if embeddings.features is None or row.features is None or baseline.features is None:
            return pieces_T1E
        table_VE = embeddings.features.weight
        own, other = (torch.from_numpy(each.rows_TF).to(device) for each in (row.features, baseline.features))
        return torch.cat((pieces_T1E, table_VE[own] - table_VE[other]), 1)

    def _gradients(
        self, rows: Sequence[Row], differences_NE: Tensor, points_S: npt.NDArray[np.float64], gradient: OutputGradient
    ) -> Tensor:
        """Return the gradients (S, N, E) of a number that is made of the outputs, at points between baseline and rows."""
        device = differences_NE.device
        copies = [*rows] * len(points_S)
        target = collate_rows(copies, range(len(copies))).to(device)
        starts = target.batch.starts_B.tolist()
        at_N = torch.cat([start + torch.arange(row.length) for start, row in zip(starts, copies, strict=True)])
        at_N = at_N.to(device)
        missing_S11 = torch.from_numpy(points_S - 1).to(differences_NE)[:, None, None]
        added_NE = differences_NE.new_zeros(len(target.batch.ids_N), differences_NE.shape[1])
        added_NE[at_N] = (missing_S11 * differences_NE).flatten(0, 1)
        added_NE.requires_grad_()
        with torch.enable_grad():
            asked = {"positions_P": target.positions, "attention": self.attention_pattern}
            outputs = self.model(target.batch, [self.head], **asked, only=True, added_ND=added_NE)[self.head]
        split = split_outputs(outputs.detach().float().cpu(), target, self.model.spec(self.head))
        found = [part.numpy() for part in split]
        chunks = [gradient(found[begin : begin + len(rows)]) for begin in range(0, len(found), len(rows))]
        weights = np.concatenate([part for chunk in chunks for part in chunk])
        (gradients_NE,) = torch.autograd.grad(outputs, added_NE, torch.from_numpy(weights).to(outputs))
        own: Tensor = gradients_NE[at_N]
        return own.view(len(points_S), -1, own.shape[1])

    @torch.inference_mode()
    def attention(self, rows: Sequence[Row]) -> list[npt.NDArray[np.float64]]:
        """Return for each row how much each place attends to each token (P, T), the mean of all layers and heads."""
        target = collate_rows(rows, range(len(rows))).to(next(self.model.parameters()).device)
        trace = ForwardTrace(documents=range(len(rows)))
        self.model.encoder(target.batch, attention=self.attention_pattern, trace=trace)
        layers = range(len(trace.scores))
        means = [
            torch.stack([trace.probabilities(layer, number).mean(0) for layer in layers]).mean(0)
            for number in range(len(rows))
        ]
        return [mean_TT.double().cpu().numpy()[row.positions] for mean_TT, row in zip(means, rows, strict=True)]


@lru_cache(maxsize=16)
def _line(steps: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return points between 0 and 1, and what each counts for."""
    points_S, weights_S = np.polynomial.legendre.leggauss(steps)
    return (points_S + 1) / 2, weights_S / 2
