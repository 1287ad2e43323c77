"""A job over inputs of any size that can be killed and resumed, and counts each document exactly once.

In: inputs (`stream`), and a `StreamJob` that says what becomes of a chunk of them. Out: a finished artefact. While a
chunk is computed, the next is encoded, the one after it is read and the last one is written, each in a thread of its
own; the model has all cores. So memory is that of four chunks, a stopped run loses three at most, and the same command
resumes it and ends with the bytes of a run that was not stopped. Where chunks are computed (`Executor`) has no
influence on the result, so a run may be resumed elsewhere.

`Ledger`: files that only grow, and a record of how far they count. In go blocks of bytes for several files, together
with any state; out come files that a kill cannot spoil. Each block is brought to the disk before the record that counts
it, which is replaced as a whole; whatever stands behind the recorded sizes when the work goes on was never counted, and
is cut off. So the files can be of any size and nothing is written twice. The price is an fsync a file and block.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Final, Generic, Protocol, TypeVar

from alembert import artifact
from alembert.corpus.fetch import fetch_inputs
from alembert.corpus.inputs import list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers import ReadOptions, SetAside
from alembert.corpus.readers.contract import generalise_reason
from alembert.data.batching import map_in_threads
from alembert.errors import BadFile
from alembert.infer.stream import InputItem, InputStream, StreamPosition, iter_chunks, open_input_stream, prefetch

SET_ASIDE_FILE: Final = "set-aside.jsonl"
_PARALLEL_CHUNKS: Final = 2
"""Chunks under way at a time: one keeps the engine busy while the other is encoded or decoded."""


class ChunkResult(Protocol):
    """What was computed of a chunk."""

    @property
    def items(self) -> Sequence[InputItem]:
        """The chunk itself."""

    @property
    def amounts(self) -> Mapping[str, int]:
        """How much was done, by the names that `Progress` has for it."""


ResultT = TypeVar("ResultT", bound=ChunkResult)
ResultT_co = TypeVar("ResultT_co", bound=ChunkResult, covariant=True)


class Executor(Protocol[ResultT_co]):
    """Where chunks are computed."""

    def run(self, chunks: Iterator[list[InputItem]]) -> Generator[ResultT_co, None, None]:
        """Compute chunks, taking a few of them ahead at most; results are in their order."""


@dataclass(frozen=True)
class LocalExecutor(Generic[ResultT]):
    """Computes in threads of this process."""

    compute: Callable[[Sequence[InputItem]], ResultT]

    def run(self, chunks: Iterator[list[InputItem]]) -> Generator[ResultT, None, None]:
        with closing(map_in_threads(self.compute, chunks, _PARALLEL_CHUNKS, ahead=1)) as results:
            yield from results


@dataclass(frozen=True)
class StreamRun:
    """A finished result; `fresh` is False if it was complete before."""

    manifest: artifact.Manifest
    fresh: bool
    added: Counter[str]
    """What this run has counted, without the counts of a run that it resumed."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What a user should know about the inputs."""


