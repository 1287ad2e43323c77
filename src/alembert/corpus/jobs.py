"""What the workers of a build do: stage the chunks of the inputs, then write the final parts.

`ChunkClaims` say which chunks of an input a worker makes. For the processes of this machine that is a `ChunkScheduler` in shared memory:
which chunks are claimed, and how far each input is read. Workers come to the chunks of an input in order, so one number
for each input is enough to share them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from alembert import artifact
from alembert.corpus.chunks import ChunkProcessor
from alembert.corpus.decide import KEPT, Decisions
from alembert.corpus.inputs import InputFile, InputReader, count_bytes, try_detect_format
from alembert.corpus.readers.source import readable_name
from alembert.corpus.settings import BuildSettings
from alembert.corpus.staging import ChunkStore, split_into_chunks
from alembert.corpus.store import to_bytes
from alembert.workers import processes


@dataclass(frozen=True)
class Progress:
    """How far work has come; `done` and `total` count bytes of input or parts, the others what this run has done."""

    phase: str
    done: int
    total: int
    characters: int = 0
    documents: int = 0
    tokens: int = 0


def make_source_names(files: Sequence[Path], called: Callable[[Path], str] = str) -> list[str]:
    """Name each input by its file name, or by what it is called as a whole where several share a name."""
    names = Counter(path.name for path in dict.fromkeys(files))
    return [readable_name(path.name if names[path.name] == 1 else called(path)) for path in files]


class ChunkClaims(Protocol):
    """Which chunks of an input to make, and who hears of it."""

    def claim(self, file: int, chunk: int) -> bool:
        """Take a chunk, unless another worker has it."""

    def mark_done(self, file: int) -> None:
        """Hear that an input was read to its end."""

    def is_done(self, file: int) -> bool:
        """Whether an input was read to its end, so that nobody needs to go on with it."""

    def report_progress(self, file: int, place: int, characters: int) -> None:
        """Hear how far an input is read, and how much of it was in a chunk."""


class ChunkScheduler:
    """What the workers share: for each input, how many chunks are claimed, how far it is read, whether it is done."""

    def __init__(self, files: Sequence[InputFile], done: Sequence[bool]) -> None:
        context = processes.get_context()
        self.files = list(files)
        self.sizes = [count_bytes(file.path) for file in files]
        self._lock = context.Lock()
        self._claimed = context.RawArray("q", len(files))
        self._taken = context.RawArray("b", [bool(each) for each in done])
        self._closed = context.RawArray("b", [bool(each) for each in done])
        self._bytes = context.RawArray("q", [size * ended for size, ended in zip(self.sizes, done, strict=True)])
        self._characters = context.RawValue("q", 0)

    def inputs(self) -> Iterator[int]:
        """Give the inputs to work on: those nobody has begun, the largest first, then any that is not done."""
        while (file := self._next()) is not None:
            yield file

    def _next(self) -> int | None:
        with self._lock:
            free = [file for file in range(len(self.files)) if not self._taken[file]]
            left = free or [file for file in range(len(self.files)) if not self._closed[file]]
            file = max(left, key=lambda each: self.sizes[each] - self._bytes[each], default=None)
            if file is not None:
                self._taken[file] = 1
            return file

    def claim(self, file: int, chunk: int) -> bool:
        """Take a chunk, unless another worker has it. Workers come to the chunks of an input in order."""
        with self._lock:
            if self._claimed[file] != chunk:
                return False
            self._claimed[file] += 1
            return True

    def mark_done(self, file: int) -> None:
        """Say that an input was read to its end, so that nobody needs to look at it again."""
        self._closed[file] = 1
        self._bytes[file] = self.sizes[file]

    def is_done(self, file: int) -> bool:
        return bool(self._closed[file])

    def report_progress(self, file: int, place: int, characters: int) -> None:
        with self._lock:
            self._bytes[file] = max(self._bytes[file], place)
            self._characters.value += characters

    def progress(self) -> Progress:
        return Progress("building", sum(self._bytes), sum(self.sizes), self._characters.value)


def stage_chunks(board: ChunkScheduler, stage: ChunkStore, refinery: ChunkProcessor, settings: BuildSettings) -> None:
    """Stage chunks until every input is done."""
    for file in board.inputs():
        stage_input(BuildInput(file, board.files[file]), board, stage, refinery, settings)


@dataclass(frozen=True)
class BuildInput:
    """An input of a build and its number."""

    number: int
    file: InputFile


def stage_input(
    source: BuildInput, claims: ChunkClaims, stage: ChunkStore, refinery: ChunkProcessor, settings: BuildSettings
) -> None:
    """Read an input and stage each chunk that can be claimed; stop as soon as it is done."""
    format, number = settings.format or try_detect_format(source.file.path), 0  # noqa: A001
    file = source.number
    with closing(InputReader(source.file)) as stream:
        for items in split_into_chunks(stream.items(settings.read, format), settings):
            if claims.is_done(file):
                return
            if claims.claim(file, number) and not stage.has(file, number):
                chunk = refinery.process(items, source.file.name, format)
                stage.write_chunk(file, number, chunk)
                claims.report_progress(file, stream.get_position(), chunk.counts["characters read"])
            number += 1
    stage.mark_complete(file, number)
    claims.mark_done(file)


@dataclass(frozen=True)
class CorpusPart:
    """A final part to write: where, from which staged documents, and which of them stay."""

    path: Path
    staged: Path
    fates: Decisions


def write_parts(tasks: Sequence[CorpusPart], counter: Any) -> None:
    """Write parts, each taken by its number from a shared counter, until none is left."""
    while True:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        if number >= len(tasks):
            return
        write_corpus_part(tasks[number])


def write_corpus_part(part: CorpusPart) -> None:
    """Write a part, unless it is there already."""
    if part.path.exists():
        return
    stay = part.fates == KEPT
    if stay.all():
        part.staged.replace(part.path)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(part.staged, use_threads=False).filter(pa.array(stay))
    artifact.atomic_write(part.path, to_bytes(table.combine_chunks()))
