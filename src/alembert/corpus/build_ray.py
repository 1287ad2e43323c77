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

from alembert.corpus.build import Staging, Workers
from alembert.corpus.cluster import Cluster, Connection, Work, connected
from alembert.corpus.jobs import Part, Progress, Source, stage_input, write_part
from alembert.corpus.refine import Refinery
from alembert.corpus.settings import BuildSettings
from alembert.corpus.staging import Stage
from alembert.corpus.stream import size_of


@contextmanager
def on_ray(cluster: Cluster) -> Iterator[Workers]:
    """Give the workers of a cluster, to which the connection lasts as long as the block."""
    with connected(cluster) as connection:
        yield _OnRay(connection)


@dataclass(frozen=True)
class Share:
    """One of so many equal shares of an input."""

    source: Source
    number: int
    of: int


@dataclass
class _Claims:
    """Every so-manieth chunk, without a word with the others."""

    share: Share
    characters: int = 0

    def claim(self, file: int, chunk: int) -> bool:
        return chunk % self.share.of == self.share.number

    def close(self, file: int) -> None:
        """Nobody waits for it."""

    def is_closed(self, file: int) -> bool:
        return False

    def note(self, file: int, place: int, characters: int) -> None:
        self.characters += characters


@dataclass(frozen=True)
class _OnRay:
    connection: Connection

    def stage(self, staging: Staging, tell: Callable[[Progress], None]) -> None:
        shares = shares_of(_sources_left(staging), self.connection.workers)
        sizes = [size_of(file.path) for file in staging.files]
        done = sum(size for size, ended in zip(sizes, staging.done, strict=True) if ended)
        stage = replace(staging.stage, folder=staging.stage.folder.absolute())
        opener = partial(_stager, stage, staging.refinery, staging.settings)
        characters = 0
        tell(Progress("building", done, sum(sizes)))
        with closing(self.connection.run(Work(opener, _named_share), iter(shares))) as results:
            for share, found in zip(shares, results, strict=True):
                done += sizes[share.source.number] // share.of
                characters += found
                tell(Progress("building", done, sum(sizes), characters))

    def write(self, parts: Sequence[Part], tell: Callable[[Progress], None]) -> None:
        tell(Progress("writing", 0, len(parts)))
        jobs = (replace(part, path=part.path.absolute(), staged=part.staged.absolute()) for part in parts)
        with closing(self.connection.run(Work(_writer, _named_part), jobs)) as results:
            for number, _ in enumerate(results, 1):
                tell(Progress("writing", number, len(parts)))


def _sources_left(staging: Staging) -> list[Source]:
    return [
        Source(number, replace(file, path=file.path.absolute()))
        for number, file in enumerate(staging.files)
        if not staging.done[number]
    ]


def shares_of(sources: Sequence[Source], workers: int) -> list[Share]:
    """Share out inputs, the largest first."""
    each = -(-workers // len(sources)) if sources else 1
    largest_first = sorted(sources, key=lambda source: -size_of(source.file.path))
    return [Share(source, number, each) for source in largest_first for number in range(each)]


def _stager(stage: Stage, refinery: Refinery, settings: BuildSettings) -> Callable[[Share], int]:
    return partial(_staged, stage, refinery, settings)


def _staged(stage: Stage, refinery: Refinery, settings: BuildSettings, share: Share) -> int:
    """Stage a share of an input; give the characters that were read for it."""
    claims = _Claims(share)
    stage_input(share.source, claims, stage, refinery, settings)
    return claims.characters


def _writer() -> Callable[[Part], None]:
    return write_part


def _named_share(share: Share) -> str:
    return f"the input {share.source.file.path}"


def _named_part(part: Part) -> str:
    return f"the part {part.path}"
