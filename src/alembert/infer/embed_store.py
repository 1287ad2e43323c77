"""The Vectors artefact: one vector for each document or sentence, and where it comes from.

    embed.json       the model, its pooling, the unit, the numeric type
    vectors.npy      (N, D) float32, float16 or int8
    copy.npy         (N, D) int8, beside full vectors if it was asked for
    rows.npy         (N,)   for each row: the byte of units.jsonl at which its unit begins, and see `embed_numbers.ROW`
    units.jsonl      a line a row: id, source, start, end, text; offsets count characters of the document's text
    set-aside.jsonl  what could not be used: file, position, id, reason

In goes a folder that `embed.encode` has written; out come arrays that the system maps into memory, so that an index of
any size opens at once, and a unit by its row number without reading the others. The whole text of a unit is kept: a
result can be shown wherever the index is taken, and costs its text once more on the disk.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert import artifact
from alembert.artifact.json_files import parse_json, to_json_bytes
from alembert.errors import BadFile
from alembert.infer.embed_numbers import ROW, TYPES, Numbers, restored
from alembert.infer.ledger import json_line

KIND: Final = "Vectors"
FORMAT: Final = 1
FACTS: Final = "embed.json"
MATRIX: Final = "vectors.npy"
COPY: Final = "copy.npy"
ROWS: Final = "rows.npy"
UNITS: Final = "units.jsonl"
SET_ASIDE: Final = "set-aside.jsonl"


@dataclass(frozen=True, slots=True)
class Unit:
    """A document or a sentence: `document[start:end]` is its text."""

    id: str
    """The document's."""
    source: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Facts:
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
class Index:
    """Complete vectors on the disk; the arrays are read-only views of the files."""

    folder: Path
    manifest: artifact.Manifest
    facts: Facts
    matrix: Numbers
    rows: Numbers
    copy: Numbers | None

    @classmethod
    def open(cls, folder: str | Path) -> Index:
        """Open vectors; the files must be there, with sizes that fit each other."""
        manifest, folder = artifact.open_artifact(folder, KIND), Path(folder)
        try:
            facts = Facts(**parse_json((folder / FACTS).read_bytes()))
            matrix, rows = _mapped(folder / MATRIX), _mapped(folder / ROWS)
            copy = _mapped(folder / COPY) if facts.copy else None
            sound = _is_sound(facts, matrix, rows, copy)
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

    def exact(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Give some vectors, as they are stored, in float64."""
        return restored(self.matrix[rows], self.rows["scale"][rows] if self.facts.dtype == "int8" else None)

    def unit(self, row: int) -> Unit:
        """Read what a row is of."""
        with (self.folder / UNITS).open("rb") as file:
            file.seek(int(self.rows["start"][row]))
            return Unit(**json.loads(file.readline()))


def unit_line(unit: Unit) -> bytes:
    """Write a unit as a line."""
    record = {"id": unit.id, "source": unit.source, "start": unit.start, "end": unit.end, "text": unit.text}
    return json_line(record)


def _mapped(path: Path) -> Numbers:
    mapped: Numbers = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)  # as fast to cut as an ordinary array


def _is_sound(facts: Facts, matrix: Numbers, rows: Numbers, copy: Numbers | None) -> bool:
    shape = (len(rows), facts.dimension)
    fits = matrix.shape == shape and matrix.dtype == np.dtype(TYPES[facts.dtype]) and rows.dtype == ROW
    copied = copy is None or (copy.shape == shape and copy.dtype == np.int8)
    return facts.format == FORMAT and fits and copied
