"""What an Export folder holds beside its task: the graph, what is known of it, and weights that decoding needs.

    model.xml, model.bin     encoder and heads as an OpenVINO graph, or
    model.onnx               the same for ONNX Runtime and other programs
    decoding.npz             what tasks take along of their heads (CRF transitions); only if one needs anything
    task.json                as in a Checkpoint (`files`)
    run/                     hashes of the training data, as in a Checkpoint; only if they were asked for
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

from alembert.artifact import MANIFEST, atomic_write, check_listed, open_artifact
from alembert.artifact.disk import check_text, check_whole_number, refuse_malformed
from alembert.artifact.opening import read_manifest
from alembert.errors import BadFile

EXPORT_KIND: Final = "Export"
DECODING_FILE: Final = "decoding.npz"
ExportPrecision = Literal["int8", "fp32"]
ExportFormat = Literal["openvino", "onnx"]
GRAPH_FILES: Final[dict[ExportFormat, str]] = {"openvino": "model.xml", "onnx": "model.onnx"}
"""Format -> the file with the graph."""
GRAPH_WEIGHT_FILES: Final[dict[ExportFormat, str]] = {"openvino": "model.bin", "onnx": "model.onnx"}
"""Format -> the file with its numbers."""

RUNTIME_PACKAGES: Final[dict[ExportFormat, str]] = {"openvino": "openvino", "onnx": "onnxruntime"}
"""Format -> the package that runs it."""

_CHECKED_FILES: Final = ("task.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json", DECODING_FILE)
"""Files beside the graph that decide about answers."""

HEAD_IS_PER_TOKEN: Final = {
    "classify": False,
    "choice": False,
    "next_sentence": False,
    "embed": False,
    "tag": True,
    "crf": True,
    "pointer": True,
    "relation": True,
    "span": True,
    "boundary": True,
    "replaced": True,
}
"""Kinds of heads that a graph may have -> whether they answer for tokens, as `alembert.nn.heads` has it."""

DecodingWeights = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class HeadMetadata:
    """What is known of a head, which is one output of the graph."""

    kind: str
    per_token: bool
    """Whether the head answers for tokens; otherwise it does once a document."""
    labels: tuple[str, ...]

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> HeadMetadata:
        """Make facts again from what was saved; raise KeyError, TypeError or ValueError for what is none."""
        kind, per_token, labels = table["kind"], table["per_token"], table["labels"]
        if per_token is not HEAD_IS_PER_TOKEN[kind] or not isinstance(labels, list):
            raise ValueError("a head of a kind that is not known, or that answers otherwise than its kind does")
        return cls(kind=kind, per_token=per_token, labels=tuple(map(check_text, labels)))

    def fits(self, columns: int, width: int) -> bool:
        """Whether a model of this width may have so many numbers for what the head answers for."""
        count = len(self.labels)
        if self.kind == "pointer":  # beside the scores of the types a query and a key, of one length
            return columns > 2 * count and columns % 2 == 0
        return columns in {
            "relation": (2 * count,),
            "choice": (1,),
            "span": (2,),
            "boundary": (2,),
            "replaced": (1,),
            "next_sentence": (2,),
            "embed": (width, 2 * width),
        }.get(self.kind, (count or 1,))


@dataclass(frozen=True, kw_only=True)
class ExportMetadata:
    """What an engine must know of a graph before it opens it."""

    format: ExportFormat
    precision: ExportPrecision
    heads: Mapping[str, HeadMetadata]
    """Name of the output of the graph -> the head that gives it: of several tasks each is called as its task."""
    longest: int
    """Tokens that the model reads at once."""
    parameters: int
    layers: int
    width: int
    multiplications: int

    def to_table(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ExportMetadata:
        """Make facts again from what was saved; raise KeyError, TypeError or ValueError for what is none."""
        if table["precision"] not in ("int8", "fp32") or table["format"] not in GRAPH_FILES or not table["heads"]:
            raise ValueError("no precision or format that is known, or no head")
        return cls(
            format=table["format"],
            precision=table["precision"],
            heads={name: HeadMetadata.from_table(each) for name, each in table["heads"].items()},
            **{
                name: check_whole_number(table[name], smallest=1)
                for name in ("longest", "parameters", "layers", "width", "multiplications")
            },
        )


def is_export(folder: Path) -> bool:
    """Whether the manifest of a folder is that of an Export; a folder without one that can be read is none."""
    path = folder / MANIFEST
    try:
        return path.is_file() and read_manifest(path, str(path)).kind == EXPORT_KIND
    except BadFile:  # other programs have files of this name too
        return False


def read_export_metadata(folder: Path) -> ExportMetadata:
    """Read what the manifest of an Export says of its graph."""
    manifest = open_artifact(folder, EXPORT_KIND)
    with refuse_malformed(
        f"{folder / MANIFEST} does not describe an Export that this version of alembert can run. Export the "
        "checkpoint again."
    ):
        facts = ExportMetadata.from_table(manifest.config["graph"])
    present = [name for name in _CHECKED_FILES if (folder / name).is_file()]
    check_listed(folder, manifest, (GRAPH_FILES[facts.format], GRAPH_WEIGHT_FILES[facts.format], *present))
    return facts


def write_decoding_weights(folder: Path, weights: Mapping[str, DecodingWeights]) -> None:
    """Write the weights that decoding needs, by head and name; none, no file."""
    named = {f"{head}.{name}": each for head, own in weights.items() for name, each in own.items()}
    if not named:
        return
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, **named)
    atomic_write(folder / DECODING_FILE, stream.getvalue())


def read_decoding_weights(folder: Path, head: str, names: tuple[str, ...]) -> dict[str, npt.NDArray[np.float32]]:
    """Read the weights of a head that decoding needs, by their names."""
    if not names:
        return {}
    try:
        with np.load(folder / DECODING_FILE, allow_pickle=False) as stored:
            return {name: np.asarray(stored[f"{head}.{name}"], np.float32) for name in names}
    except (OSError, KeyError, ValueError):
        raise BadFile(f"{folder / DECODING_FILE} is missing or damaged. Export the checkpoint again.") from None
