"""What an Export folder holds beside its task: the graph, what is known of it, and weights that decoding needs.

    model.xml, model.bin     encoder and head as an OpenVINO graph
    decoding.npz             what the task takes along of its head (CRF transitions); only if it needs anything
    task.json, run/          as in a Checkpoint (`files`)
    tokenizer files, README.md, manifest.json

The facts are the configuration in the manifest. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.artifact import MANIFEST, atomic_write, open_artifact
from alembert.artifact.manifest import read_manifest
from alembert.errors import BadFile

KIND: Final = "Export"
GRAPH: Final = "model.xml"
GRAPH_WEIGHTS: Final = "model.bin"
DECODING: Final = "decoding.npz"
Precision = Literal["int8", "fp32"]

Weights = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class ExportFacts:
    """What an engine must know of a graph before it opens it."""

    precision: Precision
    head: str
    """Kind of the head."""
    per_token: bool
    """Whether the head answers for tokens; otherwise it does once a document."""
    labels: tuple[str, ...]
    longest: int
    """Tokens that the model reads at once."""
    parameters: int
    layers: int
    width: int
    multiplications: int

    def to_table(self) -> dict[str, Any]:
        """Give plain values."""
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ExportFacts:
        """Make facts again from what was saved; raise KeyError, TypeError or ValueError for what is none."""
        if table["precision"] not in ("int8", "fp32") or not isinstance(table["per_token"], bool):
            raise ValueError("no precision that is known")
        return cls(
            precision=table["precision"],
            head=str(table["head"]),
            per_token=table["per_token"],
            labels=tuple(map(str, table["labels"])),
            **{
                name: int(table[name])
                for name in ("longest", "parameters", "layers", "width", "multiplications")
            },
        )


def is_export(folder: Path) -> bool:
    """Tell an Export from every other folder by its manifest; what has none that can be read is no Export."""
    path = folder / MANIFEST
    try:
        return path.is_file() and read_manifest(path, str(path)).kind == KIND
    except BadFile:  # other programs have files of this name too
        return False


def read_facts(folder: Path) -> ExportFacts:
    """Read what the manifest of an Export says of its graph."""
    manifest = open_artifact(folder, KIND)
    try:
        return ExportFacts.from_table(manifest.config["graph"])
    except (KeyError, TypeError, ValueError):
        raise BadFile(
            f"{folder / MANIFEST} does not describe an Export that this version of alembert can run. Export the "
            "checkpoint again."
        ) from None


def write_decoding(folder: Path, weights: Weights) -> None:
    """Write the weights that decoding needs; none, no file."""
    if not weights:
        return
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, **weights)
    atomic_write(folder / DECODING, stream.getvalue())


def read_decoding(folder: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[np.float32]]:
    """Read the weights that decoding needs, by their names."""
    if not names:
        return {}
    try:
        with np.load(folder / DECODING, allow_pickle=False) as stored:
            return {name: np.asarray(stored[name], np.float32) for name in names}
    except (OSError, KeyError, ValueError):
        raise BadFile(f"{folder / DECODING} is missing or damaged. Export the checkpoint again.") from None
