"""What computes the vectors of windows: a Checkpoint in torch, whose states are pooled here, or an Export, which pools."""

# R windows, T tokens, D width
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Row
from alembert.infer.embed_numbers import Vectors
from alembert.tasks.compare.pooling import Pooling
from alembert.tasks.runtime import check_finite
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from alembert.infer.engine_export import ExportEngine
    from alembert.infer.engine_torch import TorchEngine

Ids = npt.NDArray[np.int64]
KIND: Final = "embed"
"""The kind of the head that makes vectors; among several tasks it is called as its task."""


class VectorEngine(Protocol):
    """What computes the vector of a window."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""

    def vectors(self, windows: Sequence[Ids]) -> Vectors:
        """Give the vector of each window, pooled as the model states it and not scaled."""


class StatesEngine(Protocol):
    """What computes the states of tokens."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def longest(self) -> int: ...

    def hidden_states(self, documents: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Give the number and the last states (T, D), a torch tensor, of each document, in any order."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A trained layer on pooled states: a linear map and tanh."""

    weight_DD: npt.NDArray[np.float32]
    bias_D: npt.NDArray[np.float32]

    @classmethod
    def of(cls, head: Any) -> Layer:
        """Take the layer from a torch head of the kind `embed`."""
        weights = {name: each.detach().float().cpu().numpy() for name, each in head.layer.named_parameters()}
        return cls(weights["weight"], weights["bias"])

    def __call__(self, vectors_RD: Vectors) -> Vectors:
        result: Vectors = np.tanh(vectors_RD @ self.weight_DD.T + self.bias_D)
        return result


@dataclass(frozen=True, eq=False)
class TorchVectors:
    """Makes vectors with any Checkpoint: states from torch, pooled here."""

    engine: StatesEngine
    pooling: Pooling
    layer: Layer | None = None

    @classmethod
    def of(cls, engine: TorchEngine, pooling: Pooling) -> TorchVectors:
        """Take the trained layer along, if it is part of the model."""
        heads = engine.checkpoint.blueprint.heads
        if not pooling.layer:
            return cls(engine, pooling)
        name = next(name for name, spec in heads.items() if spec.kind == KIND)
        return cls(engine, pooling, Layer.of(engine.model.head(name)))

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    @property
    def longest(self) -> int:
        return self.engine.longest

    def vectors(self, windows: Sequence[Ids]) -> Vectors:
        """Give the vector of each window."""
        pooled_RD = np.empty((len(windows), self.pooling.dimension), np.float32)
        for number, states_TD in self.engine.hidden_states(windows):
            pooled_D = states_TD[0] if self.pooling.mode == "cls" else states_TD.mean(0)
            pooled_RD[number] = pooled_D.float().cpu().numpy()
        check_finite(pooled_RD, "Hidden states")
        return pooled_RD if self.layer is None else self.layer(pooled_RD)


@dataclass(frozen=True, eq=False)
class ExportVectors:
    """Makes vectors with an Export, whose graph pools."""

    engine: ExportEngine
    pooling: Pooling
    head: str

    @classmethod
    def of(cls, engine: ExportEngine, pooling: Pooling) -> ExportVectors:
        """Find the head that makes vectors."""
        return cls(engine, pooling, next(name for name, each in engine.facts.heads.items() if each.kind == KIND))

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    @property
    def longest(self) -> int:
        return self.engine.longest

    def vectors(self, windows: Sequence[Ids]) -> Vectors:
        """Give the vector of each window."""
        rows = [Row(ids=ids, places=np.zeros(1, np.int64)) for ids in windows]
        vectors_RD = np.empty((len(rows), self.pooling.dimension), np.float32)
        for number, outputs in self.engine.graph.head_outputs([self.head], rows):
            # Before it may stand what a layer that is for training alone made of it.
            vectors_RD[number] = outputs[self.head][0, -self.pooling.dimension :]
        return vectors_RD
