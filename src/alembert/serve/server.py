"""Server processes: sockets, signals, logs without text of users, and several processes on one port.

In: a `ServerConfig`. SIGTERM and Ctrl-C let admitted work finish and end the process with exit code 0; a second one ends it at
once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from alembert.errors import BadFile, BadSetting
from alembert.serve import LOOPBACK, ServeSettings, is_loopback
from alembert.serve.app import make_app
from alembert.serve.guards import HeaderCheck, HostCheck, TokenCheck
from alembert.serve.labels import LabelFile
from alembert.serve.models import ServedModel
from alembert.serve.protocol import ConnectionLimits, FullQueue, with_limits
from alembert.serve.service import Service

_EVERY_ADDRESS: Final = ("0.0.0.0", "::", "")  # noqa: S104 (a token is needed then)
_SHORTEST_TOKEN: Final = 16
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread may go on while another waits for the interpreter. The event loop waits after each read and write:
with Python's 5 ms, batches that are tokenised or decoded would hold up every refusal."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What a server process is started with."""

    folders: Mapping[str, Path]
    """Models by the names that clients use."""
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    label: Path | None = None
    settings: ServeSettings = field(default_factory=ServeSettings)
    reuse_port: bool = False
    """Other processes listen on the same port."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise BadSetting(f"`port` is {self.port}; expected 1 to 65535, or 0 for any free port.")
        if self.token is None and not is_loopback(self.host):
            raise BadSetting(
                f"`host` is {self.host}, which other machines can reach, and there is no token. Give --token-file FILE, or "
                "leave the host out to serve this machine alone."
            )


def read_token(path: Path) -> str:
    """Read the token of a file, without white space around it."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as problem:
        raise BadFile(f"The token file {path} cannot be read: {problem.strerror}. Check the path.") from None
    except UnicodeDecodeError:
        raise BadFile(
            f"The token in {path} has characters that are not ASCII. Make one with: openssl rand -hex 32"
        ) from None
    if len(token) < _SHORTEST_TOKEN or any(char.isspace() for char in token):
        raise BadFile(
            f"The token in {path} is too short or has spaces; expected {_SHORTEST_TOKEN} or more characters on one line. "
            "Make one with: openssl rand -hex 32"
        )
    return token


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Bind a socket, which does not listen yet, so that a port in use is found before models are opened."""
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as problem:
        if bound is not None:
            bound.close()
        reason = (problem.strerror or str(problem)).lower()
        raise BadSetting(
            f"Port {port} of {host} cannot be used: {reason}. Choose another with --port, or --port 0 for any free one."
        ) from None
    return bound


def url_of(host: str, bound: socket.socket) -> str:
    """Return the address that a browser on this machine opens."""
    name = "127.0.0.1" if host in _EVERY_ADDRESS else host
    return f"http://{f'[{name}]' if ':' in name else name}:{bound.getsockname()[1]}/"


class GracefulServer(uvicorn.Server):
    """uvicorn's server, which stops admitting work at the first signal, finishes, and returns."""

    def __init__(self, config: uvicorn.Config, service: Service, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._on_started = on_started
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_loop_error)
        await super().startup(sockets)
        self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; uvicorn would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; the second time without finishing."""
        if self._service.is_stopping:
            self.should_exit = self.force_exit = True
            return
        self._service.is_stopping = True
        seconds = self._service.settings.drain_seconds
        if seconds and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._exit)
        else:
            self.should_exit = True

    def _exit(self) -> None:
        self.should_exit = True


def make_server(config: ServerConfig, on_started: Callable[[], None] = lambda: None) -> GracefulServer:
    """Open the models and put a server together."""
    settings = config.settings
    models = {name: ServedModel.open(name, folder, settings.device) for name, folder in config.folders.items()}
    labels = None if config.label is None else LabelFile(config.label)
    service = Service(models, settings, labels=labels)
    token = None if config.token is None else TokenCheck(config.token)
    headers = HeaderCheck(_hosts_of(config), token, settings.max_body_bytes)
    limits = ConnectionLimits(settings.receive_seconds, settings.send_seconds, settings.max_connections_per_address)
    listening = uvicorn.Config(
        make_app(service, headers),
        http=with_limits(limits, FullQueue(headers, service.find_overload, service.metrics)),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, round(settings.keep_alive_seconds)),
        timeout_graceful_shutdown=max(1, round(settings.stop_seconds)),
    )
    return GracefulServer(listening, service, on_started)


def _hosts_of(config: ServerConfig) -> HostCheck:
    names = {*LOOPBACK, config.host.lower(), *(name.lower() for name in config.settings.allowed_hosts)}
    if not is_loopback(config.host):
        names.add(socket.gethostname().lower())
    return HostCheck(frozenset(names), any_address=config.host in _EVERY_ADDRESS)


def run_server(config: ServerConfig, on_started: Callable[[str], None]) -> None:
    """Serve in this process until it is told to stop; `on_started` is called with the address."""
    configure_logging()
    sys.setswitchinterval(_SWITCH_SECONDS)
    bound = bind(config.host, config.port, reuse_port=config.reuse_port)
    with bound:
        make_server(config, lambda: on_started(url_of(config.host, bound))).run(sockets=[bound])


class _SafeFormatter(logging.Formatter):
    """Writes errors without their messages, which may hold text of users."""

    def formatException(self, ei: Any) -> str:
        kind, _, trace = ei
        frames = traceback.extract_tb(trace)
        return "\n".join([*(f"  {each.filename}:{each.lineno} {each.name}" for each in frames), kind.__name__])


def configure_logging() -> None:
    """Write warnings of the server to stderr, without text of users and without colours."""
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("alembert.serve", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody handled by its kind; asyncio's own message shows results and errors in full."""
    error = context.get("exception")
    if isinstance(error, ConnectionError):
        return
    logging.getLogger("alembert.serve").error("event loop: %s", type(error).__name__ if error else "no exception")


def watch_parent(parent: Any, stop: Callable[[], None]) -> None:
    """Stop when the other end of a pipe closes, in a thread."""

    def watch() -> None:
        with suppress(EOFError, OSError):
            parent.recv()
        stop()

    threading.Thread(target=watch, daemon=True).start()


def stop_process() -> None:
    """Send SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)
