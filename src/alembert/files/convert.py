"""`convert`: rewrite a checkpoint with old `.bin` weights as safetensors, once and explicitly.

A `.bin` file is a pickle. It is read with torch's weights-only loader and in no other way, so nothing in it can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from alembert.errors import BadFile
from alembert.files.checkpoint import Checkpoint, assemble
from alembert.files.weights import SafetensorsWeights, load_pickled
from alembert.hub import PICKLE_PATTERN, model_folder


@dataclass(frozen=True)
class _InMemoryWeights:
    tensors: Mapping[str, Tensor]

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def load(self, name: str) -> Tensor:
        return self.tensors[name]


def convert(
    source: str | Path,
    out: str | Path,
    *,
    family: str | None = None,
    architecture: str | None = None,
    overwrite: bool = False,
) -> Checkpoint:
    """Read `config.json` and the weights of a folder or a hub model, and write a Checkpoint.

    Weights are `pytorch_model.bin` or its shards; without them safetensors, whose `config.json` says too little.
    """
    folder = model_folder(source, pickles=True)
    if not folder.is_dir():
        raise BadFile(f"There is no folder {folder}; expected one with config.json and pytorch_model.bin.")
    weights = _open_pickled(folder) or SafetensorsWeights.find(folder)
    if weights is None:
        raise BadFile(f"{folder} has no pytorch_model.bin; there is nothing to convert.")
    checkpoint = assemble(folder, weights, family=family, architecture=architecture, dtype="float32")
    checkpoint.save(out, overwrite=overwrite)
    return checkpoint


def _open_pickled(folder: Path) -> _InMemoryWeights | None:
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob(PICKLE_PATTERN)):
        tensors |= load_pickled(path)
    return _InMemoryWeights(tensors) if tensors else None
