"""Folders that are expensive to make: filled once for all workers of a run, then only read."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


class SharedFolders:
    """Makes a folder in the first worker that asks for it; tests read such a folder and never write there."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        own = factory.getbasetemp()
        self.root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(self, name: str, fill: Callable[[Path], object]) -> Path:
        """Return a folder, filled by this worker or by another one."""
        folder, done = self.root / f"shared-{name}", self.root / f"shared-{name}.done"
        with (self.root / f"shared-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait until the folder is complete
            if not done.exists():
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder
