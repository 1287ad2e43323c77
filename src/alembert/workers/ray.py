"""Workers on a Ray cluster: one that is there, or one that is started on this machine and ended with the run.

In: a `RayCluster` (which one, how many workers, how many CPUs each has), what makes a worker ready, and jobs. Out: the
results in the order of the jobs, by `hands`, which see to workers that die. alembert must be installed on every machine
of the cluster, and files lie under the same paths on all of them.

Actors of Ray are used, and not Ray Data: it keeps the order, but reads as far ahead as its object store holds,
and a job that kills its worker is either tried for ever or ends the run without a word of which it was. Usage reports and
the dashboard are off; a cluster that is started here listens on this machine alone.
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

from alembert.errors import BadSetting, Interrupted, UserError
from alembert.extras import require
from alembert.workers import processes
from alembert.workers.pool import OrderedPool, WorkerLost

J = TypeVar("J")
R = TypeVar("R")

_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_UNREACHABLE_PROXY: Final = "http://127.0.0.1:9"
_LOCAL_ONLY: Final = {
    # On all systems as on those where Ray has no clusters: it listens on this machine alone. Whoever reaches the ports of
    # a cluster can run programs there.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # It asks addresses outside which cloud it is in, reports or not; nothing answers here.
    "HTTP_PROXY": _UNREACHABLE_PROXY,
    "http_proxy": _UNREACHABLE_PROXY,
}
_ADDRESS: Final = "RAY_ADDRESS"
_CONNECT_TIMEOUT: Final = 10
"""Seconds in which a cluster answers."""


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """Where workers run, and how many."""

    address: str | None = None
    """Of a cluster that is there; that of RAY_ADDRESS if not given, and without both one is started on this machine."""
    workers: int | None = None
    """As many as the cluster has CPUs for if not given."""
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
        """The address of a cluster that is there."""
        return self.address or os.environ.get(_ADDRESS) or None


@dataclass(frozen=True)
class WorkerSpec(Generic[J, R]):
    """What workers do: `open` runs once on each and gives what does the jobs; `name` says in words what a job is."""

    make_worker: Callable[[], Callable[[J], R]]
    describe_job: Callable[[J], str]


@dataclass(frozen=True)
class RayConnection:
    """A cluster that can be used."""

    ray: Any
    cluster: RayCluster

    def run(self, work: WorkerSpec[J, R], jobs: Iterator[J]) -> Generator[R, None, None]:
        """Give the result of each job in their order."""
        hands = _RayBackend(self.ray, self.cluster, work.make_worker)
        return OrderedPool[J, R](hands, self.workers, work.describe_job).run(jobs)

    @property
    def workers(self) -> int:
        """How many it is used with."""
        there = int(self.ray.cluster_resources().get("CPU", 0))
        return self.cluster.workers or max(1, there // self.cluster.cpus)


@contextmanager
def connect(cluster: RayCluster) -> Iterator[RayConnection]:
    """Use a cluster as long as the block lasts; one that was started for it is ended with it.

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
    """Refuse, before anything is begun, to work without Ray."""
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
    """See that somebody is there, for which Ray itself takes minutes; addresses with a scheme are left to it."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT).close()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for what is imported and started meanwhile."""
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
    """As many as there are, or as the workers that were asked for need."""
    return cluster.cpus * cluster.workers if cluster.workers else max(cluster.cpus, processes.default_workers())


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does; a cluster whose program is gone takes a minute to notice."""
    with _restore_sigterm():
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _stop)
        yield


def _stop(number: int, _: FrameType | None) -> None:
    raise Interrupted("stopped: the same command goes on where this one was", number)


@contextmanager
def _restore_sigterm() -> Iterator[None]:
    """Put back what SIGTERM does: Ray lets it end the program with a code of its own."""
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
    """What a user can mend, said by a worker; not every error can be pickled."""

    sentence: str


class _Actor:
    """A worker: a process of its own, on any machine of the cluster."""

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
    """Actors of Ray. They are not restarted by Ray: whoever has lost one decides what comes next."""

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
