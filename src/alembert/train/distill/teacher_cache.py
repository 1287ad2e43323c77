"""A teacher's outputs for every row of a run, kept on the disk: it reads each text once, for all passes and students.

    record.json     what it was made from, and how many rows are done
    tokens.f16      a line of half-precision numbers for each token of each row, row after row
    answers.f16     a line for each output of the teacher's head

The files are memory-mapped, so a run takes what it needs of them and no more memory. The folder is named by
everything that decides about its content: the teacher, the rows, and what is recorded. A run that was stopped while the
teacher was reading goes on after the last block that was finished.
"""

# N tokens, W numbers a token, P answers, C numbers an answer
from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from alembert import artifact
from alembert.artifact.disk import hold_lock, translate_os_errors
from alembert.corpus.jobs import Progress
from alembert.data.windows import Row
from alembert.errors import BadFile
from alembert.nn.batch import Batch
from alembert.tasks.runtime.torch import TaskBatch, collate_rows, map_batches
from alembert.train.distill.teacher import Teacher, TeacherOutputs, TeacherRequest

FORMAT: Final = 1
INDEX_FILE: Final = "record.json"
ROWS_PER_BLOCK: Final = 256
"""Rows after which the outputs are synchronised with the disk."""
HalfArray = npt.NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class RowOffsets:
    """Where the lines of each row begin in a file; the last number is their end."""

    starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counts: Sequence[int]) -> RowOffsets:
        return cls(np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]))

    @property
    def total(self) -> int:
        return int(self.starts[-1])

    def of_row(self, number: int) -> slice:
        return slice(int(self.starts[number]), int(self.starts[number + 1]))


@dataclass(frozen=True, eq=False)
class TeacherCache:
    """Outputs for some rows."""

    request: TeacherRequest
    teacher: Teacher
    tokens: RowOffsets
    answers: RowOffsets
    tokens_NW: HalfArray
    answers_PC: HalfArray

    def lookup(self, numbers: Sequence[int], batch: Batch, *, layers: bool = True) -> TeacherOutputs:
        """Return the outputs for the rows of a batch, by their numbers in its order; `layers`: more than answers."""
        layers = layers and self.request.has_layers
        tokens_NW = np.empty((len(batch.ids_N), self.tokens_NW.shape[1] if layers else 0), np.float16)
        if layers:
            for number, start, length in zip(numbers, batch.starts_B.tolist(), batch.lengths, strict=True):
                tokens_NW[start : start + length] = self.tokens_NW[self.tokens.of_row(number)]
        answers = None
        if self.request.answers:
            lines = [self.answers_PC[self.answers.of_row(number)] for number in numbers]
            answers = torch.from_numpy(np.concatenate(lines))
        return TeacherOutputs(self.request, self.teacher.config, torch.from_numpy(tokens_NW), answers)


def estimate_bytes(rows: Sequence[Row], teacher: Teacher, request: TeacherRequest) -> int:
    """Estimate what a record takes; answers are counted with the columns of the head."""
    tokens = sum(row.length for row in rows) * request.width(teacher.config)
    outputs = teacher.model.spec(teacher.head).outputs or 1 if request.answers and teacher.head else 0
    return 2 * (tokens + outputs * sum(count_answers(rows, teacher, request)))


