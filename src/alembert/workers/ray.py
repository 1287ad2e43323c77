"""Workers on a Ray cluster: an existing one, or one that is started on this machine for the run.

In: a `RayCluster` (its address, how many workers, how many CPUs each has), a `WorkerSpec`, and jobs. Out: the
results in the order of the jobs, by `pool`, which replaces workers that die. alembert must be installed on every
machine of the cluster, and files must have the same paths on all of them.

The workers are Ray actors and not Ray Data, which keeps the order, but reads as far ahead as its object store holds,
and either repeats a job that kills its worker for ever or ends the run without naming it. Usage reports and the
dashboard are off; a cluster that is started here listens on this machine alone.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Generic, TypeVar

from alembert.errors import BadSetting, Interrupted, UserError, require
from alembert.workers import pool
from alembert.workers.pool import OrderedPool, WorkerLost

J = TypeVar("J")
R = TypeVar("R")

_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_UNREACHABLE_PROXY: Final = "http://127.0.0.1:9"
_LOCAL_ONLY: Final = {
    # Listen on this machine alone, as on systems where Ray has no clusters: whoever reaches the ports of a cluster can
    # run programs there.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray asks outside addresses which cloud it is in, even with reports off; this proxy never answers.
    "HTTP_PROXY": _UNREACHABLE_PROXY,
    "http_proxy": _UNREACHABLE_PROXY,
}
_ADDRESS: Final = "RAY_ADDRESS"
_CONNECT_TIMEOUT: Final = 10
"""Seconds until a cluster must have answered."""


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Where workers run, and how many."""

    address: str | None = None
    """Of an existing cluster; the default is RAY_ADDRESS, and without both a cluster is started on this machine."""
    workers: int | None = None
    """The default is as many as the cluster has CPUs for."""
    cpus: int = 1
    """CPUs, and threads, of each worker."""
    gpus: int = 0
    """GPUs of each worker."""

    def __post_init__(self) -> None:
        for name in ("workers", "cpus"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise BadSetting(f"`{name}` is {value}; a worker needs at least one, and so does a cluster.")

    @property
    def existing_address(self) -> str | None:
        return self.address or os.environ.get(_ADDRESS) or None


@dataclass(frozen=True)
class WorkerSpec(Generic[J, R]):
    """The work: `make_worker` runs once on each worker and returns what does jobs; `describe_job` is for messages."""

    make_worker: Callable[[], Callable[[J], R]]
    describe_job: Callable[[J], str]


@dataclass(frozen=True)
class RayConnection:
    """A connected cluster."""

    ray: Any
    cluster: RayCluster

    def run(self, work: WorkerSpec[J, R], jobs: Iterator[J]) -> Generator[R, None, None]:
        """Yield the results in the order of the jobs."""
        backend = _RayBackend(self.ray, self.cluster, work.make_worker)
        return OrderedPool[J, R](backend, self.workers, work.describe_job).run(jobs)

    @property
    def workers(self) -> int:
        cpus = int(self.ray.cluster_resources().get("CPU", 0))
        return self.cluster.workers or max(1, cpus // self.cluster.cpus)


@contextmanager
def connect(cluster: RayCluster) -> Iterator[RayConnection]:
    """Connect to a cluster until the end of the block; one that was started for it is stopped.

    A program that has called `ray.init` itself keeps its connection.
    """
    check_ray_installed()
    with _interrupt_on_sigterm():
        with _environment(_QUIET if cluster.existing_address else _QUIET | _LOCAL_ONLY):
            ray = importlib.import_module("ray")
            if not (before := ray.is_initialized()):
                _initialise(ray, cluster)
        try:
            yield RayConnection(ray, cluster)
        finally:
            if not before:
                ray.shutdown()


def check_ray_installed() -> None:
    require("Work on a Ray cluster", "ray")


def _initialise(ray: Any, cluster: RayCluster) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _restore_sigterm():
        try:
            if cluster.existing_address is None:
                ray.init("local", num_cpus=_local_cpus(cluster), include_dashboard=False, **quiet)
            else:
                _check_reachable(cluster.existing_address)
                ray.init(cluster.existing_address, **quiet)
        except BaseException as problem:
            ray.shutdown()
            if not isinstance(problem, OSError | ValueError | RuntimeError):
                raise
            where = (
                f"at {cluster.existing_address} cannot be reached"
                if cluster.existing_address
                else "cannot be started here"
            )
            raise BadSetting(
                f"The Ray cluster {where} ({type(problem).__name__}). Check the address, the token and that Ray has the "
                "same version there, or start a cluster: ray start --head"
            ) from problem


def _check_reachable(address: str) -> None:
    """Check that a host answers, for which Ray itself takes minutes; addresses with a scheme are left to Ray."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT).close()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _local_cpus(cluster: RayCluster) -> int:
    """Return the CPUs that the requested workers need, or all."""
    return cluster.cpus * cluster.workers if cluster.workers else max(cluster.cpus, pool.default_workers())


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does; a cluster takes a minute to notice that its program has ended."""
    with _restore_sigterm():
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _stop)
        yield


def _stop(number: int, _: FrameType | None) -> None:
    raise Interrupted("stopped: the same command goes on where this one was", number)


@contextmanager
def _restore_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if _in_main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@dataclass(frozen=True)
class _WorkerRefusal:
    """The message of a `UserError` of a worker; not every error can be pickled."""

    sentence: str


class _Actor:
    """A worker process on any machine of the cluster."""

    def __init__(self, cpus: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(cpus)  # before anything that computes is loaded
        self._work: Callable[[Any], Any] | None = None

    def open(self, opener: Callable[[], Callable[[Any], Any]]) -> _WorkerRefusal | None:
        try:
            self._work = opener()
        except UserError as problem:
            where = f"A worker on {socket.gethostname()} cannot begin"
            return _WorkerRefusal(f"{where}: {problem} Files must lie under the same paths on all machines.")
        return None

    def work(self, job: Any) -> Any:
        if self._work is None:
            raise RuntimeError("the worker was not opened")
        try:
            return self._work(job)
        except UserError as problem:
            return _WorkerRefusal(str(problem))


class _RayBackend:
    """Workers as Ray actors, which Ray does not restart: the pool decides."""

    def __init__(self, ray: Any, cluster: RayCluster, opener: Callable[[], Callable[[Any], Any]]) -> None:
        self._ray = ray
        self._cpus = cluster.cpus
        resources = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus}
        self._actor = ray.remote(max_restarts=0, max_task_retries=0, **resources)(_Actor)
        self._opener = ray.put(opener)

    def start(self) -> tuple[Any, Any]:
        actor = self._actor.remote(self._cpus)
        return actor, actor.open.remote(self._opener)

    def submit(self, worker: Any, job: Any) -> Any:
        return worker.work.remote(job)

    def wait(self, tickets: Sequence[Any]) -> Any:
        done, _ = self._ray.wait(list(tickets), num_returns=1)
        return done[0]

    def result(self, ticket: Any) -> Any:
        try:
            result = self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError:  # a bug, as it would be here
            raise
        except self._ray.exceptions.RayError as lost:
            raise WorkerLost from lost
        if isinstance(result, _WorkerRefusal):
            raise UserError(result.sentence)
        return result

    def stop(self, worker: Any) -> None:
        self._ray.kill(worker, no_restart=True)
