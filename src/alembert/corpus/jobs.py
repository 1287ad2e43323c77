"""The jobs of a build's workers: stage the chunks of the inputs, then write the final parts.

`ChunkClaims` decide which chunks of an input a worker processes. For processes of this machine that is a
`ChunkScheduler` in shared memory. Workers reach the chunks of an input in order, so one number per input is enough to
distribute them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from alembert import artifact
from alembert.corpus.chunks import ChunkProcessor, ChunkStore, split_into_chunks
from alembert.corpus.clean import BuildSettings
from alembert.corpus.decide import KEPT, Decisions
from alembert.corpus.inputs import InputFile, InputReader, count_bytes, try_detect_format
from alembert.corpus.readers.source import readable_name
from alembert.corpus.store import to_bytes
from alembert.workers import pool


@dataclass(frozen=True)
class Progress:
    """Progress of a phase: `done` and `total` count input bytes or parts, the other counts are those of this run."""

    phase: str
    done: int
    total: int
    characters: int = 0
    documents: int = 0
    tokens: int = 0


def make_source_names(files: Sequence[Path], get_display_name: Callable[[Path], str] = str) -> list[str]:
    """Name each input by its file name, or by its display name where several inputs share a file name."""
    names = Counter(path.name for path in dict.fromkeys(files))
    return [readable_name(path.name if names[path.name] == 1 else get_display_name(path)) for path in files]


class ChunkClaims(Protocol):
    """Distributes the chunks of the inputs among workers."""

    def claim(self, file: int, chunk: int) -> bool:
        """Claim a chunk; False if it is another worker's."""

    def mark_done(self, file: int) -> None:
        """Record that an input was read to its end."""

    def is_done(self, file: int) -> bool:
        """Whether an input was read to its end, so that no worker needs to read on."""

    def report_progress(self, file: int, position: int, characters: int) -> None:
        """Record how far an input was read, and the characters of a chunk."""


class ChunkScheduler:
    """Shared memory with, for each input, how many chunks are claimed, how far it was read and whether it is done."""

    def __init__(self, files: Sequence[InputFile], done: Sequence[bool]) -> None:
        context = pool.get_context()
        self.files = list(files)
        self.sizes = [count_bytes(file.path) for file in files]
        self._lock = context.Lock()
        self._claimed = context.RawArray("q", len(files))
        self._begun = context.RawArray("b", [bool(is_done) for is_done in done])
        self._done = context.RawArray("b", [bool(is_done) for is_done in done])
        self._bytes = context.RawArray("q", [size * ended for size, ended in zip(self.sizes, done, strict=True)])
        self._characters = context.RawValue("q", 0)

    def inputs(self) -> Iterator[int]:
        """Yield the inputs to work on: those that no worker has begun, the largest first, then any unfinished one."""
        while (file := self._next()) is not None:
            yield file

    def _next(self) -> int | None:
        with self._lock:
            free = [file for file in range(len(self.files)) if not self._begun[file]]
            left = free or [file for file in range(len(self.files)) if not self._done[file]]
            file = max(left, key=lambda number: self.sizes[number] - self._bytes[number], default=None)
            if file is not None:
                self._begun[file] = 1
            return file

    def claim(self, file: int, chunk: int) -> bool:
        with self._lock:
            if self._claimed[file] != chunk:
                return False
            self._claimed[file] += 1
            return True

    def mark_done(self, file: int) -> None:
        self._done[file] = 1
        self._bytes[file] = self.sizes[file]

    def is_done(self, file: int) -> bool:
        return bool(self._done[file])

    def report_progress(self, file: int, position: int, characters: int) -> None:
        with self._lock:
            self._bytes[file] = max(self._bytes[file], position)
            self._characters.value += characters

    def progress(self) -> Progress:
        return Progress("building", sum(self._bytes), sum(self.sizes), self._characters.value)


def stage_chunks(
    scheduler: ChunkScheduler, stage: ChunkStore, processor: ChunkProcessor, settings: BuildSettings
) -> None:
    """Stage chunks until every input is done."""
    for file in scheduler.inputs():
        stage_input(BuildInput(file, scheduler.files[file]), scheduler, stage, processor, settings)


@dataclass(frozen=True)
class BuildInput:
    """A numbered input of a build."""

    number: int
    file: InputFile


def stage_input(
    source: BuildInput, claims: ChunkClaims, stage: ChunkStore, processor: ChunkProcessor, settings: BuildSettings
) -> None:
    """Read an input and stage each chunk that can be claimed; stop as soon as it is done."""
    format, number = settings.format or try_detect_format(source.file.path), 0  # noqa: A001
    file = source.number
    with closing(InputReader(source.file)) as stream:
        for items in split_into_chunks(stream.items(settings.read, format), settings):
            if claims.is_done(file):
                return
            if claims.claim(file, number) and not stage.has(file, number):
                chunk = processor.process(items, source.file.name, format)
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
    decisions: Decisions


def write_parts(parts: Sequence[CorpusPart], counter: Any) -> None:
    """Write the parts that this process claims from a shared counter."""
    for number in pool.claim_numbers(counter, len(parts)):
        write_corpus_part(parts[number])


def write_corpus_part(part: CorpusPart) -> None:
    """Write a part, unless it is there already."""
    if part.path.exists():
        return
    is_kept = part.decisions == KEPT
    if is_kept.all():
        part.staged.replace(part.path)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(part.staged, use_threads=False).filter(pa.array(is_kept))
    artifact.atomic_write(part.path, to_bytes(table.combine_chunks()))
