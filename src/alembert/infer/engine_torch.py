"""The torch engine: runs a Checkpoint on any device that torch knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.artifact import few
from alembert.data.batching import by_token_budget
from alembert.data.streams import in_streams
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.hardware.torch_settings import threads_per_operation
from alembert.nn.batch import Batch
from alembert.tasks.running import ModelRunner
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer

Result = TypeVar("Result")

TOKEN_BUDGET: Final = 1024
"""Tokens in a batch: large enough for full matrix products, small enough for the cache (docs/benchmarks.md)."""


class TorchEngine:
    """A Checkpoint ready to compute."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        if checkpoint.tokenizer is None:
            raise BadFile(
                "The checkpoint has no tokenizer (vocab.txt or tokenizer.json), so it cannot read texts."
            )
        self.checkpoint = checkpoint
        self.tokenizer: Tokenizer = checkpoint.tokenizer
        self.longest = checkpoint.blueprint.config.max_position_embeddings
        self.attention = checkpoint.blueprint.config.attention
        self.device = device
        self.model = checkpoint.model.to(device).eval()
        self.streams = torch.get_num_threads() if device == "cpu" else 1

    @classmethod
    def open(cls, where: str | Path, device: str = "cpu") -> TorchEngine:
        """Open a Checkpoint for prediction."""
        return cls(checkpoints.open(where), device)

    def bound(self, task: AnyTask) -> tuple[AnyTask, ModelRunner]:
        """Give a task what it needs of its head's weights, and what runs the head."""
        spec = task.head()
        labels = self.checkpoint.blueprint.labels.get(spec.kind, ())
        # Outputs without names, as those of numbers, are numbered in the files.
        fits = labels == task.labels if task.labels else len(labels) == spec.outputs
        if spec.kind not in self.model.specs or not fits:
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} needs a `{spec.kind}` head with the labels "
                f"{few(task.labels)}; the model has {few(labels) if labels else 'none of them'}. One of the two files was "
                "changed; fine-tune again."
            )
        return task.bind(self.model.head(spec.kind)), ModelRunner(self.model, spec.kind, task.attention)

    def hidden_states(self, documents: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
        """Encode documents, given as token ids; yield the number and the states (T, D) of each, short ones first.

        Documents are packed without padding, by a budget of tokens, one stream of batches per core. While it runs,
        torch computes each operation on one thread, in the whole process.
        """

        def encode(numbers: list[int]) -> tuple[list[int], list[Tensor]]:
            batch = Batch.packed([documents[number] for number in numbers]).to(self.device)
            with torch.inference_mode():
                return numbers, batch.split(self.model.encoder(batch))

        for numbers, states in self._in_batches(encode, documents):
            yield from zip(numbers, states, strict=True)

    @torch.inference_mode()
    def vocabulary_probabilities(
        self, ids: Sequence[int], positions: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        head = self._head("masked_lm", "fill masks")
        batch = Batch.packed([ids]).to(self.device)
        wanted = torch.tensor(positions, device=self.device)
        logits = self.model(batch, [head], predicted_P=wanted, only=True)[head]
        probabilities: npt.NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return probabilities

    def next_token_logits(
        self, rows: Sequence[Sequence[int]], prefixes: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """Return logits (rows, V) for the token after each row, given as token ids.

        `prefixes` says how many tokens at the beginning of each row see each other; causal attention ignores it.
        """
        head = self._head("masked_lm", "continue texts")

        def predict(numbers: list[int]) -> tuple[list[int], Tensor]:
            chosen = [rows[number] for number in numbers]
            batch = Batch.packed(chosen, prefixes=[prefixes[number] for number in numbers]).to(self.device)
            last_P = batch.starts_B + torch.tensor(batch.lengths, device=self.device) - 1
            with torch.inference_mode():
                logits = self.model(batch, [head], predicted_P=last_P, only=True)[head]
                return numbers, logits.float().cpu()

        logits = np.empty((len(rows), self.checkpoint.blueprint.config.vocab_size), dtype=np.float32)
        for numbers, found in self._in_batches(predict, rows):
            logits[numbers] = found.numpy()
        return logits

    def _in_batches(
        self, compute: Callable[[list[int]], Result], documents: Sequence[Sequence[int]]
    ) -> Iterator[Result]:
        """Compute on batches of document numbers, one stream a core; a lone batch has all cores to itself."""
        batches = list(by_token_budget([len(document) for document in documents], TOKEN_BUDGET))
        streams = min(self.streams, len(batches))
        if streams < 2:
            yield from map(compute, batches)
            return
        with threads_per_operation(1):
            yield from in_streams(compute, batches, streams)

    def _head(self, kind: str, purpose: str) -> str:
        heads = self.checkpoint.blueprint.heads
        for name, spec in heads.items():
            if spec.kind == kind:
                return name
        there = ", ".join(sorted({spec.kind for spec in heads.values()})) or "none"
        raise BadSetting(f"The model cannot {purpose}: it has no `{kind}` head (its heads: {there}).")
