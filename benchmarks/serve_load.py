"""A load generator for `serve.py`: HTTP/1.1 on kept connections, by callbacks alone, so that it takes little of the cores that it measures.

In: a port and the bodies of requests. Out: an `Outcome`, the seconds and statuses that clients saw. An open loop sends at a
pace, whatever comes back, and counts from the moment at which a request was due; a closed loop asks again once answered.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median

LIMIT = 4.0
"""Seconds within which an answer is of use; twice the `max_queue_seconds` of the service."""
PATIENCE = 3 * LIMIT
"""Seconds after which a client gives up and closes its connection."""
MOST_CONNECTIONS = 4000
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_TICK = 0.002


@dataclass
class Outcome:
    """What clients saw: seconds of answers and of refusals, every status, and requests without either."""

    seconds: float = 0.0
    in_time: int = 0
    """Answers that came while the load lasted, within `LIMIT`."""
    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    given_up: int = 0
    lost: int = 0
    """Connections that the server closed without an answer."""
    server_cpu: float = 0.0
    """Seconds of cores that the server took, whatever else the machine did; 0 if they were not measured."""

    @property
    def goodput(self) -> float:
        return self.in_time / self.seconds

    @property
    def server_errors(self) -> int:
        return sum(number for status, number in self.statuses.items() if status >= 500)

    @property
    def cpu_ms_an_answer(self) -> float:
        return round(1000 * self.server_cpu / max(1, self.statuses[200]), 3)

    def figures(self) -> dict[str, float]:
        measured = {"server_cpu_ms_an_answer": self.cpu_ms_an_answer} if self.server_cpu else {}
        return measured | {
            "goodput": round(self.goodput, 2),
            "p50_ms": percentile(self.answered, 0.5),
            "p99_ms": percentile(self.answered, 0.99),
            "refused": len(self.refused),
            "refused_p99_ms": percentile(self.refused, 0.99),
            "errors_5xx": self.server_errors,
            "given_up": self.given_up,
            "lost": self.lost,
        }


def percentile(seconds: Sequence[float], share: float) -> float:
    """Milliseconds; 0 if there are none."""
    ordered = sorted(seconds) or [0.0]
    return round(1000 * (median(ordered) if share == 0.5 else ordered[int(share * (len(ordered) - 1))]), 1)


def request_bytes(body: bytes, path: str = "/v1/predict", *, headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {size}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """A connection on which one request is under way at most."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.due: float | None = None
        """When the request under way was due; none: there is no request."""
        self.received = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.load.connections.add(self)

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.timer = self.load.loop.call_later(PATIENCE, self.give_up)
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        length = _LENGTH.search(self.received, 0, end) if end >= 0 else None
        if length is None or self.due is None or len(self.received) < end + 4 + int(length[1]):
            return
        status, head = int(self.received[9:12]), self.received[:end].lower()
        due, self.due, self.received = self.due, None, b""
        self.timer.cancel()
        self.load.note(status, due)
        if b"connection: close" in head:
            self.transport.close()
        else:
            self.load.is_free(self)

    def give_up(self) -> None:
        self.due = None
        self.load.outcome.given_up += 1
        self.transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        self.load.connections.discard(self)
        if self.due is not None:
            self.timer.cancel()
            self.load.outcome.lost += 1
        self.load.is_gone(self)


class Load:
    """Sends requests to a service for a while."""

    def __init__(self, port: int, bodies: Sequence[bytes], *, stop_at_status: int | None = None) -> None:
        self.port = port
        self.requests = [request_bytes(body) for body in bodies]
        self.stop_at_status = stop_at_status
        self.outcome = Outcome()
        self.connections: set[Connection] = set()
        self.idle: list[Connection] = []
        self._numbers = count()
        self._is_closed_loop = False
        self._opening: set[asyncio.Task[None]] = set()
        self._end = 0.0

    def closed_loop(self, clients: int, seconds: float) -> Outcome:
        """Let clients ask again as soon as they are answered."""
        return asyncio.run(self.run_closed(clients, seconds))

    def open_loop(self, rate: float, seconds: float) -> Outcome:
        """Send requests at a pace."""
        return asyncio.run(self.run_open(rate, seconds))

    async def run_closed(self, clients: int, seconds: float) -> Outcome:
        self._begin(seconds)
        self._is_closed_loop = True
        for _ in range(clients):
            self._connect(time.perf_counter())
        while time.perf_counter() < self._end:
            await asyncio.sleep(min(0.05, seconds))
        return await self._finish()

    async def run_open(self, rate: float, seconds: float) -> Outcome:
        begun = self._begin(seconds)
        for number in range(int(rate * seconds)):
            due = begun + number / rate
            while (now := time.perf_counter()) < due:
                await asyncio.sleep(max(_TICK, due - now))
            if now > self._end:
                break
            while self.idle and self.idle[-1].transport.is_closing():
                self.idle.pop()
            if self.idle:
                self.idle.pop().send(self._next(), due)
            elif len(self.connections) + len(self._opening) < MOST_CONNECTIONS:
                self._connect(due)
            else:
                self.outcome.given_up += 1
        return await self._finish()

    def _begin(self, seconds: float) -> float:
        self.loop = asyncio.get_running_loop()
        self.outcome.seconds = seconds
        now = time.perf_counter()
        self._end = now + seconds
        return now

    async def _finish(self) -> Outcome:
        """Wait for what is under way."""
        while self._opening or any(each.due is not None for each in self.connections):
            await asyncio.sleep(_TICK)
        for connection in [*self.connections]:
            connection.transport.abort()
        await asyncio.sleep(0)
        return self.outcome

    def _next(self) -> bytes:
        return self.requests[next(self._numbers) % len(self.requests)]

    def _connect(self, due: float) -> None:
        task = self.loop.create_task(self._open(due))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, due: float) -> None:
        try:
            _, connection = await self.loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        except OSError:
            self.outcome.lost += self.stop_at_status is None  # a server that has ended takes no connections
            return
        connection.send(self._next(), due)

    def note(self, status: int, due: float) -> None:
        now = time.perf_counter()
        seconds = now - due
        self.outcome.statuses[status] += 1
        (self.outcome.answered if status == 200 else self.outcome.refused).append(seconds)
        self.outcome.in_time += status == 200 and seconds <= LIMIT and now <= self._end
        if status == self.stop_at_status:
            self._end = min(self._end, now)

    def is_free(self, connection: Connection) -> None:
        """Use a connection again."""
        if not self._is_closed_loop:
            self.idle.append(connection)
        elif (now := time.perf_counter()) < self._end:
            connection.send(self._next(), now)

    def is_gone(self, connection: Connection) -> None:
        """Let the client of a closed loop connect again."""
        if self._is_closed_loop and (now := time.perf_counter()) < self._end:
            self._connect(now)
