"""An `embed encode` that is killed again and again ends with the bytes of one that was not."""

import json
import multiprocessing
import os
import random
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from alembert.errors import FolderBusy
from alembert.infer.embed import EncodeSettings, encode
from scripted_embedder import Scripted

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
pytestmark = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
KILLS = 20
SETTINGS = EncodeSettings(unit="sentence", int8_copy=True, chunk_characters=300)
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs, some lines of them bad, and the vectors of a quiet run."""
    folder = tmp_path_factory.mktemp("kills")
    for file in range(3):
        lines = [json.dumps({"id": f"{file}.{n}", "text": text(n + file)}) for n in range(12)]
        (folder / f"{file}.jsonl").write_text("\n".join([*lines[:5], "not json", *lines[5:]]))
    run(folder, folder / "quiet")
    return folder


def text(number: int) -> str:
    return " ".join(f"Visit {number} began with drug {k} of batch {number * k}." for k in range(number % 4 + 1))


def run(work: Path, out: Path) -> None:
    while True:
        try:
            encode(Scripted(), [work / f"{file}.jsonl" for file in range(3)], out, SETTINGS)
        except FolderBusy:
            os.sched_yield()
        else:
            return


class DyingFile:
    """A file of a process that ends in the middle of a write."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, block: bytes) -> int:
        self._file.write(block[: len(block) // 2])
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def run_and_die(work: Path, out: Path, step: int) -> None:
    """Encode, but die just before the given operation on the disk."""
    steps, victim = count(1), os.getpid()

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(steps) == step:
            os.kill(victim, signal.SIGKILL)

    sys.addaudithook(die)
    run(work, out)


def run_and_die_writing(work: Path, out: Path, name: str, step: int) -> None:
    """Encode, but die in the middle of the given block of a file."""
    from alembert.infer.stream_job import Ledger

    append, steps = Ledger.append, count(1)

    def dying_append(self: Ledger, blocks: dict[str, bytes], state: object) -> None:
        if next(steps) == step:
            self._files[name] = DyingFile(self._files[name])
        append(self, blocks, state)

    Ledger.append = dying_append
    run(work, out)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_before_any_operation_on_the_disk(work: Path, tmp_path: Path) -> None:
    numbers, kills, finished = random.Random(5), 0, 0
    while kills < KILLS:
        out = tmp_path / str(finished)
        process = FORK.Process(target=run_and_die, args=(work, out, int(2 ** numbers.uniform(0, 7))))
        process.start()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        finished += process.exitcode == 0
    run(work, tmp_path / str(finished))
    for number in range(finished + 1):
        assert content(tmp_path / str(number)) == content(work / "quiet")


@pytest.mark.parametrize("name", ["vectors.npy", "copy.npy", "rows.npy", "units.jsonl"])
def test_killed_in_the_middle_of_a_block(work: Path, tmp_path: Path, name: str) -> None:
    for step in (1, 3, 2):
        process = FORK.Process(target=run_and_die_writing, args=(work, tmp_path / "out", name, step))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
    run(work, tmp_path / "out")
    assert content(tmp_path / "out") == content(work / "quiet")


def test_killed_at_random_moments(work: Path, tmp_path: Path) -> None:
    numbers, kills, finished = random.Random(7), 0, 0
    while kills < KILLS and finished < KILLS:
        out = tmp_path / str(finished)
        process = FORK.Process(target=run, args=(work, out))
        process.start()
        process.join(numbers.uniform(0, 0.1))
        process.kill()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        finished += process.exitcode == 0
    run(work, tmp_path / str(finished))
    for number in range(finished + 1):
        assert content(tmp_path / str(number)) == content(work / "quiet")
