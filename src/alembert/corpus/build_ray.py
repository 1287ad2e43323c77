"""`corpus build` on a Ray cluster: its workers read the inputs, stage chunks and write parts.

In: the work of a build, phase by phase. Out: the same files as those of a build on one machine, in the same folder,
even if workers die. All machines must have the inputs and the folder under the same paths: what is read and written
does not pass through this one. A job is an input; where there are fewer inputs than workers, several workers read the
same one, and each processes its share of the chunks. The trade-off: progress advances by whole jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from alembert.corpus.build import BuildExecutor, StagingJob
from alembert.corpus.chunks import ChunkProcessor, ChunkStore
from alembert.corpus.clean import BuildSettings
from alembert.corpus.inputs import count_bytes
from alembert.corpus.jobs import BuildInput, CorpusPart, Progress, stage_input, write_corpus_part
from alembert.workers.ray import RayCluster, RayConnection, WorkerSpec, connect


@contextmanager
def ray_executor(cluster: RayCluster) -> Iterator[BuildExecutor]:
    """Run the build on a cluster; the connection is closed at the end of the block."""
    with connect(cluster) as connection:
        yield _RayExecutor(connection)


@dataclass(frozen=True)
class InputShare:
    """One of `total` equal shares of an input."""

    source: BuildInput
    number: int
    total: int


@dataclass
class _StridedClaims:
    """Claims every n-th chunk, without communication between workers."""

    share: InputShare
    characters: int = 0

    def claim(self, file: int, chunk: int) -> bool:
        return chunk % self.share.total == self.share.number

    def mark_done(self, file: int) -> None:
        """Do nothing: the other shares are read to their end."""

    def is_done(self, file: int) -> bool:
        return False

    def report_progress(self, file: int, position: int, characters: int) -> None:
        self.characters += characters


@dataclass(frozen=True)
class _RayExecutor:
    connection: RayConnection

    def stage(self, staging: StagingJob, on_progress: Callable[[Progress], None]) -> None:
        shares = split_into_shares(_list_unfinished_inputs(staging), self.connection.workers)
        sizes = [count_bytes(file.path) for file in staging.files]
        done = sum(size for size, ended in zip(sizes, staging.done, strict=True) if ended)
        stage = replace(staging.stage, folder=staging.stage.folder.absolute())
        opener = partial(_make_stager, stage, staging.processor, staging.settings)
        characters = 0
        on_progress(Progress("building", done, sum(sizes)))
        with closing(self.connection.run(WorkerSpec(opener, _describe_share), iter(shares))) as results:
            for share, share_characters in zip(shares, results, strict=True):
                done += sizes[share.source.number] // share.total
                characters += share_characters
                on_progress(Progress("building", done, sum(sizes), characters))

    def write(self, parts: Sequence[CorpusPart], on_progress: Callable[[Progress], None]) -> None:
        on_progress(Progress("writing", 0, len(parts)))
        jobs = (replace(part, path=part.path.absolute(), staged=part.staged.absolute()) for part in parts)
        with closing(self.connection.run(WorkerSpec(_make_writer, _describe_part), jobs)) as results:
            for number, _ in enumerate(results, 1):
                on_progress(Progress("writing", number, len(parts)))


def _list_unfinished_inputs(staging: StagingJob) -> list[BuildInput]:
    return [
        BuildInput(number, replace(file, path=file.path.absolute()))
        for number, file in enumerate(staging.files)
        if not staging.done[number]
    ]


def split_into_shares(sources: Sequence[BuildInput], workers: int) -> list[InputShare]:
    """Split inputs so that every worker has a share, the largest inputs first."""
    shares = -(-workers // len(sources)) if sources else 1
    largest_first = sorted(sources, key=lambda source: -count_bytes(source.file.path))
    return [InputShare(source, number, shares) for source in largest_first for number in range(shares)]


def _make_stager(stage: ChunkStore, processor: ChunkProcessor, settings: BuildSettings) -> Callable[[InputShare], int]:
    return partial(_stage_share, stage, processor, settings)


def _stage_share(stage: ChunkStore, processor: ChunkProcessor, settings: BuildSettings, share: InputShare) -> int:
    """Stage a share of an input and return how many characters it has."""
    claims = _StridedClaims(share)
    stage_input(share.source, claims, stage, processor, settings)
    return claims.characters


def _make_writer() -> Callable[[CorpusPart], None]:
    return write_corpus_part


def _describe_share(share: InputShare) -> str:
    return f"the input {share.source.file.path}"


def _describe_part(part: CorpusPart) -> str:
    return f"the part {part.path}"
