"""`convert`: bring a checkpoint with old `.bin` weights into today's form, once and explicitly.

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
from alembert.files.weights import load_pickled


@dataclass(frozen=True)
class _InMemory:
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
    """Read `pytorch_model.bin` (or its shards) and `config.json` from a folder and write a Checkpoint."""
    source = Path(source)
    if not source.is_dir():
        raise BadFile(f"There is no folder {source}; expected one with config.json and pytorch_model.bin.")
    files = sorted(source.glob("pytorch_model*.bin"))
    if not files:
        raise BadFile(f"{source} has no pytorch_model.bin; there is nothing to convert.")
    tensors: dict[str, Tensor] = {}
    for path in files:
        tensors |= load_pickled(path)
    checkpoint = assemble(
        source, _InMemory(tensors), family=family, architecture=architecture, dtype="float32"
    )
    checkpoint.save(out, overwrite=overwrite)
    return checkpoint
