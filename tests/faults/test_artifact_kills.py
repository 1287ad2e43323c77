"""Artefacts survive kill -9 at any operation, and writers that race for one folder."""

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

from alembert import artifact
from alembert.errors import BadFile, FolderBusy

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
pytestmark = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
FILES = [f"part-{number}.txt" for number in range(2)]
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}
SCENARIOS = {
    "new": {},
    "overwrite": {"overwrite": True},
    "resume": {"resume": True},
    "overwrite and resume": {"overwrite": True, "resume": True},
}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def write(folder: Path, content: str, on_progress: Callable[[], object] = lambda: None, **options: Any) -> None:
    """Write some files and remember in scratch which are done, as a long run does."""
    with artifact.create(folder, "Corpus", config={"content": content}, **options) as draft:
        (draft.path / ".done").mkdir(exist_ok=True)
        for name in FILES:
            if not (draft.path / ".done" / name).exists():
                artifact.atomic_write(draft.path / name, content.encode())
                (draft.path / ".done" / name).touch()
            on_progress()
        draft.counts["files"] = len(FILES)


def write_and_die(folder: Path, step: int, options: dict[str, Any]) -> None:
    """Write, but die just before the given operation on the disk."""
    steps = count(1)

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    write(folder, "new", **options)


def write_and_die_inside(folder: Path, options: dict[str, Any]) -> None:
    """Write the first file, and die before the second."""
    write(folder, "new", on_progress=lambda: os.kill(os.getpid(), signal.SIGKILL), **options)


def run(target: Callable[..., None], *arguments: Any) -> int | None:
    process = FORK.Process(target=target, args=arguments)
    process.start()
    process.join(PATIENCE)
    return process.exitcode


def content_of(folder: Path) -> str | None:
    """Give the content of a complete artefact, after checking it; None if there is no folder."""
    if not folder.exists():
        return None
    manifest = artifact.verify(folder)
    assert list(manifest.files) == FILES
    assert manifest.counts == {"files": len(FILES)}
    return (folder / FILES[0]).read_text()


def check_after_kill(folder: Path, overwrite: bool) -> None:
    """The target is whole; if it is gone in the middle of a replacement, the new one is whole beside it."""
    content = content_of(folder)
    if not overwrite:
        assert content in (None, "new")
    elif content is None:
        assert content_of(folder.with_name("out.partial")) == "new"
    else:
        assert content in ("old", "new")


def check_next_run(folder: Path, options: dict[str, Any], reference: bytes) -> None:
    """The same command gives what an uninterrupted run gives, and leaves nothing else."""
    if options.get("overwrite") or artifact.find_finished(folder, "Corpus", config={"content": "new"}) is None:
        write(folder, "new", **options)
    assert content_of(folder) == "new"
    assert (folder / "manifest.json").read_bytes() == reference
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", *FILES]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("reference") / "out"
    write(folder, "new")
    return (folder / "manifest.json").read_bytes()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old") / "out"
    write(folder, "old")
    return folder


def prepare(root: Path, old: Path, overwrite: bool) -> Path:
    root.mkdir()
    if overwrite:
        shutil.copytree(old, root / "out")
    return root / "out"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_every_operation(tmp_path: Path, scenario: str, old: Path, reference: bytes) -> None:
    options = SCENARIOS[scenario]
    overwrite = bool(options.get("overwrite"))
    for step in count(1):
        folder = prepare(tmp_path / str(step), old, overwrite)
        exit_code = run(write_and_die, folder, step, options)
        assert exit_code in (0, -signal.SIGKILL)
        check_after_kill(folder, overwrite)
        check_next_run(folder, options, reference)
        if exit_code == 0:
            break
    assert step > 20


def write_and_tell(pipe: Connection, folder: Path, options: dict[str, Any]) -> None:
    write(folder, "new", on_progress=lambda: pipe.send_bytes(b"."), **options)


