"""States survive kill -9 at any operation and at any moment, and a disk that is full or forbidden."""

import errno
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from alembert.errors import BadFile
from alembert.train.state import RunStates, Snapshot

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
needs_kill = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
KILLS = 20
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def snapshot(step: int, text: str = "") -> Snapshot:
    # Small: a forked child must not need torch's threads, which stay with the parent.
    weight = torch.full((8,), float(step))
    return Snapshot(step, {"text": text}, {"model": {"w": weight}, "optimiser": {"w.mean": weight}})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def step_of_latest(folder: Path) -> int:
    """Load the newest state, check that it is whole and that none was passed over."""
    found, notes = RunStates(folder).latest() or pytest.fail("no state")
    assert notes == []
    for named in found.tensors.values():
        assert all(tensor.eq(found.step).all() for tensor in named.values())
    assert found.tensors.keys() == {"model", "optimiser"}
    return found.step


def step_of_best(folder: Path) -> int | None:
    found = RunStates(folder).best()
    return found.step if found else None


def save(folder: Path, step: int, best: bool = False) -> None:
    RunStates(folder).save(snapshot(step), best=best)


def save_and_die(folder: Path, operation: int, step: int, best: bool) -> None:
    """Save, but die just before the given operation on the disk."""
    operations = count(1)

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(operations) == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    save(folder, step, best)


def run(target: Callable[..., None], *arguments: Any) -> int | None:
    process = FORK.Process(target=target, args=arguments)
    process.start()
    process.join(PATIENCE)
    return process.exitcode


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def prepare(folder: Path, before: list[int], best: int | None, damaged: int | None) -> None:
    for step in before:
        save(folder, step, step == best)
    if damaged is not None:
        flip(folder / f"step-{damaged:09d}" / "model.safetensors")


SCENARIOS = {
    "a new step": {"before": [1, 2, 3], "step": 4},
    "a new best": {"before": [1, 2, 3], "best": 1, "step": 4, "is_best": True},
    "the only step again": {"before": [3], "step": 3},
    "the same step again": {"before": [1, 2, 3], "best": 3, "step": 3},
    "after a damaged one": {"before": [1, 2, 3], "damaged": 3, "step": 4},
    "a damaged one again": {"before": [1, 2, 3], "damaged": 3, "step": 3},
}


@needs_kill
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_every_operation(tmp_path: Path, scenario: str) -> None:
    plan = {"best": None, "damaged": None, "is_best": False, **SCENARIOS[scenario]}
    step, best, is_damaged = plan["step"], plan["best"], plan["damaged"] is not None
    prepare(tmp_path / "before", plan["before"], best, plan["damaged"])
    for operation in count(1):
        folder = shutil.copytree(tmp_path / "before", tmp_path / str(operation))
        exit_code = run(save_and_die, folder, operation, step, plan["is_best"])
        assert exit_code in (0, -signal.SIGKILL)
        found, _ = RunStates(folder).latest() or pytest.fail("no state")
        assert found.step in (2 if is_damaged else 3, step)
        # The best belongs to the state that is found: the new one if and only if the new state is there.
        assert step_of_best(folder) == (step if plan["is_best"] and found.step == step else best)
        save(folder, step, plan["is_best"])
        save(folder, 5)
        assert step_of_latest(folder) == 5
        assert not [name for name in names(folder) if name.startswith(".") or name.endswith(".old")]
        shutil.rmtree(folder)
        if exit_code == 0:
            break
    assert operation > 10


@needs_kill
def test_the_first_save_killed_before_every_operation(tmp_path: Path) -> None:
    for operation in count(1):
        folder = tmp_path / str(operation) / ".state"
        exit_code = run(save_and_die, folder, operation, 1, False)
        found = RunStates(folder).latest()
        assert found is None or step_of_latest(folder) == 1
        save(folder, 1)
        assert names(folder) == ["step-000000001"]
        if exit_code == 0:
            break
    assert operation > 5


@needs_kill
def test_the_save_after_a_kill_is_killed_too(tmp_path: Path) -> None:
    numbers = random.Random(5)
    save(tmp_path, 0)
    for step in range(1, 60):
        before = step_of_latest(tmp_path)
        run(save_and_die, tmp_path, numbers.randint(1, 30), before + step % 2, step % 3 == 0)
        assert step_of_latest(tmp_path) in (before, before + 1)


