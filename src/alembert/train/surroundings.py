"""How a run talks to the outside, and where it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from alembert.corpus.fetch import CACHE_FOLDER
from alembert.corpus.jobs import Progress
from alembert.train.distributed import Processes
from alembert.train.runlog import TrainingProgress


@dataclass(frozen=True)
class Surroundings:
    """What a run is given beside data and settings."""

    dictionary: Path | None = None
    """Terms of the user that are one word in Chinese."""
    cache: Path | None = None
    """Where shards, and whatever else is made on the way, are kept; none: a hidden folder beside the result."""
    workers: int | None = None
    """Processes that prepare the data; none: one for each CPU."""
    device: str = "cpu"
    shard: bool = False
    """Spread the model over the processes of torchrun (FSDP2), if it does not fit into one."""
    overwrite: bool = False
    say: Callable[[str], None] = lambda _: None
    """Called with sentences about what is done."""
    show: Callable[[Sequence[str]], None] = lambda _: None
    """Called with lines that belong together: a table."""
    tell_reading: Callable[[Progress], None] = lambda _: None
    tell: Callable[[TrainingProgress], None] = lambda _: None

    def cache_for(self, out: Path) -> Path:
        """Give the folder for what is made on the way to a result."""
        return self.cache or out.absolute().parent / CACHE_FOLDER

    def silent(self) -> Surroundings:
        """Give the same for a process that says nothing."""
        quiet = Surroundings()
        return replace(self, say=quiet.say, show=quiet.show, tell_reading=quiet.tell_reading, tell=quiet.tell)


@contextmanager
def among_processes(around: Surroundings | None) -> Iterator[tuple[Surroundings, Processes]]:
    """Join the processes of torchrun, of which the first alone speaks."""
    with Processes.join() as processes:
        around = around or Surroundings()
        yield (around if processes.is_first else around.silent()), processes
