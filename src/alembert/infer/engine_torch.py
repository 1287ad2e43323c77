"""The torch engine: runs a Checkpoint on any device that torch knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.nn.batch import Batch
from alembert.text.tokenizer import Tokenizer


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

    @classmethod
    def open(cls, where: str | Path) -> TorchEngine:
        """Open a Checkpoint for prediction."""
        return cls(checkpoints.open(where))

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
