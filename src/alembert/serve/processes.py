"""Several server processes on one port: the kernel hands each connection to one of them (SO_REUSEPORT).

The first process opens no model. It keeps the port, starts the others with a share of the cores each, starts one again that
has died, and hands a signal on. If it dies itself, the others stop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from alembert.errors import BadSetting
from alembert.serve.server import (
    ServerConfig,
    bind,
    run_server,
    stop_process,
    url_of,
    watch_parent,
)


def split_cores(cores: list[int], count: int) -> list[list[int]]:
    """Divide cores among processes; with fewer cores than processes, all have all of them.

    >>> split_cores([0, 1, 2, 3, 4], 2)
    [[0, 2, 4], [1, 3]]
    """
    return [cores[number::count] for number in range(count)] if len(cores) >= count else [cores] * count


@dataclass
class ServerProcess:
    """A server process, and the pipe on which it says that it is ready."""

    process: Any
    pipe: Connection
    cores: list[int]
    is_ready: bool = False

    @classmethod
    def start(cls, config: ServerConfig, cores: list[int]) -> ServerProcess:
        """Start a process, which has loaded nothing."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve_in_process, args=(config, cores, there))
        process.start()
        there.close()
        return cls(process, here, cores)

    def stop(self) -> None:
        """Hand on SIGTERM."""
        if self.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)


def serve_in_process(config: ServerConfig, cores: list[int], pipe: Connection) -> None:
    """Serve with some of the cores; runs in the process that `ServerProcess` starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one hands it on
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)

    def report(url: str) -> None:
        pipe.send(url)
        watch_parent(pipe, stop_process)

    run_server(config, report)


class Supervisor:
    """Starts server processes, keeps them running, and stops them."""

    def __init__(self, config: ServerConfig, count: int) -> None:
        if count < 2:
            raise BadSetting(f"`processes` is {count}; expected 1 or more.")
        self._bound = bind(config.host, config.port, reuse_port=True)
        self._config = replace(config, port=self._bound.getsockname()[1], reuse_port=True)
        self._count = count
        self._is_stopping = False
        self._children: list[ServerProcess] = []

    def run(self, on_started: Callable[[str], None], on_restart: Callable[[str], None]) -> int:
        """Serve until a signal; return the exit code. `on_restart` is called with a sentence."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
        with self._bound, self._signals():
            self._children = [ServerProcess.start(self._config, own) for own in split_cores(cores, self._count)]
            if self._wait_until_ready():
                on_started(url_of(self._config.host, self._bound))
                self._keep_running(on_restart)
            return self._finish()

    def _wait_until_ready(self) -> bool:
        for child in self._children:
            wait([child.pipe, child.process.sentinel])
            try:
                child.is_ready = bool(child.pipe.recv())
            except (EOFError, OSError):
                self._stop()
                return False
        return not self._is_stopping

    def _keep_running(self, on_restart: Callable[[str], None]) -> None:
        while not self._is_stopping:
            wait([child.process.sentinel for child in self._children], timeout=1.0)
            for number, child in enumerate(self._children):
                if not child.process.is_alive() and not self._is_stopping:
                    on_restart(f"a server process ended with code {child.process.exitcode}; another one is started")
                    child.pipe.close()
                    self._children[number] = ServerProcess.start(self._config, child.cores)

    def _finish(self) -> int:
        for child in self._children:
            child.process.join()
            child.pipe.close()
        return max(abs(int(child.process.exitcode or 0)) for child in self._children)

    def _stop(self, *_: Any) -> None:
        self._is_stopping = True
        for child in self._children:
            child.stop()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
