"""A pool of workers that returns results in the order of the jobs, although any worker may die at any moment.

In: a `WorkerBackend`, which starts workers and talks to them (`workers.ray` has one), and a stream of jobs, none of them
None. Out: the result of each job, once, in the order of the jobs. Jobs are taken from the stream as workers need them,
so memory does not grow with their number. A job whose worker has died is done by another. A replacement gets jobs when
it is ready and not before: a cluster may have lost the room for it. A job on which several workers have died ends the
run with an error. The trade-off: jobs must be idempotent.
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
"""Workers that may die on a job, or before they are ready, before the run ends."""
_JOBS_PER_WORKER: Final = 2
"""Jobs that a worker has at once, so that the next one is there when one is done."""
_JOBS_AHEAD_PER_WORKER: Final = 3
"""Jobs per worker that are taken from the stream and whose results are not yielded yet."""


class WorkerLost(Exception):
    """A worker has died, or cannot be reached, and what it had to do is not done."""


class WorkerBackend(Protocol):
    """Starts workers and passes jobs to them; a ticket identifies a submitted job."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; return it and the ticket that is done when it is ready for jobs."""

    def submit(self, worker: Any, job: Any) -> Any:
        """Queue a job for a worker; return the ticket."""

    def wait(self, tickets: Sequence[Any]) -> Any:
        """Wait until one of the tickets is done, or its worker has died, and return that ticket."""

    def result(self, ticket: Any) -> Any:
        """Wait for the result of a ticket; raise `WorkerLost` if its worker has died."""

    def stop(self, worker: Any) -> None:
        """Stop a worker, which may have died."""


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
    """Its jobs by ticket, in order."""


class OrderedPool(Generic[J, R]):
    """One run over a stream of jobs; `describe_job` names a job in messages."""

    def __init__(self, backend: WorkerBackend, workers: int, describe_job: Callable[[J], str]) -> None:
        self._backend = backend
        self._describe_job = describe_job
        self._max_ahead = _JOBS_AHEAD_PER_WORKER * workers
        self._worker_limit = workers
        self._workers: list[_Worker[J]] = []
        self._retry_queue: list[_PooledJob[J]] = []
        self._done: dict[int, R] = {}
        self._dispatched = self._yielded = self._failed_starts = 0

    def run(self, jobs: Iterator[J]) -> Generator[R, None, None]:
        """Yield the results; all workers are stopped when it ends or is closed."""
        try:
            self._workers = [self._start_worker() for _ in range(self._worker_limit)]
            while True:
                self._dispatch(jobs)
                if self._yielded in self._done:
                    self._yielded += 1
                    yield self._done.pop(self._yielded - 1)
                elif self._yielded < self._dispatched or not self._ready():
                    self._wait_for_any()
                else:
                    return
        finally:
            for worker in self._workers:
                self._backend.stop(worker.handle)

    def _start_worker(self) -> _Worker[J]:
        return _Worker(*self._backend.start())

    def _ready(self) -> list[_Worker[J]]:
        return [worker for worker in self._workers if worker.opening is None]

    def _dispatch(self, jobs: Iterator[J]) -> None:
        """Submit jobs to workers that have room for more, the idle ones first."""
        while free := [worker for worker in self._ready() if len(worker.tasks) < _JOBS_PER_WORKER]:
            task = self._next(jobs)
            if task is None:
                return
            worker = min(free, key=lambda candidate: len(candidate.tasks))
            worker.tasks[self._backend.submit(worker.handle, task.job)] = task

    def _next(self, jobs: Iterator[J]) -> _PooledJob[J] | None:
        """Take the first job that has lost its worker, or another one from the stream."""
        if self._retry_queue:
            first = min(self._retry_queue, key=lambda task: task.number)
            self._retry_queue.remove(first)
            return first
        if self._dispatched - self._yielded >= self._max_ahead:
            return None
        job = next(jobs, None)
        if job is None:
            return None
        self._dispatched += 1
        return _PooledJob(self._dispatched - 1, job)

    def _wait_for_any(self) -> None:
        """Wait for a result, or the death, of any worker."""
        owners = {worker.opening: worker for worker in self._workers if worker.opening is not None}
        owners |= {ticket: worker for worker in self._workers for ticket in worker.tasks}
        ticket = self._backend.wait(list(owners))
        worker = owners[ticket]
        if ticket is worker.opening:
            self._on_ready(worker)
            return
        try:
            self._collect(worker, ticket)
        except WorkerLost:
            self._on_death(worker)

    def _on_ready(self, worker: _Worker[J]) -> None:
        try:
            self._backend.result(worker.opening)
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
        result: R = self._backend.result(ticket)
        self._done[worker.tasks.pop(ticket).number] = result

    def _on_death(self, worker: _Worker[J]) -> None:
        """Queue the jobs of a dead worker again; it died on the first of those without a result."""
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
                f"{MAX_WORKER_DEATHS} workers have died one after the other on {self._describe_job(task.job)}; they may need more memory "
                "than there is. The work so far is kept: mend that, or leave them out, and run the command again."
            )

    def _replace(self, worker: _Worker[J]) -> None:
        self._backend.stop(worker.handle)
        self._workers[self._workers.index(worker)] = self._start_worker()