def fits_on_disk(needed: int, folder: Path, gigabytes: float) -> bool:
    """Return whether so many bytes are within the limit, and within half of the free disk."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return needed <= min(gigabytes * 1e9, shutil.disk_usage(there).free / 2)


def hash_contents(rows: Sequence[Row], pieces: npt.NDArray[np.int64], teacher: Path, about: dict[str, Any]) -> str:
    """Name a record by everything that decides about its content."""
    digest = hashlib.sha256()
    digest.update(artifact.hash_config({"format": FORMAT, **about}).encode())
    digest.update(artifact.hash_input(teacher).encode())
    digest.update(pieces.tobytes())
    for row in rows:
        features = None if row.features is None else row.features.rows_TF
        for part in (row.ids, row.positions, row.segments, *(() if features is None else (features,))):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        digest.update(f"{row.length} {len(row.positions)} {row.prefix};".encode())
    return digest.hexdigest()[:16]


@dataclass
class TeacherCacheWriter:
    """Lets a teacher read rows, and keeps what it says in a folder."""

    folder: Path
    rows: Sequence[Row]
    teacher: Teacher
    request: TeacherRequest
    on_progress: Callable[[Progress], None] = lambda _: None

    @property
    def is_done(self) -> bool:
        """Whether the teacher has read all rows."""
        return self._read_progress()[0] == len(self.rows)

    def write(self) -> TeacherCache:
        """Make the record, go on with it, or find it made; while one process makes it, another is refused."""
        with translate_os_errors(f"Keeping what the teacher says in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self.is_done:
                with hold_lock(self.folder.with_suffix(".lock"), str(self.folder)):
                    self._go_on()
            done, columns = self._read_progress()
        self._check(done, columns or 0)
        tokens, answers = (
            np.memmap(path, np.float16, "r", shape=shape) if shape[0] * shape[1] else np.empty(shape, np.float16)
            for path, shape in self._shapes(columns or 0).items()
        )
        return TeacherCache(self.request, self.teacher, self._tokens, self._answers, tokens, answers)

    def _go_on(self) -> None:
        """Let the teacher read the rows that are left."""
        done, columns = self._read_progress()
        if done:
            self._check(done, columns or 0)
        for block in range(done, len(self.rows), ROWS_PER_BLOCK):
            numbers = range(block, min(block + ROWS_PER_BLOCK, len(self.rows)))
            columns = self._append(numbers, columns)
            self._note(numbers.stop, columns)

    def __post_init__(self) -> None:
        self._tokens = RowOffsets.of([row.length for row in self.rows])
        self._answers = RowOffsets.of(count_answers(self.rows, self.teacher, self.request))

    def _shapes(self, columns: int) -> dict[Path, tuple[int, int]]:
        width = self.request.width(self.teacher.config)
        return {
            self.folder / "tokens.f16": (self._tokens.total, width),
            self.folder / "answers.f16": (self._answers.total, columns),
        }

    def _read_progress(self) -> tuple[int, int | None]:
        """Read how many rows are done, and how wide answers are."""
        path = self.folder / INDEX_FILE
        if not path.exists():
            return 0, None
        try:
            facts = json.loads(path.read_bytes())
            done, columns = int(facts["done"]), int(facts["columns"])
        except (ValueError, KeyError, TypeError):
            raise BadFile(self._unreadable(f"{INDEX_FILE} is no table of numbers")) from None
        if facts.get("format") != FORMAT or facts.get("rows") != len(self.rows):
            raise BadFile(self._unreadable(f"{INDEX_FILE} is of other rows or of another version"))
        return done, columns

    def _check(self, done: int, columns: int) -> None:
        """Refuse files that are shorter than they should be; a stopped run may have left more."""
        for (path, (_, width)), lines in zip(self._shapes(columns).items(), (self._tokens, self._answers), strict=True):
            expected = 2 * width * int(lines.starts[done])
            size = path.stat().st_size if path.exists() else 0
            if size < expected or (done == len(self.rows) and size > expected):
                raise BadFile(self._unreadable(f"{path.name} has {size:,} bytes instead of {expected:,}"))

    def _unreadable(self, why: str) -> str:
        return (
            f"The teacher's outputs cannot be read from {self.folder}: {why}. Delete that folder; the same command asks the "
            "teacher again."
        )

    def _note(self, done: int, columns: int | None) -> None:
        counts = {"rows": len(self.rows), "done": done, "columns": columns or 0}
        facts = {"format": FORMAT, **counts, "wanted": asdict(self.request)}
        artifact.atomic_write(self.folder / INDEX_FILE, (json.dumps(facts, indent=2) + "\n").encode())
        self.on_progress(Progress("asking the teacher", done, len(self.rows)))

    def _append(self, numbers: range, columns: int | None) -> int:
        """Let the teacher read a block of rows, and append its outputs to the files; return the width of its predictions."""
        first, last = self._tokens.of_row(numbers[0]), self._tokens.of_row(numbers[-1])
        tokens = np.empty((last.stop - first.start, self.request.width(self.teacher.config)), np.float16)
        answers: dict[int, HalfArray] = {}
        for chosen, target, outputs in self._read(numbers):
            states = outputs.tokens_NW.cpu().numpy()
            for number, start in zip(chosen, target.batch.starts_B.tolist(), strict=True):
                lines = self._tokens.of_row(number)
                tokens[lines.start - first.start : lines.stop - first.start] = states[
                    start : start + self.rows[number].length
                ]
            answers |= zip(chosen, self._by_row(chosen, outputs), strict=True)
        blocks = [answers[number] for number in numbers]
        columns = blocks[0].shape[1] if columns is None else columns
        done = {path: shape[1] for path, shape in self._shapes(columns).items()}
        starts = (first.start, self._answers.of_row(numbers[0]).start)
        for (path, width), start, block in zip(done.items(), starts, (tokens, np.concatenate(blocks)), strict=True):
            _write_block(path, 2 * width * start, block)
        return columns

    def _by_row(self, numbers: Sequence[int], outputs: TeacherOutputs) -> list[HalfArray]:
        if outputs.answers_PC is None:
            return [np.empty((0, 0), np.float16)] * len(numbers)
        lines = [self._answers.of_row(number) for number in numbers]
        ends = np.cumsum([line.stop - line.start for line in lines])
        return np.split(outputs.answers_PC.cpu().numpy(), ends[:-1])

    def _read(self, numbers: range) -> Iterator[tuple[list[int], TaskBatch, TeacherOutputs]]:
        device = next(self.teacher.model.parameters()).device

        def compute(places: list[int]) -> tuple[list[int], TaskBatch, TeacherOutputs]:
            chosen = [numbers[index] for index in places]
            target = collate_rows([self.rows[number] for number in chosen], chosen).to(device)
            return chosen, target, self.teacher.forward(target.batch, self.request, target)

        yield from map_batches(compute, [self.rows[number].length for number in numbers], device)


def count_answers(rows: Sequence[Row], teacher: Teacher, request: TeacherRequest) -> list[int]:
    """Count the lines that the teacher's head gives for each row."""
    if not request.answers or teacher.head is None:
        return [0] * len(rows)
    per_token = teacher.model.spec(teacher.head).per_token
    return [len(row.positions) if per_token else 1 for row in rows]


def _write_block(path: Path, offset: int, block: HalfArray) -> None:
    """Write a block at its place; what a stopped run left behind it goes."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(block.tobytes())
        file.flush()
        os.fsync(file.fileno())  # before the note that it is done
