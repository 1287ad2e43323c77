"""Texts in, one vector each out, pooled as the model's folder states.

A text of any length is read whole: one that is longer than the model's limit is cut into windows, at sentences where
one begins nearby, and its vector is the mean of theirs, weighted by their tokens, before it is scaled to length 1. What
is not stated is refused: a BERT gives numbers for every pooling, and with the wrong one they are worth little.

Vectors of windows are computed by a Checkpoint in torch, whose states are pooled here, or by an Export, which pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from alembert import artifact
from alembert.data.windows import Row
from alembert.errors import BadFile, BadSetting
from alembert.hub import model_folder
from alembert.infer.engines import open_torch_engine
from alembert.infer.index import VectorArray
from alembert.tasks.classify.rows import WindowSpec, encode_text
from alembert.tasks.compare.pooling import Pooling, PoolingMode, read_pooling
from alembert.tasks.example import Coverage
from alembert.tasks.runtime import check_finite
from alembert.tasks.runtime.export_files import is_export

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.engines import ExportEngine


# R windows, T tokens, D width


TokenIds = npt.NDArray[np.int64]
EMBED_HEAD: Final = "embed"
"""The kind of the head that makes vectors; among several tasks it is called as its task."""


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """A trained layer on pooled states: a linear map and tanh."""

    weight_DD: npt.NDArray[np.float32]
    bias_D: npt.NDArray[np.float32]

    @classmethod
    def from_head(cls, head: Any) -> DenseLayer:
        """Take the layer from a torch head of the kind `embed`."""
        weights = {name: weight.detach().float().cpu().numpy() for name, weight in head.layer.named_parameters()}
        return cls(weights["weight"], weights["bias"])

    def __call__(self, vectors_RD: VectorArray) -> VectorArray:
        result: VectorArray = np.tanh(vectors_RD @ self.weight_DD.T + self.bias_D)
        return result


@dataclass(frozen=True, eq=False)
class TorchVectorEngine:
    """Makes vectors with any Checkpoint: states from torch, pooled here."""

    engine: TorchEngine
    pooling: Pooling
    layer: DenseLayer | None = None

    @classmethod
    def from_engine(cls, engine: TorchEngine, pooling: Pooling) -> TorchVectorEngine:
        """Take the trained layer along, if it is part of the model."""
        heads = engine.checkpoint.blueprint.heads
        if not pooling.layer:
            return cls(engine, pooling)
        name = next(name for name, spec in heads.items() if spec.kind == EMBED_HEAD)
        return cls(engine, pooling, DenseLayer.from_head(engine.model.head(name)))

    def vectors(self, windows: Sequence[TokenIds]) -> VectorArray:
        pooled_RD = np.empty((len(windows), self.pooling.dimension), np.float32)
        with self.engine.lock:
            for number, states_TD in self.engine.hidden_states(windows):
                pooled_D = states_TD[0] if self.pooling.mode == "cls" else states_TD.mean(0)
                pooled_RD[number] = pooled_D.float().cpu().numpy()
        check_finite(pooled_RD, "Hidden states")
        return pooled_RD if self.layer is None else self.layer(pooled_RD)


@dataclass(frozen=True, eq=False)
class ExportVectorEngine:
    """Makes vectors with an Export, whose graph pools."""

    engine: ExportEngine
    pooling: Pooling
    head: str

    @classmethod
    def from_engine(cls, engine: ExportEngine, pooling: Pooling) -> ExportVectorEngine:
        """Find the head that makes vectors."""
        return cls(engine, pooling, next(name for name, head in engine.facts.heads.items() if head.kind == EMBED_HEAD))

    def vectors(self, windows: Sequence[TokenIds]) -> VectorArray:
        rows = [Row(ids=ids, positions=np.zeros(1, np.int64)) for ids in windows]
        vectors_RD = np.empty((len(rows), self.pooling.dimension), np.float32)
        for number, outputs in self.engine.graph.head_outputs([self.head], rows):
            # Before it may stand what a layer that is for training alone made of it.
            vectors_RD[number] = outputs[self.head][0, -self.pooling.dimension :]
        return vectors_RD


# N texts, R windows, D width


@dataclass(frozen=True)
class ModelOrigin:
    """Where a model is, and what stands for the content of its files."""

    model: str
    fingerprint: str

    @classmethod
    def from_folder(cls, folder: Path) -> ModelOrigin:
        return cls(str(folder.absolute()), model_fingerprint(folder))


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """Vectors of texts, in their order, and what became of the texts."""

    vectors_ND: VectorArray
    coverage: Coverage
    coverages: tuple[Coverage, ...] = ()
    """Of each text alone."""


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model that makes vectors."""

    vector_engine: TorchVectorEngine | ExportVectorEngine
    pooling: Pooling
    origin: ModelOrigin
    length: int
    """Tokens that are read at once, with special ones."""

    @classmethod
    def open(
        cls,
        model: str | Path,
        *,
        mode: PoolingMode | None = None,
        length: int | None = None,
        device: str = "cpu",
    ) -> Embedder:
        """Open a model's folder; `mode` is for one that does not state its pooling, `length` for shorter windows."""
        folder = model_folder(model)
        found = _open_export(folder, mode) if is_export(folder) else _open_checkpoint(folder, mode, device)
        length = _resolve_length(length, found.pooling, found.engine.max_tokens)
        return cls(found, found.pooling, ModelOrigin.from_folder(folder), length)

    def embed(self, texts: Sequence[str]) -> EmbeddedTexts:
        if not texts:
            return EmbeddedTexts(np.zeros((0, self.pooling.dimension), np.float32), Coverage())
        tokenizer = self.vector_engine.engine.tokenizer
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False, offsets=False)
        cutting = WindowSpec(tokenizer, self.length, overlap=0)
        encoded = [
            encode_text([text], [np.array(encoding.ids, np.int64)], cutting, None)
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        rows = [row.ids for text in encoded for row in text.rows]
        windows_RD = self.vector_engine.vectors(rows)
        lengths_R = np.array([len(row) for row in rows], np.float32)
        counts_N = np.array([len(text.rows) for text in encoded])
        vectors_ND = _average_windows(windows_RD, lengths_R, counts_N)
        return EmbeddedTexts(
            _normalise(vectors_ND) if self.pooling.normalise else vectors_ND,
            Coverage.total(text.coverage for text in encoded),
            tuple(text.coverage for text in encoded),
        )


def open_stated_embedder(folder: Path, device: str = "cpu") -> Embedder | None:
    """Open the model of a folder that says how a vector is made of its states; None if it does not, or cannot."""
    if read_pooling(folder) is None:
        return None
    try:
        return Embedder.open(folder, device=device)
    except BadSetting:  # an Export for another task, which has no vectors
        return None


def _open_checkpoint(folder: Path, mode: PoolingMode | None, device: str) -> TorchVectorEngine:
    engine = open_torch_engine(folder, device)
    pooling = resolve_pooling(folder, mode, engine.checkpoint.blueprint.config.hidden_size)
    return TorchVectorEngine.from_engine(engine, pooling)


def _open_export(folder: Path, mode: PoolingMode | None) -> ExportVectorEngine:
    from alembert.infer.engines import ExportEngine

    engine = ExportEngine.open(folder)
    if not any(head.kind == EMBED_HEAD for head in engine.facts.heads.values()):
        raise BadSetting(
            f"{folder} is an Export of a model that was not fine-tuned to give vectors. Use the checkpoint that it was made "
            "of, or export a model that was fine-tuned for the task compare."
        )
    pooling = resolve_pooling(folder, mode, engine.facts.width)
    return ExportVectorEngine.from_engine(engine, pooling)


def resolve_pooling(folder: Path, mode: PoolingMode | None, width: int) -> Pooling:
    """Return the pooling that a folder states; `mode` is for one that does not, and overrules none that does."""
    stated = read_pooling(folder)
    if stated is None and mode is None:
        raise BadSetting(
            f"{folder} does not say how a vector is made of its states, and the wrong way gives bad vectors without a "
            "sign. Fine-tune it first (alembert finetune --task compare), or choose with --pooling mean or "
            "--pooling cls."
        )
    if stated is None:
        assert mode is not None
        return Pooling(mode=mode, dimension=width)
    if mode not in (None, stated.mode):
        raise BadSetting(
            f"{folder} says that its vectors are {stated.in_words()}; --pooling {mode} would give bad ones. "
            "Leave it out."
        )
    if stated.dimension != width:
        raise BadFile(
            f"{folder} says that its vectors are {stated.dimension} wide, and the model is {width} wide. "
            "One of its files was changed."
        )
    return stated


def model_fingerprint(folder: Path) -> str:
    """SHA-256 that stands for the files which decide about vectors: configuration, weights, tokenizer, pooling.

    Hashes that a manifest lists are taken from there, so that a search need not read all weights again.
    """
    manifest = folder / artifact.MANIFEST
    known = artifact.open_artifact(folder).files if manifest.is_file() else {}
    weights = ("*.safetensors", "model.xml", "model.bin", "model.onnx", "[0-9]_*/*.safetensors")
    patterns = ("*.json", "vocab.txt", "[0-9]_*/*.json", *weights)
    paths = {path for pattern in patterns for path in folder.glob(pattern)} - {manifest}
    names = {path.relative_to(folder).as_posix(): path for path in sorted(paths)}
    return artifact.hash_config(
        {name: known[name].sha256 if name in known else artifact.hash_file(path) for name, path in names.items()}
    )


def _resolve_length(length: int | None, pooling: Pooling, longest: int) -> int:
    if length is None:
        return min(longest, pooling.length or longest)
    if not 3 <= length <= longest:
        raise BadSetting(f"The length is {length} tokens; the model reads from 3 (two of them special) to {longest}.")
    return length


def _average_windows(windows_RD: VectorArray, weights_R: VectorArray, counts_N: npt.NDArray[np.int64]) -> VectorArray:
    """Average the windows of each text; a text with one window keeps its vector as it is."""
    starts_N = np.cumsum(counts_N) - counts_N
    vectors_ND: VectorArray = windows_RD[starts_N]
    for text in np.flatnonzero(counts_N > 1):
        own = slice(starts_N[text], starts_N[text] + counts_N[text])
        vectors_ND[text] = np.average(windows_RD[own], axis=0, weights=weights_R[own])
    return vectors_ND


def _normalise(vectors_ND: VectorArray) -> VectorArray:
    lengths_N1 = np.sqrt((vectors_ND * vectors_ND).sum(1, keepdims=True))
    lengths_N1[lengths_N1 == 0] = 1
    scaled: VectorArray = vectors_ND / lengths_N1
    return scaled
