"""What tests on a Ray cluster share: a cluster of two workers, and models that end their process."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alembert.infer.annotate_pipeline import Pipeline
from alembert.workers.ray import RayCluster, RayConnection, connect
from finding_models import Finder, finder

TWO = RayCluster(workers=2)
PATIENCE = 60
_TESTS = Path(__file__).parent


def search_path() -> str:
    """Where workers find the modules of tests."""
    return os.pathsep.join(map(str, (_TESTS, _TESTS / "infer", _TESTS / "corpus")))


@contextmanager
def two_workers() -> Iterator[RayConnection]:
    """Start a cluster that runs use until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", search_path())
        patch.delenv("RAY_ADDRESS", raising=False)
        with connect(TWO) as connection:
            yield connection


@dataclass(frozen=True)
class Deadly(Finder):
    """A finder that ends a process where a text has the word `deadly`, unless the mark says that it has."""

    victim: int = 0
    """0: its own."""
    by: int = signal.SIGKILL
    mark: Path | None = None
    """None: it does so every time."""

    def say_all(self, examples: Sequence[Any]) -> list[Any]:
        deadly = any("deadly" in example.text for example in examples)
        if deadly and not (self.mark and self.mark.exists()):
            if self.mark:
                note_descendants(self.victim or os.getpid(), self.mark)
            os.kill(self.victim or os.getpid(), self.by)
        return super().say_all(examples)


def harmless(folder: Path) -> Pipeline:
    return Pipeline.from_models([finder(folder)])


def broken(folder: Path) -> Pipeline:
    return Pipeline.from_models([finder(folder, poison="")])


def deadly(folder: Path, mark: Path | None = None, victim: int = 0, by: int = signal.SIGKILL) -> Pipeline:
    plain = finder(folder)
    fate = {"victim": victim, "by": by, "mark": mark}
    return Pipeline.from_models([Deadly(folder, plain.engine, plain.tasks, **fate)])


def descendants(ancestor: int) -> dict[int, str]:
    """Give the processes that a process has started, and those that they have, each with the moment of its start."""
    parents, starts = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, facts = path.read_text().rpartition(") ")
        except OSError:  # it has just ended
            continue
        pid, fields = int(path.parent.name), facts.split()
        parents[pid], starts[pid] = int(fields[1]), fields[19]
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: starts[pid] for pid in family - {ancestor}}


def note_descendants(ancestor: int, file: Path) -> None:
    """Write down who is there, for a look at them when the process is gone."""
    file.write_text(json.dumps(descendants(ancestor)))


def alive(file: Path) -> list[int]:
    """Find those who were written down and live."""
    known: dict[str, str] = json.loads(file.read_text())
    return [int(pid) for pid, start in known.items() if _start_of(int(pid)) == start]


def _start_of(pid: int) -> str | None:
    try:
        _, _, facts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    except OSError:
        return None
    return None if facts.startswith("Z") else facts.split()[19]
