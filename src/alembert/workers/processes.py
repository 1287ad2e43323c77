"""Worker processes: started together, watched, and never left behind.

In: a job, which each worker runs to its end; counters in shared memory distribute the work. The workers are forked where
the system can, so that they share what the parent has built (a gazetteer of hundreds of megabytes) without a copy;
elsewhere it is pickled once for each worker. The parent starts no thread before it forks. A worker ends with its parent,
however that ends: it watches a pipe that only the parent holds open. A job may be killed at any point, so it must write
its results atomically.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

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
    crew: list[_Worker] = []
    try:
        crew += (_Worker(job) for _ in range(workers))
        while any(worker.process.is_alive() for worker in crew):
            wait([worker.process.sentinel for worker in crew if worker.process.is_alive()], _POLL_SECONDS)
            _check(crew)
            tick()
        _check(crew)
    finally:
        for worker in crew:
            worker.process.kill()
            worker.process.join()


class _Worker:
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


def _check(crew: list[_Worker]) -> None:
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
