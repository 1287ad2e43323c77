"""`corpus build` on a Ray cluster: its workers read the inputs, stage chunks and write parts.

In: what a build has to do, phase by phase. Out: the same files that processes of one machine write, in the same folder,
whichever workers died meanwhile. Inputs and the folder must be there under the same paths on all machines: what is read
and written does not go through this one. A job is an input. Where there are fewer inputs than workers, several read the
same one, and each makes its share of the chunks. The trade-off: progress is known by whole jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from alembert.corpus.build import BuildExecutor, StagingJob
from alembert.corpus.chunks import ChunkProcessor
from alembert.corpus.inputs import count_bytes
from alembert.corpus.jobs import BuildInput, CorpusPart, Progress, stage_input, write_corpus_part
from alembert.corpus.settings import BuildSettings
from alembert.corpus.staging import ChunkStore
from alembert.workers.ray import RayCluster, RayConnection, WorkerSpec, connect


@contextmanager
def ray_executor(cluster: RayCluster) -> Iterator[BuildExecutor]:
    """Give the workers of a cluster, to which the connection lasts as long as the block."""
    with connect(cluster) as connection:
        yield _RayExecutor(connection)


@dataclass(frozen=True)
class InputShare:
    """One of so many equal shares of an input."""

    source: BuildInput
    number: int
    of: int


@dataclass
class _StridedClaims:
    """Every so-manieth chunk, without a word with the others."""

    share: InputShare
    characters: int = 0

    def claim(self, file: int, chunk: int) -> bool:
        return chunk % self.share.of == self.share.number

    def mark_done(self, file: int) -> None:
        """Nobody waits for it."""

    def is_done(self, file: int) -> bool:
        return False

    def report_progress(self, file: int, place: int, characters: int) -> None:
        self.characters += characters


@dataclass(frozen=True)
class _RayExecutor:
    connection: RayConnection

    def stage(self, staging: StagingJob, tell: Callable[[Progress], None]) -> None:
        shares = split_into_shares(_list_unfinished_inputs(staging), self.connection.workers)
        sizes = [count_bytes(file.path) for file in staging.files]
        done = sum(size for size, ended in zip(sizes, staging.done, strict=True) if ended)
        stage = replace(staging.stage, folder=staging.stage.folder.absolute())
        opener = partial(_make_stager, stage, staging.refinery, staging.settings)
        characters = 0
        tell(Progress("building", done, sum(sizes)))
        with closing(self.connection.run(WorkerSpec(opener, _describe_share), iter(shares))) as results:
            for share, found in zip(shares, results, strict=True):
                done += sizes[share.source.number] // share.of
                characters += found
                tell(Progress("building", done, sum(sizes), characters))

    def write(self, parts: Sequence[CorpusPart], tell: Callable[[Progress], None]) -> None:
        tell(Progress("writing", 0, len(parts)))
        jobs = (replace(part, path=part.path.absolute(), staged=part.staged.absolute()) for part in parts)
        with closing(self.connection.run(WorkerSpec(_make_writer, _describe_part), jobs)) as results:
            for number, _ in enumerate(results, 1):
                tell(Progress("writing", number, len(parts)))


def _list_unfinished_inputs(staging: StagingJob) -> list[BuildInput]:
    return [
        BuildInput(number, replace(file, path=file.path.absolute()))
        for number, file in enumerate(staging.files)
        if not staging.done[number]
    ]


def split_into_shares(sources: Sequence[BuildInput], workers: int) -> list[InputShare]:
    """Share out inputs, the largest first."""
    each = -(-workers // len(sources)) if sources else 1
    largest_first = sorted(sources, key=lambda source: -count_bytes(source.file.path))
    return [InputShare(source, number, each) for source in largest_first for number in range(each)]


def _make_stager(stage: ChunkStore, refinery: ChunkProcessor, settings: BuildSettings) -> Callable[[InputShare], int]:
    return partial(_stage_share, stage, refinery, settings)


def _stage_share(stage: ChunkStore, refinery: ChunkProcessor, settings: BuildSettings, share: InputShare) -> int:
    """Stage a share of an input; give the characters that were read for it."""
    claims = _StridedClaims(share)
    stage_input(share.source, claims, stage, refinery, settings)
    return claims.characters


def _make_writer() -> Callable[[CorpusPart], None]:
    return write_corpus_part


def _describe_share(share: InputShare) -> str:
    return f"the input {share.source.file.path}"


def _describe_part(part: CorpusPart) -> str:
    return f"the part {part.path}"
