"""The folder that a run writes: checked before the work, begun by the first process, read by the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from alembert import artifact
from alembert.artifact import Draft
from alembert.artifact.opening import locate_artifact
from alembert.errors import AlreadyDone
from alembert.files.checkpoint import CHECKPOINT_KIND
from alembert.train.distributed import Processes


@dataclass(frozen=True)
class Workplace:
    """Where a Checkpoint is made, and by which plan: configuration, inputs and seed."""

    out: Path
    plan: dict[str, Any]
    processes: Processes
    overwrite: bool = False

    @property
    def unfinished(self) -> Path:
        """The folder until it is complete."""
        return locate_artifact(self.out).partial

    def check(self) -> None:
        """Refuse a place that the result cannot go to, or where it is already."""
        self.processes.first_alone(self._check)

    def _check(self) -> None:
        if not self.overwrite and artifact.find_finished(self.out, CHECKPOINT_KIND, **self.plan):
            raise AlreadyDone(f"{self.out} is complete already, with these settings and inputs.")
        artifact.check_can_create(self.out, CHECKPOINT_KIND, overwrite=self.overwrite, **self.plan)

    @contextmanager
    def begun(self) -> Iterator[Draft]:
        """Begin the artefact in the first process; the others read its states and write nothing."""
        with ExitStack() as held:
            written = artifact.create(self.out, CHECKPOINT_KIND, resume=True, overwrite=self.overwrite, **self.plan)
            begin = partial(held.enter_context, written)
            read = partial(Draft, self.unfinished, resumed=True)
            yield self.processes.agree(begin if self.processes.is_first else read)
