"""`corpus build --on ray`: the files of a local build, whoever is killed on the way; how inputs are shared out."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert import artifact
from alembert.corpus.build import (
    BuildExecutor,
    BuildExecutorFactory,
    LexiconFiles,
    build,
    local_executor,
)
from alembert.corpus.build_ray import ray_executor, split_into_shares
from alembert.corpus.chunks import Chunk, ChunkProcessor
from alembert.corpus.clean import BuildSettings
from alembert.corpus.inputs import InputFile
from alembert.corpus.jobs import BuildInput
from alembert.errors import UserError

sys.path.append(str(Path(__file__).parents[1]))
from ray_workers import TWO, two_workers

SMALL = BuildSettings(part_characters=2_000)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs (some documents twice, some lines bad), a lexicon, and what a local build gives."""
    folder = tmp_path_factory.mktemp("ray")
    for file in range(3):
        lines = [json.dumps({"id": str(n), "text": text(n)}) for n in range(file * 50, file * 50 + 60)]
        (folder / f"{file}.jsonl").write_text("\n".join([*lines, "not json"]))
    (folder / "drug.txt").write_text("aspirin\nimatinib\n")
    built(folder, folder / "local")
    return folder


def text(number: int) -> str:
    drugs = ("aspirin", "imatinib", "a placebo")
    return " ".join(f"Visit {number}.{k} began with {drugs[k % 3]} of batch {number * k}." for k in range(9))


def built(work: Path, out: Path, site: BuildExecutorFactory | None = None, files: int = 3) -> dict[str, bytes]:
    inputs = [work / f"{file}.jsonl" for file in range(files)]
    build(
        inputs,
        out,
        lexicon_files=LexiconFiles(lexicons={"drug": work / "drug.txt"}),
        settings=SMALL,
        workers=2,
        executor_factory=site,
    )
    return content(out)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Connected:
    """A cluster that is this process, for what needs none."""

    workers: int

    def run(self, work: Any, jobs: Iterator[Any]) -> Iterator[Any]:
        return (work.make_worker()(job) for job in jobs)


@contextmanager
def pretended(workers: int) -> Iterator[BuildExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alembert.corpus.build_ray.connect", lambda _: _given(Connected(workers)))
        with ray_executor(TWO) as hands:
            yield hands


@contextmanager
def _given(connection: Connected) -> Iterator[Connected]:
    yield connection


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_shares_of_inputs_make_the_same_corpus(work: Path, tmp_path: Path, workers: int) -> None:
    assert built(work, tmp_path / "out", partial(pretended, workers)) == content(work / "local")


def test_a_build_that_was_stopped_there_goes_on_here(work: Path, tmp_path: Path) -> None:
    @contextmanager
    def lost() -> Iterator[BuildExecutor]:
        with pretended(2) as hands:
            yield Losing(hands)

    with pytest.raises(ConnectionError):
        built(work, tmp_path / "out", lost)
    assert built(work, tmp_path / "out", partial(local_executor, 2)) == content(work / "local")


@dataclass(frozen=True)
class Losing:
    """Workers that stage everything and are lost then."""

    hands: BuildExecutor

    def stage(self, staging: Any, on_progress: Callable[[Any], None]) -> None:
        self.hands.stage(staging, on_progress)

    def write(self, parts: Any, on_progress: Callable[[Any], None]) -> None:
        raise ConnectionError("the cluster is gone")


@given(done=st.lists(st.booleans(), min_size=1, max_size=6), workers=st.integers(1, 20))
def test_each_chunk_of_each_input_that_is_left_is_in_one_share(done: list[bool], workers: int) -> None:
    sources = [BuildInput(file, InputFile(Path(__file__))) for file, ended in enumerate(done) if not ended]
    shares = split_into_shares(sources, workers)
    taken = [(share.source.number, chunk) for share in shares for chunk in range(share.number, 40, share.total)]
    left = [file for file, ended in enumerate(done) if not ended]
    assert sorted(taken) == [(file, chunk) for file in left for chunk in range(40)]
    assert not left or len(shares) >= workers


@dataclass(frozen=True)
class DeadlyRefinery(ChunkProcessor):
    """Ends its process, once if there is a mark to say so."""

    mark: Path | None = None

    def process(self, items: Any, source: str, format: str | None) -> Chunk:  # noqa: A002
        if source == "1.jsonl" and not (self.mark and self.mark.exists()):
            if self.mark:
                self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().process(items, source, format)


@dataclass(frozen=True)
class Deadly:
    """Workers of which some die while they stage."""

    hands: BuildExecutor
    mark: Path | None

    def stage(self, staging: Any, on_progress: Callable[[Any], None]) -> None:
        plain = staging.refinery
        refinery = DeadlyRefinery(plain.clean, plain.gazetteer, self.mark)
        self.hands.stage(replace(staging, refinery=refinery), on_progress)

    def write(self, parts: Any, on_progress: Callable[[Any], None]) -> None:
        self.hands.write(parts, on_progress)


@contextmanager
def deadly(mark: Path | None) -> Iterator[BuildExecutor]:
    with ray_executor(TWO) as hands:
        yield Deadly(hands, mark)


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    pytest.importorskip("ray", reason="Ray (pip install 'alembert[ray]') is not installed")
    with two_workers():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
def test_the_files_and_counts_are_those_of_a_local_build(work: Path, tmp_path: Path) -> None:
    assert built(work, tmp_path / "out", partial(ray_executor, TWO)) == content(work / "local")
    counts = artifact.open_artifact(tmp_path / "out").counts
    assert counts == artifact.open_artifact(work / "local").counts
    assert (counts["inputs"], counts["set aside"]) == (3, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
def test_a_killed_worker_changes_nothing(work: Path, tmp_path: Path) -> None:
    assert built(work, tmp_path / "out", partial(deadly, tmp_path / "mark")) == content(work / "local")
    assert (tmp_path / "mark").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_cluster")
def test_an_input_that_kills_every_worker_is_named(work: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"workers have died .* on the input .*1\.jsonl"):
        built(work, tmp_path / "out", partial(deadly, None))
    assert built(work, tmp_path / "out") == content(work / "local")
