"""Workers that may die: processes of this machine, and a pool that returns results in the order of the jobs.

`run_processes` starts workers together, watches them and never leaves one behind. In: a job, which each worker runs to
its end; counters in shared memory distribute the work. The workers are forked where the system can, so that they share
what the parent has built (a gazetteer of hundreds of megabytes) without a copy; elsewhere it is pickled once for each
worker. The parent starts no thread before it forks. A worker ends with its parent, however that ends: it watches a pipe
that only the parent holds open. A job may be killed at any point, so it must write its results atomically.

`OrderedPool` takes a `WorkerBackend`, which starts workers and talks to them (`workers.ray` has one), and a stream of
jobs, none of them None, and returns the result of each job, once, in the order of the jobs, although any worker may die
at any moment. Jobs are taken from the stream as workers need them, so memory does not grow with their number. A job
whose worker has died is done by another. A replacement gets jobs when it is ready and not before: a cluster may have
lost the room for it. A job on which several workers have died ends the run with an error. The trade-off: jobs must be
idempotent.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, Protocol, TypeVar

from alembert.errors import UserError

ProcessJob = Callable[[], None]
_POLL_SECONDS = 0.25
_REFUSED_EXIT_CODE = 3


def get_context() -> BaseContext:
    """Return the context that forks workers, where the system can."""
    has_fork = "fork" in multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if has_fork else "spawn")


def default_workers() -> int:
    """Count the CPUs that this process may use."""
    from alembert.hardware.torch_settings import allowed_cpus, cpu_quota

    quota = cpu_quota()
    return max(1, min(len(allowed_cpus()), int(quota) if quota else len(allowed_cpus())))


def claim_numbers(counter: Any, total: int) -> Iterator[int]:
    """Yield the numbers below `total` that no other process has claimed from a shared counter."""
    while True:
        with counter.get_lock():
            number = int(counter.value)
            counter.value += 1
        if number >= total:
            return
        yield number


def run_processes(job: ProcessJob, workers: int, tick: Callable[[], None]) -> None:
    """Run a job in each of several processes and wait for all; `tick` is called a few times a second."""
    crew: list[_Process] = []
    try:
        crew += (_Process(job) for _ in range(workers))
        while any(worker.process.is_alive() for worker in crew):
            wait([worker.process.sentinel for worker in crew if worker.process.is_alive()], _POLL_SECONDS)
            _check(crew)
            tick()
        _check(crew)
    finally:
        for worker in crew:
            worker.process.kill()
            worker.process.join()


class _Process:
    """A started process, the pipe for its error message, and the pipe that it watches for the end of the parent.

    A later worker inherits the parent's ends of earlier pipes. That does no harm: when the parent ends, the last worker
    ends first.
    """

    def __init__(self, job: ProcessJob) -> None:
        self.report, report = get_context().Pipe(duplex=False)
        watched, self._lifeline = get_context().Pipe(duplex=False)
        arguments = (job, report, watched, self._lifeline)
        self.process: BaseProcess = get_context().Process(target=_work, args=arguments, daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        report.close()
        watched.close()


def _work(
    job: ProcessJob, report: Connection[Any, Any], watched: Connection[Any, Any], lifeline: Connection[Any, Any]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too, and decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.close()
    _end_with_parent(watched)
    gc.freeze()  # what came from the parent is never garbage, and visiting it would copy its memory
    try:
        job()
    except UserError as problem:
        report.send(str(problem))
        os._exit(_REFUSED_EXIT_CODE)


def _end_with_parent(watched: Connection[Any, Any]) -> None:
    """Let the system end this process when the other end of the pipe closes; nothing is ever sent on it."""
    if sys.platform == "win32":
        threading.Thread(target=lambda: (wait([watched]), os._exit(1)), daemon=True).start()
        return
    import fcntl

    # SIGIO ends a process at once, even inside a long call into C, which releases the lock of the artefact.
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(watched.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(watched.fileno(), fcntl.F_SETFL, fcntl.fcntl(watched.fileno(), fcntl.F_GETFL) | os.O_ASYNC)
    if watched.poll():
        os._exit(1)


def _check(crew: list[_Process]) -> None:
    for worker in crew:
        code = worker.process.exitcode
        if code == _REFUSED_EXIT_CODE and worker.report.poll():
            raise UserError(worker.report.recv())
        if code is not None and code < 0:
            raise UserError(
                f"A worker process was killed (signal {-code}); the machine may be out of memory. "
                "The work so far is kept: run the same command again, perhaps with fewer workers."
            )
        if code:
            raise RuntimeError(f"a worker process failed with exit code {code}; its traceback is above")


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
