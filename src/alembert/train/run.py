"""What surrounds a training run: its output folder, its context, and how it ends on request.

The output folder is checked before the work, begun by the first process, and read by the others. The first SIGINT
(Ctrl-C) or SIGTERM (a cluster that wants its machine back) is only noted: the loop looks at
`StopSignalHandler.requested` between two steps, saves, and raises `TrainingInterrupted`. Whoever cannot wait presses
Ctrl-C again. The trade-off: a stop takes as long as the step under way and one save.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from alembert import artifact
from alembert.artifact import Draft
from alembert.artifact.opening import locate_artifact
from alembert.corpus.fetch import CACHE_FOLDER
from alembert.corpus.jobs import Progress
from alembert.errors import AlreadyDone, Interrupted
from alembert.files.checkpoint import CHECKPOINT_KIND
from alembert.train.distributed import Processes
from alembert.train.runlog import TrainingProgress


@dataclass(frozen=True)
class OutputFolder:
    """Where a Checkpoint is made, and by which plan: configuration, inputs and seed."""

    out: Path
    plan: dict[str, Any]
    processes: Processes
    overwrite: bool = False

    @property
    def partial_folder(self) -> Path:
        """The folder until it is complete."""
        return locate_artifact(self.out).partial

    def check(self) -> None:
        """Refuse a place that the result cannot go to, or where it is already."""
        self.processes.on_first(self._check)

    def _check(self) -> None:
        if not self.overwrite and artifact.find_finished(self.out, CHECKPOINT_KIND, **self.plan):
            raise AlreadyDone(f"{self.out} is complete already, with these settings and inputs.")
        artifact.check_can_create(self.out, CHECKPOINT_KIND, overwrite=self.overwrite, **self.plan)

    @contextmanager
    def open(self) -> Iterator[Draft]:
        """Begin the artefact in the first process; the others read its states and write nothing."""
        with ExitStack() as held:
            written = artifact.create(self.out, CHECKPOINT_KIND, resume=True, overwrite=self.overwrite, **self.plan)
            begin = partial(held.enter_context, written)
            read = partial(Draft, self.partial_folder, resumed=True)
            yield self.processes.agree(begin if self.processes.is_first else read)


@dataclass(frozen=True)
class RunContext:
    """What a run is given beside data and settings."""

    dictionary: Path | None = None
    """Terms of the user that are one word in Chinese."""
    held_out_general: Path | None = None
    """Text of no domain, on which pre-training is evaluated too."""
    cache: Path | None = None
    """Where shards, and whatever else is made on the way, are kept; none: a hidden folder beside the result."""
    workers: int | None = None
    """Processes that prepare the data; none: one for each CPU."""
    device: str = "cpu"
    shard: bool = False
    """Spread the model over the processes of torchrun (FSDP2), if it does not fit into one."""
    overwrite: bool = False
    log: Callable[[str], None] = lambda _: None
    """Called with sentences about what is done."""
    print_table: Callable[[Sequence[str]], None] = lambda _: None
    """Called with lines that belong together: a table."""
    on_reading: Callable[[Progress], None] = lambda _: None
    on_progress: Callable[[TrainingProgress], None] = lambda _: None

    def cache_for(self, out: Path) -> Path:
        """Return the folder for what is made on the way to a result."""
        return self.cache or out.absolute().parent / CACHE_FOLDER

    def silent(self) -> RunContext:
        """Return the same for a process that prints nothing."""
        quiet = RunContext()
        return replace(
            self,
            log=quiet.log,
            print_table=quiet.print_table,
            on_reading=quiet.on_reading,
            on_progress=quiet.on_progress,
        )


@contextmanager
def join_processes(context: RunContext | None) -> Iterator[tuple[RunContext, Processes]]:
    """Join the processes of torchrun, of which the first alone speaks."""
    with Processes.join() as processes:
        context = context or RunContext()
        yield (context if processes.is_first else context.silent()), processes


class TrainingInterrupted(Interrupted):
    """A run was asked to end, and has saved its state."""

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"Stopped by {name}: the state is saved. Run the same command again to continue.", number)


class StopSignalHandler:
    """Note requests to stop while the block runs; outside of the main thread, where Python allows no handlers, do nothing.

    A process forked inside the block inherits this deafness to SIGTERM.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        """Number of the first signal that came; none: go on."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # SIGINT first, and last to be restored: it raises, and a SIGTERM handler must not stay behind.
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, or in a script's background
                    self._before[number] = signal.signal(number, self._note) or signal.SIG_DFL
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
