"""The torch engine: runs a Checkpoint on any device that torch knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from alembert.artifact import shortlist
from alembert.data.windows import REFERENCE_TOKENS, Row
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_embedding_head
from alembert.infer.engines import ModelSize
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import count_multiplications_per_token
from alembert.tasks.compare.pooling import find_missing_head
from alembert.tasks.runtime import check_finite
from alembert.tasks.runtime.torch import ModelRunner, TorchDecoder, collate_rows, compute_head_outputs, map_batches
from alembert.tasks.task import AnyTask

_HEAD_PURPOSES: Final = {
    "masked_lm": "say how probable a text is",
    "next_sentence": "say whether a sentence follows another",
}


class TorchEngine:
    """A Checkpoint ready to compute."""

    name: Final = "torch"

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint = checkpoint
        self.tokenizer = checkpoint.require_tokenizer()
        self.max_tokens = checkpoint.max_tokens
        self.attention = checkpoint.blueprint.config.attention
        self.device = device
        self.model = checkpoint.model.to(device).eval()
        self.lock = Lock()  # one caller has all cores: how many threads an operation takes is set for the process

    @classmethod
    def open(cls, where: str | Path, device: str = "cpu") -> TorchEngine:
        """Open a Checkpoint for prediction; one of sentence-transformers makes vectors as its folder states."""
        found = checkpoints.open(where)
        return cls(with_embedding_head(found, find_missing_head(found.folder, found.blueprint.heads)), device)

    @property
    def size(self) -> ModelSize:
        """What the model costs on any machine; of several tasks, all heads are in it."""
        config = self.checkpoint.blueprint.config
        return ModelSize(
            parameters=self.checkpoint.parameters,
            bytes=self.checkpoint.bytes,
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            multiplications=count_multiplications_per_token(config, tokens=REFERENCE_TOKENS),
        )

    def bind(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, ModelRunner]:
        """Return the task with what it needs of the weights of its head (none: called as its kind), and what runs it."""
        spec = task.head()
        name = head or spec.kind
        labels = self.checkpoint.blueprint.labels.get(name, ())
        # Outputs without names, as those of numbers, are numbered in the files; heads of fixed outputs have no labels.
        fits = labels == task.labels if task.labels or not labels else len(labels) == spec.outputs
        if name not in self.model.specs or not fits:
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} needs a head `{name}` with the labels "
                f"{shortlist(task.labels)}; the model has {shortlist(labels) if labels else 'none of them'}. One of the two files was "
                "changed; fine-tune again."
            )
        return task.with_head_weights(self.model.head(name)), ModelRunner(self.model, name, task.attention_pattern)

    def hidden_states(self, documents: Sequence[Any]) -> Iterator[tuple[int, Tensor]]:
        """Encode documents, given as token ids; yield the number and the states (T, D) of each, short ones first.

        Documents are packed without padding, by a budget of tokens, several batches at once (see `map_batches`).
        """

        def encode(numbers: list[int]) -> tuple[list[int], list[Tensor]]:
            batch = Batch.packed([documents[number] for number in numbers]).to(self.device)
            with torch.inference_mode():
                return numbers, batch.split(self.model.encoder(batch))

        lengths = [len(document) for document in documents]
        for numbers, states in map_batches(encode, lengths, torch.device(self.device)):
            yield from zip(numbers, states, strict=True)

    @torch.inference_mode()
    def vocabulary_probabilities(self, ids: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float32]:
        head = self._head("masked_lm", "fill masks")
        batch = Batch.packed([ids]).to(self.device)
        predicted = torch.tensor(positions, device=self.device)
        logits = self.model(batch, [head], predicted_P=predicted, only=True)[head]
        check_finite(logits.float().cpu().numpy(), f"Outputs of the head `{head}`")
        probabilities: npt.NDArray[np.float32] = logits.float().softmax(-1).cpu().numpy()
        return probabilities

    def head_outputs(self, kind: str, rows: Sequence[Row]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Yield the number of each row and what the head of a kind says at its places, short rows first."""
        head = self._head(kind, _HEAD_PURPOSES.get(kind, "answer"))
        for number, outputs in compute_head_outputs(self.model, [head], rows, None):
            yield number, outputs[head]

    @torch.inference_mode()
    def attention_weights(self, row: Row, attention: str | None = None) -> npt.NDArray[np.float32]:
        """Compute how much of its attention each token of a row gives to each: (layers, heads, tokens, tokens).

        `attention` says which tokens see each other; none: as in the model's configuration.
        """
        config, trace = self.checkpoint.blueprint.config, ForwardTrace(documents=[0])
        shape = config.num_hidden_layers, config.num_attention_heads, row.length, row.length
        with self.lock:
            self.model.encoder(collate_rows([row], [0]).batch.to(self.device), attention=attention, trace=trace)
        weights_LHTT = np.empty(shape, np.float32)
        for layer in range(config.num_hidden_layers):
            weights_LHTT[layer] = trace.probabilities(layer, 0).float().cpu().numpy()
            trace.scores[layer].clear()
        check_finite(weights_LHTT, "Attention probabilities")
        return weights_LHTT

    @property
    def token_embedding(self) -> npt.NDArray[np.float32]:
        """The input embedding of every token (vocabulary, width)."""
        weight: npt.NDArray[np.float32] = self.model.encoder.embeddings.token.weight.detach().float().cpu().numpy()
        return weight

    def writer(self) -> TorchDecoder:
        """Return what continues texts, with the attention that the model was made with."""
        return TorchDecoder(self.model, self._head("masked_lm", "continue texts"))

    def _head(self, kind: str, purpose: str) -> str:
        heads = self.checkpoint.blueprint.heads
        for name, spec in heads.items():
            if spec.kind == kind:
                return name
        there = ", ".join(sorted({spec.kind for spec in heads.values()})) or "none"
        raise BadSetting(f"The model cannot {purpose}: it has no `{kind}` head (its heads: {there}).")
