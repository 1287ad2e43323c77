"""An `annotate` that is killed again and again ends with the bytes of one that was not, poisoned documents included."""

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
from alembert.infer.annotate import AnnotateSettings, annotate
from alembert.infer.annotate_chunks import PART_FORMATS
from alembert.infer.annotate_pipeline import Pipeline

sys.path.append(str(Path(__file__).parents[1]))
from finding_models import finder
from poisoned import ids_in, write_poisoned

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
pytestmark = pytest.mark.skipif(FORK is None, reason="needs fork and SIGKILL")

PATIENCE = 60
FEW, MANY = 8, 30
TOUCHES_DISK = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree"}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has written outlives its kill: here, fsync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs, a model, and what quiet runs gave in each format."""
    folder = tmp_path_factory.mktemp("kills")
    write_poisoned(folder / "in")
    finder(folder / "model")
    for form in PART_FORMATS:
        run(folder, folder / f"quiet-{form}", form)
    return folder


def run(work: Path, out: Path, form: str) -> None:
    pipeline = Pipeline.from_models([finder(work / "model")])
    while True:
        try:
            annotate(pipeline, [work / "in"], out, AnnotateSettings(format=form, part_characters=1000))
        except FolderBusy:
            os.sched_yield()
        else:
            return


def run_and_die(work: Path, out: Path, form: str, step: int) -> None:
    """Annotate, but die just before the given operation on the disk."""
    steps, victim = count(1), os.getpid()

    def die(event: str, _: object) -> None:
        if event in TOUCHES_DISK and next(steps) == step:
            os.kill(victim, signal.SIGKILL)

    sys.addaudithook(die)
    run(work, out, form)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def killed_before_operations(work: Path, place: Path, form: str, kills: int) -> list[Path]:
    """Let runs die before random operations; give the folders that are complete in the end."""
    numbers, finished = random.Random(kills), 0
    while kills > 0:
        out = place / str(finished)
        step = int(2 ** numbers.uniform(0, 9))
        process = FORK.Process(target=run_and_die, args=(work, out, form, step))
        process.start()
        process.join(PATIENCE)
        kills -= process.exitcode == -signal.SIGKILL
        finished += process.exitcode == 0
    run(work, place / str(finished), form)
    return [place / str(number) for number in range(finished + 1)]


def killed_at_moments(work: Path, place: Path, form: str, kills: int) -> list[Path]:
    """Kill runs after random times; give the folders that are complete in the end."""
    numbers, finished, most = random.Random(7), 0, kills
    while kills > 0 and finished < most:
        process = FORK.Process(target=run, args=(work, place / str(finished), form))
        process.start()
        process.join(numbers.uniform(0, 0.4))
        process.kill()
        process.join(PATIENCE)
        kills -= process.exitcode == -signal.SIGKILL
        finished += process.exitcode == 0
    run(work, place / str(finished), form)
    return [place / str(number) for number in range(finished + 1)]


@pytest.mark.parametrize("form", ["jsonl", "brat"])
def test_killed_before_any_operation_on_the_disk(work: Path, tmp_path: Path, form: str) -> None:
    for folder in killed_before_operations(work, tmp_path, form, FEW):
        assert content(folder) == content(work / f"quiet-{form}")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_killed_at_random_moments(work: Path, tmp_path: Path, form: str) -> None:
    for folder in killed_at_moments(work, tmp_path, form, FEW):
        assert content(folder) == content(work / f"quiet-{form}")


@pytest.mark.slow
@pytest.mark.parametrize("form", list(PART_FORMATS))
def test_killed_thirty_times_in_every_format(work: Path, tmp_path: Path, form: str) -> None:
    for folder in killed_before_operations(work, tmp_path, form, MANY):
        assert content(folder) == content(work / f"quiet-{form}")


@pytest.mark.parametrize("form", list(PART_FORMATS))
def test_the_quiet_runs_hold_each_document_once(work: Path, form: str) -> None:
    quiet = work / f"quiet-{form}"
    aside = [json.loads(line) for line in (quiet / "set-aside.jsonl").read_text().splitlines()]
    names = [name for path in quiet.glob("part-*") for name in ids_in(path)]
    names += [each["id"] for each in aside if each["id"]]
    assert len(set(names)) == len(names) > 100
