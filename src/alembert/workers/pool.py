"""Jobs in, results out in their order, by workers of which any may die at any moment.

In: what starts workers and talks to them (`WorkerBackend`; `cluster` has it for Ray), and a stream of jobs, none of them None.
Out: the result of each job, once, in the order of the jobs. Jobs are taken from the stream only as workers come to them,
a few for each worker, so memory does not grow with their number. A job whose worker has died is done by another. The
worker is replaced by one that gets jobs when it is ready and not before: a cluster may have lost the room for it. A job
on which several workers have died ends the run with a sentence. The trade-off: jobs must be such that doing one twice
does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from alembert.errors import UserError

J = TypeVar("J")
R = TypeVar("R")

MAX_WORKER_DEATHS: Final = 4
"""Workers that a job, or the start of workers, may cost before it is given up."""
_JOBS_PER_WORKER: Final = 2
"""Jobs that a worker has at once: the second is there when the first is done."""
_JOBS_AHEAD_PER_WORKER: Final = 3
"""Jobs for each worker that are taken from the stream and whose results are not given yet."""


class WorkerLost(Exception):
    """A worker has died, or cannot be reached, and what it had to do is not done."""


class WorkerBackend(Protocol):
    """Workers somewhere. Tickets stand for what they were told to do."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; give it and the ticket that is done when it is ready for jobs."""

    def submit(self, worker: Any, job: Any) -> Any:
        """Tell a worker to do a job after those that it has; give the ticket."""

    def wait(self, tickets: Sequence[Any]) -> Any:
        """Wait until one of the tickets is done, or its worker has died, and give that ticket."""

    def result(self, ticket: Any) -> Any:
        """Wait for the result of a ticket; raises `WorkerLost` if there is none any more."""

    def stop(self, worker: Any) -> None:
        """End a worker, which may have died."""


@dataclass(eq=False)
class _PooledJob(Generic[J]):
    number: int
    job: J
    deaths: int = 0


@dataclass(eq=False)
class _Worker(Generic[J]):
    handle: Any
    opening: Any
    """The ticket of its start; None when it is ready."""
    tasks: dict[Any, _PooledJob[J]] = field(default_factory=dict)
    """What it has to do, by ticket, in the order in which it does it."""


class OrderedPool(Generic[J, R]):
    """One run over a stream of jobs; `name` says in words what a job is."""

    def __init__(self, hands: WorkerBackend, workers: int, name: Callable[[J], str]) -> None:
        self._hands = hands
        self._name = name
        self._most = _JOBS_AHEAD_PER_WORKER * workers
        self._worker_limit = workers
        self._workers: list[_Worker[J]] = []
        self._retry_queue: list[_PooledJob[J]] = []
        self._done: dict[int, R] = {}
        self._taken = self._given = self._failed_starts = 0

    def run(self, jobs: Iterator[J]) -> Generator[R, None, None]:
        """Give the results; all workers are gone when it ends or is closed."""
        try:
            self._workers = [self._start_worker() for _ in range(self._worker_limit)]
            while True:
                self._dispatch(jobs)
                if self._given in self._done:
                    self._given += 1
                    yield self._done.pop(self._given - 1)
                elif self._given < self._taken or not self._ready():
                    self._wait_for_any()
                else:
                    return
        finally:
            for worker in self._workers:
                self._hands.stop(worker.handle)

    def _start_worker(self) -> _Worker[J]:
        return _Worker(*self._hands.start())

    def _ready(self) -> list[_Worker[J]]:
        return [worker for worker in self._workers if worker.opening is None]

    def _dispatch(self, jobs: Iterator[J]) -> None:
        """Give jobs to workers that have room for more, the idle ones first."""
        while free := [worker for worker in self._ready() if len(worker.tasks) < _JOBS_PER_WORKER]:
            task = self._next(jobs)
            if task is None:
                return
            worker = min(free, key=lambda each: len(each.tasks))
            worker.tasks[self._hands.submit(worker.handle, task.job)] = task

    def _next(self, jobs: Iterator[J]) -> _PooledJob[J] | None:
        """Take the first job that has lost its worker, or another one from the stream."""
        if self._retry_queue:
            first = min(self._retry_queue, key=lambda task: task.number)
            self._retry_queue.remove(first)
            return first
        if self._taken - self._given >= self._most:
            return None
        job = next(jobs, None)
        if job is None:
            return None
        self._taken += 1
        return _PooledJob(self._taken - 1, job)

    def _wait_for_any(self) -> None:
        """Wait for news of any worker."""
        owners = {worker.opening: worker for worker in self._workers if worker.opening is not None}
        owners |= {ticket: worker for worker in self._workers for ticket in worker.tasks}
        ticket = self._hands.wait(list(owners))
        worker = owners[ticket]
        if ticket is worker.opening:
            self._opened(worker)
            return
        try:
            self._collect(worker, ticket)
        except WorkerLost:
            self._on_death(worker)

    def _opened(self, worker: _Worker[J]) -> None:
        try:
            self._hands.result(worker.opening)
        except WorkerLost:
            self._failed_starts += 1
            if self._failed_starts >= MAX_WORKER_DEATHS:
                raise UserError(
                    f"{MAX_WORKER_DEATHS} workers have died one after the other before they were ready; their machines may be "
                    "out of memory, or lack alembert. Ray's logs say more."
                ) from None
            self._replace(worker)
        else:
            self._failed_starts, worker.opening = 0, None

    def _collect(self, worker: _Worker[J], ticket: Any) -> None:
        result: R = self._hands.result(ticket)
        self._done[worker.tasks.pop(ticket).number] = result

    def _on_death(self, worker: _Worker[J]) -> None:
        """Let others do what a dead worker had to do; it died on the first of the jobs that have no result."""
        for ticket in list(worker.tasks):
            with suppress(WorkerLost):
                self._collect(worker, ticket)
        left = list(worker.tasks.values())
        for task in left[:1]:
            self._count_failure(task)
        self._retry_queue += left
        self._replace(worker)

    def _count_failure(self, task: _PooledJob[J]) -> None:
        task.deaths += 1
        if task.deaths >= MAX_WORKER_DEATHS:
            raise UserError(
                f"{MAX_WORKER_DEATHS} workers have died one after the other on {self._name(task.job)}; they may need more memory "
                "than there is. The work so far is kept: mend that, or leave them out, and run the command again."
            )

    def _replace(self, worker: _Worker[J]) -> None:
        self._hands.stop(worker.handle)
        self._workers[self._workers.index(worker)] = self._start_worker()
