"""Texts in, one vector each out, made in the way that the model's folder states.

A text of any length is read whole: one that is longer than the model's limit is cut into windows, at sentences where
one begins nearby, and its vector is the mean of theirs, weighted by their tokens, before it is scaled to length 1. What
is not stated is refused: a BERT gives numbers for every pooling, and with the wrong one they are worth little.
"""

# N texts, R windows, D width
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alembert import artifact
from alembert.errors import BadFile, BadSetting
from alembert.hub import model_folder
from alembert.infer.embed_engines import KIND, ExportVectors, TorchVectors, VectorEngine
from alembert.infer.embed_numbers import Vectors
from alembert.infer.engines import open_in_torch
from alembert.tasks.classify.rows import WindowSpec, encode_text
from alembert.tasks.compare.pooling import Pooling, PoolingMode, read_pooling
from alembert.tasks.example import Coverage
from alembert.tasks.runtime.export_files import is_export


@dataclass(frozen=True)
class Origin:
    """Where a model is, and what stands for the content of its files."""

    model: str
    fingerprint: str

    @classmethod
    def of(cls, folder: Path) -> Origin:
        """Look at a model's folder."""
        return cls(str(folder.absolute()), fingerprint(folder))


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors of texts, in their order, and what became of the texts."""

    vectors_ND: Vectors
    coverage: Coverage


@dataclass(frozen=True, eq=False)
class Embedder:
    """A model that makes vectors."""

    engine: VectorEngine
    pooling: Pooling
    origin: Origin
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
        if is_export(folder):
            engine, pooling = _of_export(folder, mode)
        else:
            engine, pooling = _of_checkpoint(folder, mode, device)
        return cls(engine, pooling, Origin.of(folder), _checked_length(length, pooling, engine.longest))

    def embed(self, texts: Sequence[str]) -> Embedded:
        """Give the vector of each text."""
        if not texts:
            return Embedded(np.zeros((0, self.pooling.dimension), np.float32), Coverage())
        tokenizer = self.engine.tokenizer
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False, offsets=False)
        cutting = WindowSpec(tokenizer, self.length, overlap=0)
        encoded = [
            encode_text([text], [np.array(encoding.ids, np.int64)], cutting, None)
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        rows = [row.ids for each in encoded for row in each.rows]
        windows_RD = self.engine.vectors(rows)
        lengths_R = np.array([len(row) for row in rows], np.float32)
        counts_N = np.array([len(each.rows) for each in encoded])
        vectors_ND = _means(windows_RD, lengths_R, counts_N)
        return Embedded(
            _scaled(vectors_ND) if self.pooling.normalise else vectors_ND,
            Coverage.total(each.coverage for each in encoded),
        )


def _of_checkpoint(folder: Path, mode: PoolingMode | None, device: str) -> tuple[VectorEngine, Pooling]:
    engine = open_in_torch(folder, device)
    pooling = chosen_pooling(folder, mode, engine.checkpoint.blueprint.config.hidden_size)
    return TorchVectors.of(engine, pooling), pooling


def _of_export(folder: Path, mode: PoolingMode | None) -> tuple[VectorEngine, Pooling]:
    from alembert.infer.engine_export import ExportEngine

    engine = ExportEngine.open(folder)
    if not any(head.kind == KIND for head in engine.facts.heads.values()):
        raise BadSetting(
            f"{folder} is an Export of a model that was not fine-tuned to give vectors. Use the checkpoint that it was made "
            "of, or export a model that was fine-tuned for the task compare."
        )
    pooling = chosen_pooling(folder, mode, engine.facts.width)
    return ExportVectors.of(engine, pooling), pooling


def chosen_pooling(folder: Path, mode: PoolingMode | None, width: int) -> Pooling:
    """Take the pooling that a folder states; one that does not has to be told, and one that does is not overruled."""
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


def fingerprint(folder: Path) -> str:
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


def _checked_length(length: int | None, pooling: Pooling, longest: int) -> int:
    if length is None:
        return min(longest, pooling.length or longest)
    if not 3 <= length <= longest:
        raise BadSetting(f"The length is {length} tokens; the model reads from 3 (two of them special) to {longest}.")
    return length


def _means(windows_RD: Vectors, weights_R: Vectors, counts_N: npt.NDArray[np.int64]) -> Vectors:
    """Average the windows of each text; a text with one window keeps its vector as it is."""
    starts_N = np.cumsum(counts_N) - counts_N
    vectors_ND: Vectors = windows_RD[starts_N]
    for text in np.flatnonzero(counts_N > 1):
        own = slice(starts_N[text], starts_N[text] + counts_N[text])
        vectors_ND[text] = np.average(windows_RD[own], axis=0, weights=weights_R[own])
    return vectors_ND


def _scaled(vectors_ND: Vectors) -> Vectors:
    lengths_N1 = np.sqrt((vectors_ND * vectors_ND).sum(1, keepdims=True))
    lengths_N1[lengths_N1 == 0] = 1
    scaled: Vectors = vectors_ND / lengths_N1
    return scaled
