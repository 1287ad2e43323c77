"""The Vectors artefact: one vector for each document or sentence, and where it comes from.

    embed.json       the model, its pooling, the unit, the numeric type
    vectors.npy      (N, D) float32, float16 or int8
    copy.npy         (N, D) int8, beside full vectors if it was asked for
    rows.npy         (N,)   for each row: the byte of units.jsonl at which its unit begins, and see `ROW_DTYPE`
    units.jsonl      a line a row: id, source, start, end, text; offsets count characters of the document's text
    set-aside.jsonl  what could not be used: file, position, id, reason

In goes a folder that `embed.encode` has written; out come arrays that the system maps into memory, so that an index of
any size opens at once, and a unit by its row number without reading the others. The whole text of a unit is kept: a
result can be shown wherever the index is taken, and costs its text once more on the disk.

float32 keeps a vector as it is, float16 takes half the room, int8 a quarter: whole numbers from -127 to 127 with one
scale a row. An int8 copy may also stand beside the full vectors, to be looked through first; with each row goes the
length of what the copy lacks, so that nobody has to guess how wrong a score from the copy can be.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from alembert import artifact
from alembert.artifact.disk import parse_json, to_json_bytes
from alembert.errors import BadFile
from alembert.infer.stream_job import json_line

# N vectors, D width


VectorArray = npt.NDArray[np.float32]
StoredArray = npt.NDArray[Any]

VECTOR_DTYPES: Final = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
ROW_DTYPE: Final = np.dtype([("start", "<i8"), ("norm", "<f4"), ("scale", "<f4"), ("error", "<f4")])
"""What is known of a row: the byte at which its unit begins, the length of its vector as stored, the scale of its int8
numbers, and the length of the difference between the vector and its int8 copy."""
_INT8_MAX: Final = 127


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Vectors as they go to the disk; `rows` has no starts yet, `copy` is the int8 copy if one was asked for."""

    matrix: StoredArray
    rows: StoredArray
    copy: StoredArray | None = None


def to_stored(vectors_ND: VectorArray, dtype: str, *, copy: bool = False) -> StoredVectors:
    """Turn vectors into what the disk gets."""
    rows = np.zeros(len(vectors_ND), ROW_DTYPE)
    matrix: StoredArray = vectors_ND
    if dtype == "int8":
        matrix, rows["scale"] = quantise_int8(vectors_ND)
    else:
        with np.errstate(over="ignore"):  # what float16 cannot hold is refused below, in words
            matrix = vectors_ND.astype(VECTOR_DTYPES[dtype])
    _check_finite(vectors_ND, matrix, dtype)
    full = dequantise(matrix, rows["scale"] if dtype == "int8" else None)
    rows["norm"] = np.sqrt((full * full).sum(1))
    if not copy:
        return StoredVectors(matrix, rows)
    short, rows["scale"] = quantise_int8(full.astype(np.float32))
    rows["error"] = _round_up(np.sqrt(((full - dequantise(short, rows["scale"])) ** 2).sum(1)))
    return StoredVectors(matrix, rows, short)


def quantise_int8(vectors_ND: VectorArray) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round vectors to int8; give also the scale of each row, 0 for a vector of zeros.

    >>> quantise_int8(np.array([[1.27, -0.635, 0.0]], np.float32))[0].tolist()
    [[127, -64, 0]]
    """
    scales_N = (np.abs(vectors_ND).max(1, initial=0) / np.float32(_INT8_MAX)).astype(np.float32)
    steps_ND = vectors_ND / np.where(scales_N > 0, scales_N, np.float32(1))[:, None]
    return np.rint(steps_ND).clip(-_INT8_MAX, _INT8_MAX).astype(np.int8), scales_N


def dequantise(matrix: StoredArray, scales_N: StoredArray | None) -> npt.NDArray[np.float64]:
    """Return stored numbers as float64, in which a float32 times a scale is exact."""
    full = matrix.astype(np.float64)
    return full if scales_N is None else full * scales_N.astype(np.float64)[:, None]


def _round_up(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Round up to float32: a bound must not become smaller."""
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))


