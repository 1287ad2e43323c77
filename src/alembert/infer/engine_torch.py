"""The torch engine: runs a Checkpoint on any device that torch knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.infer.batching import by_token_budget
from alembert.infer.streams import in_streams
from alembert.nn.batch import Batch
from alembert.text.tokenizer import Tokenizer

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
        self.device = device
        self.model = checkpoint.model.to(device).eval()
        self.streams = torch.get_num_threads() if device == "cpu" else 1

    @classmethod
    def open(cls, where: str | Path) -> TorchEngine:
        """Open a Checkpoint for prediction."""
        return cls(checkpoints.open(where))

    def hidden_states(self, documents: Sequence[Sequence[int]]) -> Iterator[tuple[int, Tensor]]:
        """Encode documents, given as token ids; yield the number and the states (T, D) of each, short ones first.

        Documents are packed without padding, by a budget of tokens, one stream of batches per core. While it runs,
        torch computes each operation on one thread, in the whole process.
        """

        def encode(numbers: list[int]) -> tuple[list[int], list[Tensor]]:
            batch = Batch.packed([documents[number] for number in numbers]).to(self.device)
            with torch.inference_mode():
                return numbers, batch.split(self.model.encoder(batch))

        batches = by_token_budget([len(document) for document in documents], TOKEN_BUDGET)
        with _threads_per_operation(1 if self.streams > 1 else torch.get_num_threads()):
            for numbers, states in in_streams(encode, batches, self.streams):
                yield from zip(numbers, states, strict=True)

    @torch.inference_mode()
    def vocabulary_probabilities(
        self, ids: Sequence[int], positions: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        head = self._head("masked_lm", "fill masks")
        batch = Batch.packed([ids]).to(self.device)
        wanted = torch.tensor(positions, device=self.device)
        logits = self.model(batch, [head], predicted_P=wanted)[head]
        probabilities: npt.NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return probabilities

    def _head(self, kind: str, purpose: str) -> str:
        heads = self.checkpoint.blueprint.heads
        for name, spec in heads.items():
            if spec.kind == kind:
                return name
        there = ", ".join(sorted({spec.kind for spec in heads.values()})) or "none"
        raise BadSetting(f"The model cannot {purpose}: it has no `{kind}` head (its heads: {there}).")


@contextmanager
def _threads_per_operation(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