def save_in_a_loop(pipe: Connection, folder: Path, first: int) -> None:
    for step in itertools.count(first):
        RunStates(folder).save(snapshot(step // 2), best=step % 5 == 0)
        pipe.send(step // 2)


@needs_kill
def test_killed_at_random_moments(tmp_path: Path) -> None:
    numbers = random.Random(3)
    save(tmp_path, 0)
    for number in range(KILLS):
        ours, theirs = FORK.Pipe(duplex=False)
        before = step_of_latest(tmp_path)
        process = FORK.Process(target=save_in_a_loop, args=(theirs, tmp_path, before * 2))
        process.start()
        assert number or ours.poll(PATIENCE)  # on a busy machine, too, something is saved
        process.join(numbers.uniform(0.005, 0.06))
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
        told = before
        while ours.poll():
            told = ours.recv()
        assert told <= step_of_latest(tmp_path) <= told + 1
        step_of_best(tmp_path)
        ours.close()
        theirs.close()
    assert step_of_latest(tmp_path) > 0


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


class TestDiskErrors:
    CALLS = (
        ("os.fsync", errno.ENOSPC),
        ("os.fsync", errno.EDQUOT),
        ("os.fsync", errno.EIO),
        ("pathlib.Path.mkdir", errno.ENOSPC),
        ("pathlib.Path.mkdir", errno.EACCES),
        ("pathlib.Path.rename", errno.EROFS),
    )

    @pytest.mark.parametrize(("call", "number"), CALLS)
    @pytest.mark.parametrize("step", [2, 3], ids=["again", "new"])
    def test_the_last_state_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, step: int
    ) -> None:
        save(tmp_path, 1)
        save(tmp_path, 2)
        with monkeypatch.context() as broken:
            broken.setattr(call, failing(number))
            with pytest.raises(BadFile, match=rf"step {step} stopped.*{os.strerror(number)}.*02, is intact"):
                save(tmp_path, step)
        assert step_of_latest(tmp_path) == 2
        assert names(tmp_path) == ["step-000000001", "step-000000002"]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json"])
    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """Every write to one of the files goes to a device that is always full."""
        plain = Path.open

        def redirected(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
            is_written = path.name == name and mode == "xb"
            return plain(Path("/dev/full"), "wb") if is_written else plain(path, mode, *rest, **more)

        save(tmp_path, 1)
        with monkeypatch.context() as full:
            full.setattr(Path, "open", redirected)
            with pytest.raises(BadFile, match=r"No space left.*Free some space.*01, is intact"):
                save(tmp_path, 2)
        assert step_of_latest(tmp_path) == 1
        assert names(tmp_path) == ["step-000000001"]

    def test_the_first_state(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as full:
            full.setattr(os, "fsync", failing(errno.ENOSPC))
            with pytest.raises(BadFile, match="Nothing that was there before has changed"):
                save(tmp_path, 1)
        assert RunStates(tmp_path).latest() is None

    @pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="nothing is forbidden to root")
    def test_a_forbidden_folder(self, tmp_path: Path) -> None:
        save(tmp_path, 1)
        tmp_path.chmod(0o500)
        with pytest.raises(BadFile, match=r"Permission denied.*Check the permissions.*01, is intact"):
            save(tmp_path, 2)
        tmp_path.chmod(0o700)
        assert names(tmp_path) == ["step-000000001"]

    def test_an_interrupt_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        save(tmp_path, 1)
        with monkeypatch.context() as interrupted:
            interrupted.setattr(os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                save(tmp_path, 2)
        assert names(tmp_path) == ["step-000000001"]


def test_everything_is_on_the_disk_before_its_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    rename = Path.rename

    def note_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def note_rename(path: Path, target: Path) -> Path:
        events.append(f"{path.name} -> {target.name}")
        return rename(path, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to know what is synchronised")
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    save(tmp_path / "state", 1)
    files = ["model.safetensors", "optimiser.safetensors", "state.json"]
    assert events == [tmp_path.name, *files, ".saving", ".saving -> step-000000001", "state"]
