"""What tests of the service share: a client that sends exactly what it is told, and a model that waits for the test."""

import json
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import pytest

from alembert.serve import ServeSettings, models
from alembert.serve.models import BatchAnswer
from alembert.serve.server import ServerConfig, bind, make_server, url_of

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
PATIENCE = 300
"""Seconds after which a test gives up; none waits for so long."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def sentence(self) -> str:
        return self.json["error"]["message"]


@dataclass
class Client:
    """Sends requests, each on a connection of its own."""

    url: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = HTTPConnection(*self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, {**JSON, **headers})

    def predict(self, inputs: Any, **more: Any) -> Answer:
        return self.post("/v1/predict", {"inputs": inputs, **more})

    def open(self) -> socket.socket:
        """Connect without sending anything."""
        return socket.create_connection(self.address, timeout=PATIENCE)

    def raw(self, data: bytes) -> bytes:
        """Send bytes and read until the server closes."""
        with self.open() as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b""))


def request_bytes(body: bytes, path: str = "/v1/predict", length: int | None = None) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Gate:
    """Holds batches back until the test lets them through."""

    is_open: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    batches: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Hold back what comes from now on."""
        self.is_open.clear()
        self.entered = threading.Semaphore(0)
        self.batches.clear()

    def wait_for_batch(self) -> None:
        """Wait until a batch stands before the gate."""
        assert self.entered.acquire(timeout=PATIENCE)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate before every prediction, which is open at first."""
    made = Gate()
    made.is_open.set()
    compute = models.Prediction.compute

    def hold(self: models.Prediction, examples: Sequence[Any]) -> BatchAnswer:
        made.batches.append(len(examples))
        made.entered.release()
        assert made.is_open.wait(PATIENCE)
        return compute(self, examples)

    monkeypatch.setattr(models.Prediction, "compute", hold)
    return made


class RunningServer:
    """A service that runs in a thread of this process; leaving the `with` block stops it."""

    def __init__(self, config: ServerConfig) -> None:
        """Start, and return when requests are answered."""
        started = threading.Event()
        self._bound = bind(config.host, config.port)
        try:
            self._server = make_server(config, started.set)
        except BaseException:
            self._bound.close()
            raise
        self.url = url_of(config.host, self._bound)
        """Address of the page; the routes are below it."""
        self._thread = threading.Thread(target=self._run, args=(started,), name="alembert-server", daemon=True)
        self._thread.start()
        started.wait()
        if not self._server.started:
            raise RuntimeError("the server could not start; its log says why")

    def _run(self, started: threading.Event) -> None:
        try:
            self._server.run(sockets=[self._bound])
        finally:
            started.set()

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let admitted work finish, and stop."""
        if self._thread.is_alive():
            self._server.handle_exit(signal.SIGTERM, None)
            self._thread.join()
        self._bound.close()


def started(*folders: Path, label: Path | None = None, token: str | None = None, **settings: Any) -> RunningServer:
    """Start a server on a free port."""
    config = ServerConfig(
        folders=models.name_models(folders),
        port=0,
        label=label,
        token=token,
        settings=ServeSettings(**settings),
    )
    return RunningServer(config)


def in_background(call: Any, *arguments: Any, **more: Any) -> "Background":
    return Background(lambda: call(*arguments, **more))


class Background:
    """A call in a thread."""

    def __init__(self, call: Any) -> None:
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Any) -> None:
        self._result = call()

    @property
    def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self._result
