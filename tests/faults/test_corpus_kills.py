"""A corpus build that is killed again and again ends with the bytes of one that was not."""

import json
import multiprocessing
import os
import random
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from alembert import artifact
from alembert.corpus.build import LexiconFiles, build
from alembert.corpus.clean import BuildSettings
from alembert.errors import FolderBusy

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
pytestmark = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
KILLS = 20
SETTINGS = BuildSettings(part_characters=1500)
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs (some documents twice, some lines bad), a lexicon, and the corpus of a quiet build."""
    folder = tmp_path_factory.mktemp("kills")
    for file in range(3):
        numbers = [*range(file * 50, file * 50 + 60)]
        lines = [json.dumps({"id": str(n), "text": text(n)}) for n in numbers]
        (folder / f"{file}.jsonl").write_text("\n".join([*lines, "not json"]))
    (folder / "drug.txt").write_text("aspirin\nimatinib\n")
    run_build(folder, folder / "quiet")
    return folder


def text(number: int) -> str:
    drugs = ("aspirin", "imatinib", "a placebo")
    return " ".join(f"Visit {number}.{k} began with {drugs[k % 3]} of batch {number * k}." for k in range(9))


def run_build(work: Path, out: Path) -> None:
    inputs = [work / f"{file}.jsonl" for file in range(3)]
    words = LexiconFiles(lexicons={"drug": work / "drug.txt"})
    while True:
        try:
            build(inputs, out, lexicon_files=words, settings=SETTINGS, workers=2)
        except FolderBusy:  # the workers of a killed build see within milliseconds that it is gone
            os.sched_yield()
        else:
            return


def build_and_die(work: Path, out: Path, step: int) -> None:
    """Build, but kill the whole build just before the given operation on the disk of any of its processes."""
    steps = count(1)
    victim = os.getpid()

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(steps) == step:
            os.kill(victim, signal.SIGKILL)

    sys.addaudithook(die)
    run_build(work, out)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(work: Path, out: Path) -> None:
    run_build(work, out)
    artifact.verify(out)
    assert content(out) == content(work / "quiet")


@pytest.mark.parametrize("seed", range(3))
def test_killed_twenty_times_at_random_operations(work: Path, tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    kills = finished = 0
    while kills < KILLS:
        out = tmp_path / f"out-{finished}"
        process = FORK.Process(target=build_and_die, args=(work, out, int(2 ** numbers.uniform(0, 8))))
        process.start()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            check(work, out)
            finished += 1
    check(work, tmp_path / f"out-{finished}")


def test_killed_twenty_times_at_random_moments(work: Path, tmp_path: Path) -> None:
    numbers = random.Random(7)
    kills = finished = 0
    while kills < KILLS:
        out = tmp_path / f"out-{finished}"
        process = FORK.Process(target=run_build, args=(work, out))
        process.start()
        process.join(numbers.uniform(0, 0.4))
        process.kill()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            check(work, out)
            finished += 1
    check(work, tmp_path / f"out-{finished}")


def test_a_stop_signal_leaves_work_to_go_on_with(work: Path, tmp_path: Path) -> None:
    process = FORK.Process(target=run_build, args=(work, tmp_path / "out"))
    process.start()
    while not (tmp_path / "out.partial/.stage/00000").exists():
        os.sched_yield()
    process.terminate()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGTERM
    check(work, tmp_path / "out")