def _check_finite(vectors_ND: VectorArray, matrix: StoredArray, dtype: str) -> None:
    if not np.isfinite(vectors_ND).all():
        raise BadFile(
            "The model gives vectors with numbers that are infinite or none at all: its weights are damaged. "
            "Restore the checkpoint, or train it again."
        )
    if not np.isfinite(matrix).all():
        raise BadFile(f"Some numbers of the vectors are too large for {dtype}. Use --dtype float32.")


KIND: Final = "Vectors"
FORMAT: Final = 1
CONFIG_FILE: Final = "embed.json"
VECTORS_FILE: Final = "vectors.npy"
INT8_COPY_FILE: Final = "copy.npy"
ROWS_FILE: Final = "rows.npy"
UNITS_FILE: Final = "units.jsonl"


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A document or a sentence: `document[start:end]` is its text."""

    id: str
    """The document's."""
    source: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """What `embed.json` says."""

    format: int = FORMAT
    model: str
    """Where the model was."""
    fingerprint: str
    """Stands for the content of the model's files."""
    pooling: dict[str, Any]
    dimension: int
    length: int
    """Tokens that are read at once; longer texts have windows."""
    unit: str
    dtype: str
    copy: bool

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return to_json_bytes(asdict(self))


@dataclass(frozen=True, eq=False)
class VectorIndex:
    """Complete vectors on the disk; the arrays are read-only views of the files."""

    folder: Path
    manifest: artifact.Manifest
    facts: IndexConfig
    matrix: StoredArray
    rows: StoredArray
    copy: StoredArray | None

    @classmethod
    def open(cls, folder: str | Path) -> VectorIndex:
        """Open vectors; the files must be there, with sizes that fit each other."""
        manifest, folder = artifact.open_artifact(folder, KIND), Path(folder)
        try:
            facts = IndexConfig(**parse_json((folder / CONFIG_FILE).read_bytes()))
            matrix, rows = _open_array(folder / VECTORS_FILE), _open_array(folder / ROWS_FILE)
            copy = _open_array(folder / INT8_COPY_FILE) if facts.copy else None
            sound = _is_consistent(facts, matrix, rows, copy)
        except (KeyError, TypeError, ValueError, OSError):
            sound = False
        if not sound:
            raise BadFile(
                f"{folder} holds no sound vectors: its files do not fit each other, or a newer alembert wrote them. "
                "Delete the folder, and run `alembert embed encode` again."
            )
        return cls(folder, manifest, facts, matrix, rows, copy)

    def __len__(self) -> int:
        return len(self.rows)

    def read_vectors(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return some vectors, as they are stored, in float64."""
        return dequantise(self.matrix[rows], self.rows["scale"][rows] if self.facts.dtype == "int8" else None)

    def read_unit(self, row: int) -> TextUnit:
        """Read what a row is of."""
        with (self.folder / UNITS_FILE).open("rb") as file:
            file.seek(int(self.rows["start"][row]))
            return TextUnit(**json.loads(file.readline()))


def unit_line(unit: TextUnit) -> bytes:
    """Write a unit as a line."""
    record = {"id": unit.id, "source": unit.source, "start": unit.start, "end": unit.end, "text": unit.text}
    return json_line(record)


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Write the head of a `.npy` file, which is equally long for any number of rows.

    >>> len(npy_header(np.dtype("<f4"), (0, 384))) == len(npy_header(np.dtype("<f4"), (10**9, 384)))
    True
    """
    head = io.BytesIO()
    facts = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(head, facts)
    return head.getvalue()


def _open_array(path: Path) -> StoredArray:
    mapped: StoredArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)  # as fast to cut as an ordinary array


def _is_consistent(facts: IndexConfig, matrix: StoredArray, rows: StoredArray, copy: StoredArray | None) -> bool:
    shape = (len(rows), facts.dimension)
    fits = matrix.shape == shape and matrix.dtype == np.dtype(VECTOR_DTYPES[facts.dtype]) and rows.dtype == ROW_DTYPE
    copied = copy is None or (copy.shape == shape and copy.dtype == np.int8)
    return facts.format == FORMAT and fits and copied