def kill_after(folder: Path, messages: int, options: dict[str, Any]) -> None:
    """Kill a writer from outside, some time after it has said that it wrote so many files."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=write_and_tell, args=(theirs, folder, options))
    process.start()
    for _ in range(messages):
        assert ours.poll(PATIENCE)
        ours.recv_bytes()
    process.kill()
    process.join(PATIENCE)


@pytest.mark.parametrize("seed", range(20))
def test_killed_from_outside(tmp_path: Path, seed: int, old: Path, reference: bytes) -> None:
    random_numbers = random.Random(seed)
    options = SCENARIOS[random_numbers.choice(list(SCENARIOS))]
    overwrite = bool(options.get("overwrite"))
    folder = prepare(tmp_path / "root", old, overwrite)
    kill_after(folder, random_numbers.randint(0, len(FILES)), options)
    check_after_kill(folder, overwrite)
    check_next_run(folder, options, reference)


@pytest.mark.parametrize("options", [{}, {"resume": True}], ids=["new", "resume"])
def test_recovery_killed_before_every_operation(tmp_path: Path, options: dict[str, Any], reference: bytes) -> None:
    for step in count(1):
        folder = tmp_path / str(step) / "out"
        assert run(write_and_die_inside, folder, options) == -signal.SIGKILL
        exit_code = run(write_and_die, folder, step, options)
        assert exit_code in (0, -signal.SIGKILL)
        check_after_kill(folder, overwrite=False)
        check_next_run(folder, options, reference)
        if exit_code == 0:
            break


def test_finished_parts_survive_every_kill(tmp_path: Path) -> None:
    exit_code, step = None, 0
    while exit_code != 0:
        step += 1
        folder = tmp_path / str(step) / "out"
        run(write_and_die_inside, folder, {"resume": True})
        kept = (folder.with_name("out.partial") / FILES[0]).stat().st_ino
        exit_code = run(write_and_die, folder, step, {"resume": True})
        if artifact.find_finished(folder, "Corpus", config={"content": "new"}) is None:
            write(folder, "new", resume=True)
        assert (folder / FILES[0]).stat().st_ino == kept


def test_killed_draft_refuses_other_settings(tmp_path: Path) -> None:
    run(write_and_die_inside, tmp_path / "out", {"resume": True})
    with pytest.raises(BadFile, match=r'`config\.content` was "new" and is now "other"'):
        write(tmp_path / "out", "other", resume=True)


def compete(pipe: Connection, folder: Path) -> None:
    """Say `in` once inside and wait for leave to finish, or give the words of the refusal."""
    pipe.recv()
    try:
        with artifact.create(folder, "Corpus", config={}):
            pipe.send("in")
            pipe.recv()
    except FolderBusy as error:
        pipe.send(str(error))


@pytest.mark.parametrize("attempt", range(5))
def test_one_of_two_racing_writers_wins(tmp_path: Path, attempt: int) -> None:
    pipes = [FORK.Pipe() for _ in range(2)]
    writers = [FORK.Process(target=compete, args=(theirs, tmp_path / "out")) for _, theirs in pipes]
    for writer in writers:
        writer.start()
    for ours, _ in pipes:
        ours.send("go")
    assert all(ours.poll(PATIENCE) for ours, _ in pipes)
    answers = [ours.recv() for ours, _ in pipes]
    for ours, _ in pipes:
        ours.send("finish")
    for writer in writers:
        writer.join(PATIENCE)
    assert answers.count("in") == 1
    winner = writers[answers.index("in")]
    refusal = answers[1 - answers.index("in")]
    assert f"process {winner.pid} " in refusal or "another process" in refusal
    artifact.verify(tmp_path / "out")


def add_rounds(folder: Path, rounds: int) -> None:
    """Add one to the number in an artefact so many times; none may be lost between several writers."""
    while rounds:
        try:
            with artifact.create(folder, "Corpus", config={}, overwrite=True) as draft:
                number = int((folder / "number").read_text())
                (draft.path / "number").write_text(str(number + 1))
            rounds -= 1
        except FolderBusy:
            os.sched_yield()


def test_many_writers_lose_no_update(tmp_path: Path) -> None:
    with artifact.create(tmp_path / "out", "Corpus", config={}) as draft:
        (draft.path / "number").write_text("0")
    writers = [FORK.Process(target=add_rounds, args=(tmp_path / "out", 20)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert (tmp_path / "out" / "number").read_text() == "60"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
