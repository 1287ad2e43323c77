"""Where chunks are computed is no matter of the result: elsewhere, ahead, or in two places one after the other."""

import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from alembert.cli import run
from alembert.errors import BadSetting
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_chunks import AnnotatedChunk, RayExecutor, annotate_chunk
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.stream import InputItem
from alembert.infer.stream_job import Executor, LocalExecutor
from alembert.workers.ray import RayCluster

sys.path.append(str(Path(__file__).parents[1]))
from finding_models import finder
from poisoned import write_poisoned

SETTINGS = AnnotateSettings(part_characters=1000)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    write_poisoned(tmp_path / "in")
    return Pipeline.from_models([finder(tmp_path / "model")])


@dataclass(frozen=True)
class Ahead:
    """Computes in threads, as many chunks ahead as it is told."""

    pipeline: Pipeline
    many: int

    def run(self, chunks: Iterator[list[InputItem]]) -> Generator[AnnotatedChunk, None, None]:
        with ThreadPoolExecutor(self.many) as pool:
            while together := list(islice(chunks, self.many)):
                yield from pool.map(lambda chunk: annotate_chunk(self.pipeline, chunk), together)


@dataclass(frozen=True)
class Failing:
    """Another executor, which is lost after some chunks."""

    executor: Executor[AnnotatedChunk]
    after: int

    def run(self, chunks: Iterator[list[InputItem]]) -> Generator[AnnotatedChunk, None, None]:
        yield from islice(self.executor.run(chunks), self.after)
        raise ConnectionError("the cluster is gone")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def annotated(
    pipeline: Pipeline, folder: Path, name: str, executor: Executor[AnnotatedChunk] | None = None
) -> dict[str, bytes]:
    annotate(pipeline, [folder / "in"], folder / name, SETTINGS, executor=executor)
    return content(folder / name)


@pytest.mark.parametrize("many", [1, 5])
def test_chunks_that_are_computed_ahead_give_the_same_bytes(pipeline: Pipeline, tmp_path: Path, many: int) -> None:
    assert annotated(pipeline, tmp_path, "there", Ahead(pipeline, many)) == annotated(pipeline, tmp_path, "here")


@pytest.mark.parametrize(
    "first", [lambda pipeline: Ahead(pipeline, 3), lambda pipeline: LocalExecutor(partial(annotate_chunk, pipeline))]
)
def test_a_run_is_resumed_by_another_executor(
    pipeline: Pipeline, tmp_path: Path, first: Callable[[Pipeline], Executor[AnnotatedChunk]]
) -> None:
    with pytest.raises(ConnectionError):
        annotated(pipeline, tmp_path, "moved", Failing(first(pipeline), 4))
    assert annotated(pipeline, tmp_path, "moved", Ahead(pipeline, 2)) == annotated(pipeline, tmp_path, "quiet")


def test_no_cluster_is_started_where_nothing_is_left(pipeline: Pipeline) -> None:
    executor = RayExecutor(RayCluster(address="nowhere:1"), lambda: pipeline)
    assert list(executor.run(iter([]))) == []


@pytest.mark.parametrize("command", ["annotate", "corpus build"])
def test_without_ray_a_sentence_says_what_to_install(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "in.txt").write_text("Fever.")
    inputs = [str(tmp_path)] * (command == "annotate") + [str(tmp_path / "in.txt")]
    assert run([*command.split(), *inputs, "--out", str(tmp_path / "out"), "--on", "ray"]) == 2
    assert "pip install 'alembert[ray]'" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "mars"], "expected local or ray"),
        (["--set", "run.workers=2"], "run.workers is for a cluster"),
        (["--set", "run.worker_cpus=2"], "are for a cluster"),
        (["--set", "run.ray_address=here:1"], "are for a cluster"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("Fever.")
    command = ["annotate", str(tmp_path), str(tmp_path / "in.txt"), "--out", str(tmp_path / "out")]
    assert run([*command, *options]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("setting", [{"workers": 0}, {"cpus": 0}])
def test_a_cluster_has_workers_and_they_have_cpus(setting: dict[str, int]) -> None:
    with pytest.raises(BadSetting, match="at least one"):
        RayCluster(**setting)
