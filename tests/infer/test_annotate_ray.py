"""`annotate --on ray`: the bytes of a local run, whoever is killed on the way, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from alembert.errors import BadFile, BadSetting, UserError
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_chunks import RayExecutor
from alembert.infer.annotate_pipeline import Pipeline
from alembert.workers.ray import RayCluster, connect

sys.path.append(str(Path(__file__).parents[1]))
from poisoned import write_poisoned
from ray_workers import (
    PATIENCE,
    TWO,
    alive,
    broken,
    deadly,
    harmless,
    search_path,
    two_workers,
)
from small_checkpoints import fine_tuned

pytest.importorskip("ray", reason="Ray (pip install 'alembert[ray]') is not installed")
pytestmark = pytest.mark.slow

SETTINGS = AnnotateSettings(part_characters=1000)
DRIVER = """
import os, sys
from functools import partial
from pathlib import Path
from alembert.errors import Interrupted
from alembert.infer.annotate import annotate
from alembert.infer.annotate_chunks import RayExecutor
from ray_workers import TWO, deadly, harmless, note_descendants
from test_annotate_ray import SETTINGS
model, inputs, mark, out, end = *map(Path, sys.argv[1:5]), int(sys.argv[5])
opener = partial(deadly, model, mark, os.getpid(), end) if end else partial(harmless, model)
note = lambda progress: None if end else note_descendants(os.getpid(), mark)
try:
    annotate(harmless(model), [inputs], out, SETTINGS, executor=RayExecutor(TWO, opener), on_progress=note)
except Interrupted as stop:
    sys.exit(stop.exit_code)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, inputs of which one document is deadly to some models, and what a local run gives."""
    folder = tmp_path_factory.mktemp("ray")
    write_poisoned(folder / "in")
    lines = [{"id": f"z{n}", "text": f"Case {n}: aspirin {'deadly' * (n == 30)}"} for n in range(200)]
    (folder / "in/zz.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    annotate(harmless(folder / "model"), [folder / "in"], folder / "local", SETTINGS)
    return folder


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    with two_workers():
        yield


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_ray(work: Path, out: Path, opener: "partial[Pipeline]") -> dict[str, bytes]:
    annotate(harmless(work / "model"), [work / "in"], out, SETTINGS, executor=RayExecutor(TWO, opener))
    return content(out)


def drive(work: Path, tmp_path: Path, end: int = 0) -> int:
    """Annotate in a process of its own, which starts its cluster and writes down whom it has started; give its code."""
    environment = {**os.environ, "PYTHONPATH": search_path()}
    environment.pop("RAY_ADDRESS", None)
    paths = [work / "model", work / "in", tmp_path / "mark", tmp_path / "out"]
    command = [sys.executable, "-c", DRIVER, *map(str, paths), str(end)]
    return subprocess.run(command, env=environment, timeout=4 * PATIENCE, check=False).returncode


def all_gone(mark: Path) -> bool:
    """Give processes of Ray that look every ten seconds whether their parent lives the time to notice."""
    until, never = time.monotonic() + 3 * PATIENCE, threading.Event()
    while alive(mark) and time.monotonic() < until:
        never.wait(0.2)
    return not alive(mark)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:9"])
def test_a_cluster_that_is_not_there_is_a_sentence(address: str) -> None:
    with (
        pytest.raises(BadSetting, match=f"The Ray cluster at {address} cannot be reached"),
        connect(RayCluster(address=address)),
    ):
        pass


@pytest.mark.usefixtures("_cluster")
def test_the_bytes_are_those_of_a_local_run(work: Path, tmp_path: Path) -> None:
    assert on_ray(work, tmp_path / "out", partial(harmless, work / "model")) == content(work / "local")


@pytest.mark.usefixtures("_cluster")
def test_terms_that_a_tagger_reads_reach_the_workers(tmp_path: Path) -> None:
    fine_tuned("tag, features", tmp_path / "model", tmp_path / "examples.jsonl")
    (tmp_path / "terms.txt").write_text("zebra fever\n")
    (tmp_path / "in.jsonl").write_text('{"id": "1", "text": "A zebra fever."}\n')
    opener = partial(Pipeline.open, tmp_path / "model", lexicons={"disease": tmp_path / "terms.txt"})
    annotate(opener(), [tmp_path / "in.jsonl"], tmp_path / "local", SETTINGS)
    annotate(opener(), [tmp_path / "in.jsonl"], tmp_path / "ray", SETTINGS, executor=RayExecutor(TWO, opener))
    assert content(tmp_path / "ray") == content(tmp_path / "local")


@pytest.mark.usefixtures("_cluster")
def test_a_killed_worker_changes_nothing(work: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert on_ray(work, tmp_path / "out", partial(deadly, work / "model", mark)) == content(work / "local")
    assert mark.exists()


@pytest.mark.usefixtures("_cluster")
def test_documents_that_kill_every_worker_are_named_and_the_rest_is_kept(work: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"workers have died .* of zz\.jsonl"):
        on_ray(work, tmp_path / "out", partial(deadly, work / "model"))
    assert on_ray(work, tmp_path / "out", partial(harmless, work / "model")) == content(work / "local")


@pytest.mark.usefixtures("_cluster")
def test_a_broken_model_is_the_bug_that_it_is_here(work: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a bug in the model"):
        on_ray(work, tmp_path / "out", partial(broken, work / "model"))


@pytest.mark.usefixtures("_cluster")
def test_a_model_that_a_worker_does_not_have_is_a_sentence(work: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"A worker on .* cannot begin: .*under the same paths") as problem:
        on_ray(work, tmp_path / "out", partial(Pipeline.open, [tmp_path / "nowhere"]))
    assert not isinstance(problem.value, BadFile)
    assert "\n" not in str(problem.value)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_cluster_that_was_started_for_a_run_ends_with_it(work: Path, tmp_path: Path) -> None:
    assert drive(work, tmp_path) == 0
    assert len(json.loads((tmp_path / "mark").read_text())) > 2
    assert all_gone(tmp_path / "mark")
    assert content(tmp_path / "out") == content(work / "local")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("end", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)],
)
def test_a_run_that_was_ended_goes_on_without_ray(work: Path, tmp_path: Path, end: int, code: int) -> None:
    assert drive(work, tmp_path, end) == code
    assert not (tmp_path / "out").exists()
    annotate(harmless(work / "model"), [work / "in"], tmp_path / "out", SETTINGS)
    assert content(tmp_path / "out") == content(work / "local")
    assert len(json.loads((tmp_path / "mark").read_text())) > 2
    assert all_gone(tmp_path / "mark")