class StreamJob(ABC, Generic[ResultT]):
    """What a verb does with its inputs."""

    kind: ClassVar[str]
    """The artefact that it writes."""
    phase: ClassVar[str]
    """What it is doing, for the progress bar."""
    count_names: ClassVar[tuple[str, ...]]
    """Counts that are in the manifest even if they are 0."""

    def __init__(self, options: ReadOptions, input_format: str | None, chunk_characters: int) -> None:
        self._options = options
        self._input_format = input_format
        self._chunk_characters = chunk_characters

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the configuration of the artefact, which decides with the inputs whether a run is the same."""

    @abstractmethod
    def file_heads(self) -> dict[str, bytes]:
        """Return the files that grow, and what each begins with."""

    @abstractmethod
    def prepare(self, item: InputItem) -> InputItem:
        """Check an item while it is read: can its document be used?"""

    @abstractmethod
    def compute(self, chunk: Sequence[InputItem]) -> ResultT:
        """Let the model work on a chunk."""

    @abstractmethod
    def write(self, result: ResultT, ledger: Ledger, counts: Counter[str]) -> dict[str, bytes]:
        """Count a result, and return what is appended to the files; may be killed and called again."""

    def model_files(self) -> Sequence[Path]:
        """Return what else the result depends on, for the manifest."""
        return ()

    def begin(self, ledger: Ledger, counts: Mapping[str, int]) -> None:
        """Bring the folder to where the counts of a stopped run say that it is."""

    def finish(self, ledger: Ledger, counts: Counter[str]) -> None:
        """Write what is known when everything is read."""

    def run(
        self,
        inputs: Sequence[str | Path],
        out: str | Path,
        *,
        executor: Executor[ResultT] | None = None,
        overwrite: bool = False,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> StreamRun:
        """Do the work, or resume it; a complete result is left as it is. Without an executor it is done in this process."""
        with fetch_inputs(inputs, out, on_progress) as local:
            files = list_input_files(
                local.paths, out=out, get_display_name=local.get_display_name, format=self._input_format
            )
            stream, notes = open_input_stream(files, self._options, self._input_format), tuple(files.notes())
            origins = [*self.model_files(), *local.to_manifest_inputs(files.contents)]
            plan: dict[str, Any] = {"config": self.config(), "inputs": origins}
            if manifest := artifact.find_finished(out, self.kind, **plan):
                return StreamRun(manifest, fresh=False, added=Counter(), notes=notes)
            with artifact.create(out, self.kind, resume=True, overwrite=overwrite, **plan) as draft:
                loop = _ChunkLoop(self, draft.path, stream, on_progress)
                loop.run(executor or LocalExecutor(self.compute))
                draft.counts.update(loop.counts)
        return StreamRun(artifact.open_artifact(out, self.kind), True, loop.added(), loop.seconds, notes)

    def chunks(self, stream: InputStream, after: StreamPosition) -> Iterator[list[InputItem]]:
        """Read what follows a position; borders of chunks depend on the input alone."""
        return iter_chunks(map(self.prepare, stream.read_from(after)), self._chunk_characters)


class _ChunkLoop(Generic[ResultT]):
    """The chunks of one run: read ahead, computed, and written behind."""

    def __init__(
        self, job: StreamJob[ResultT], folder: Path, stream: InputStream, on_progress: Callable[[Progress], None]
    ) -> None:
        self.counts = Counter(dict.fromkeys(job.count_names, 0))
        self.seconds = 0.0
        self._job = job
        self._folder = folder
        self._stream = stream
        self._on_progress = on_progress
        self._recorded: Mapping[str, int] = {}
        self._amounts: Counter[str] = Counter()

    def added(self) -> Counter[str]:
        return self.counts - Counter(self._recorded)

    def run(self, executor: Executor[ResultT]) -> None:
        began = time.perf_counter()
        with Ledger(self._folder, self._job.file_heads()) as ledger:
            state = ledger.state or {}
            self._recorded = state.get("counts", {})
            self.counts.update(self._recorded)
            self._job.begin(ledger, self.counts)
            self._report(state.get("done", 0))
            self._work(StreamPosition(*state.get("place", ())), executor, ledger)
            self._job.finish(ledger, self.counts)
        self.seconds = time.perf_counter() - began

    def _work(self, after: StreamPosition, executor: Executor[ResultT], ledger: Ledger) -> None:
        """Compute one chunk after the other; each is written while the next is computed."""
        writing: Future[None] | None = None
        with (
            ThreadPoolExecutor(1, thread_name_prefix="write") as pool,
            closing(prefetch(self._job.chunks(self._stream, after))) as chunks,
            closing(executor.run(chunks)) as results,
        ):
            for result in results:
                if writing is not None:
                    writing.result()  # what it raises ends the run before more is computed
                writing = pool.submit(self._write, result, ledger)
                self._amounts.update(result.amounts)
                self._report(result.items[-1].progress)
            if writing is not None:
                writing.result()

    def _report(self, done: int) -> None:
        self._on_progress(Progress(self._job.phase, done, self._stream.total, **self._amounts))

    def _write(self, result: ResultT, ledger: Ledger) -> None:
        blocks, last = self._job.write(result, ledger, self.counts), result.items[-1]
        ledger.append(blocks, {"place": last.position, "done": last.progress, "counts": self.counts})


def count_set_aside(record: SetAside, name: str = "set aside") -> dict[str, int]:
    """Count what was set aside, as a whole and by its reason."""
    return {name: 1, f"{name}: {generalise_reason(record.reason)}": 1}


def set_aside_lines(records: Iterable[SetAside]) -> bytes:
    """Return the lines of `set-aside.jsonl`."""
    return b"".join(json_line(record.to_record()) for record in records)


LEDGER_FILE: Final = ".ledger.json"


class Ledger:
    """The growing files of a folder; `state` is what was recorded with the last block, None before the first.

    `heads` has the names of the files, and what each begins with.
    """

    def __init__(self, folder: Path, heads: Mapping[str, bytes]) -> None:
        self.state: Any = None
        self.folder = folder
        self._heads = heads
        self._sizes = {name: len(head) for name, head in heads.items()}
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Ledger:
        if (self.folder / LEDGER_FILE).is_file():
            record = json.loads((self.folder / LEDGER_FILE).read_bytes())
            self.state, self._sizes = record["state"], record["sizes"]
        else:
            for name, head in self._heads.items():
                (self.folder / name).write_bytes(head)
        self._check_sizes()
        for name, size in self._sizes.items():
            file = self._stack.enter_context((self.folder / name).open("r+b"))
            file.truncate(size)
            file.seek(size)
            self._files[name] = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def size(self, name: str) -> int:
        """Return how many bytes of a file count."""
        return self._sizes[name]

    def append(self, blocks: Mapping[str, bytes], state: Any) -> None:
        """Append to some of the files, and record where the work stands now."""
        for name, block in blocks.items():
            file = self._files[name]
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            self._sizes[name] += len(block)
        self.state = state
        record = json.dumps({"state": state, "sizes": self._sizes})
        artifact.atomic_write(self.folder / LEDGER_FILE, record.encode())

    def overwrite_start(self, name: str, head: bytes) -> None:
        """Write over the beginning of a file, whose length stays; may be killed and called again."""
        if len(head) != len(self._heads[name]):
            raise ValueError(f"the head of {name} is {len(head)} bytes and was {len(self._heads[name])}")
        file = self._files[name]
        file.seek(0)
        file.write(head)
        file.flush()

    def _check_sizes(self) -> None:
        for name, size in self._sizes.items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size < size:
                raise BadFile(
                    f"{path} is shorter than what was written to it: the disk has lost a part. "
                    f"Delete {self.folder} and run the command again."
                )


def json_line(record: Mapping[str, Any]) -> bytes:
    """Write a record as a line; unpaired surrogates become escapes, which JSON has."""
    return f"{json.dumps(record, ensure_ascii=False)}\n".encode("utf8", "backslashreplace")
