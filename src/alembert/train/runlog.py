"""What a run tells while it goes: rows for `log.jsonl`, scalars for TensorBoard, and progress for whoever watches.

In: numbers by name. Out: one JSON object a line, on the disk as soon as it is written, so that a killed run leaves all
but its last line. A saved state keeps the log's `position`; a run that continues from it cuts the log back to there,
and no step is in it twice. Numbers only: text of users never comes here.

The file is opened anew for each row: a few microseconds beside a step, and there is nothing to close or to lose.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.artifact.disk import sync_folder
from alembert.errors import BadFile

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

LOG_FILE: Final = "log.jsonl"
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a run has come, for a progress line."""

    share: float
    """From 0 to 1."""
    loss: float | None
    tokens_per_second: float
    peak_share: float | None
    """Part of the machine's measured matmul peak; none: not measured."""
    seconds_left: float
    step: int
    phase: str = "pre-training"


class RunLog:
    """The log of a run, in a folder that is made with the first row."""

    def __init__(self, folder: Path, *, tensorboard: bool = True) -> None:
        self._folder = folder
        self._path = folder / LOG_FILE
        self._tensorboard = tensorboard
        self._writer: SummaryWriter | None = None
        self._end: int | None = None
        """Where the next row goes; none: not looked for yet."""

    def write(self, kind: str, **values: Any) -> None:
        """Append a row of kind `step`, `held_out` or `event`. Floats keep six digits; what is not finite becomes null."""
        row = {"kind": kind, **_round_floats(values)}
        line = json.dumps(row, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        if self._end is None:  # a killed run may have left half a row
            self._cut(_end_of_rows(self._path))
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(line)
        self._end = self.position + len(line)
        if kind != "event" and self._tensorboard:
            self._write_scalars(kind, row)

    @property
    def position(self) -> int:
        """Bytes of whole rows; `sync` makes them durable."""
        return _end_of_rows(self._path) if self._end is None else self._end

    def sync(self) -> None:
        """Bring the rows to the disk, before a state that counts on them."""
        if self._writer is not None:
            self._writer.flush()
        if self._path.exists():
            with self._path.open("ab") as file:
                os.fsync(file.fileno())
            sync_folder(self._folder)

    def rewind(self, position: int) -> None:
        """Forget what was written after a state was saved at `position`."""
        self.close()
        size = _end_of_rows(self._path)
        if size < position:
            warnings.warn(
                f"{self._path} has {size:,} bytes, and the saved state knew {position:,}: rows are lost, and the "
                "curves will have a gap. The training itself is not touched.",
                stacklevel=2,
            )
        self._cut(min(size, position))

    def rows(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Read the rows of one kind, or all; the half of a row at the end is no row."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                row = _parse_row(line, self._path, number)
                if kind is None or row["kind"] == kind:
                    yield row

    def close(self) -> None:
        """Let go of TensorBoard; the next row opens it again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _cut(self, position: int) -> None:
        if self._path.exists():
            os.truncate(self._path, position)
        self._end = position

    def _write_scalars(self, kind: str, row: Mapping[str, Any]) -> None:
        writer = self._open_tensorboard(row["step"])
        if writer is not None:
            for name, value in iterate_scalars(row):
                writer.add_scalar(f"{kind}/{name}", value, row["step"])

    def _open_tensorboard(self, step: int) -> SummaryWriter | None:
        """Open the writer with the first step; what an earlier process wrote from that step on is void."""
        if self._writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                self._tensorboard = False
                return None
            self._writer = SummaryWriter(self._folder / "tensorboard", purge_step=step)
        return self._writer


def _round_floats(value: Any) -> Any:
    """Round every float inside.

    >>> _round_floats({"loss": 2.345678901, "losses": {"masked_lm": float("nan")}, "step": 1234567})
    {'loss': 2.34568, 'losses': {'masked_lm': None}, 'step': 1234567}
    """
    if isinstance(value, Mapping):
        return {name: _round_floats(inner) for name, inner in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def iterate_scalars(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Walk over the numbers of a row, those inside with the way to them.

    >>> dict(iterate_scalars({"kind": "step", "step": 3, "loss": 6.5, "losses": {"masked_lm": 6.5}}))
    {'loss': 6.5, 'losses/masked_lm': 6.5}
    """
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from iterate_scalars(value, f"{above}{name}/")
        elif isinstance(value, int | float) and name != "step":
            yield above + name, value


def _end_of_rows(path: Path) -> int:
    """Return where the last whole row ends."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(len(line) for line in file if line.endswith(b"\n"))


def _parse_row(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or "kind" not in row:
        raise BadFile(
            f"Line {number} of {path} is no row of a run log: a JSON object with a `kind` was expected. "
            "Delete the line, or the file."
        )
    return row
