"""What stands before every route: Host and token checks, safe headers, sizes, and errors that tell nothing of the request.

Nothing here is for other origins: there is no CORS, a request that another site's page sends is refused, and a Host that
is not ours is, too, since a page may have its own name point to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from alembert.serve.admission import Overloaded
from alembert.serve.metrics import Metrics
from alembert.serve.wire import JSON, RequestProblem, encode

LOG: Final = logging.getLogger("alembert.serve")
OPEN_PATHS: Final = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token: they hold nothing of anyone. So does everything below /page/."""
QUEUED_PATHS: Final = ("/v1/predict", "/v1/embed")
"""Paths whose requests wait in the queue."""
SAFE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class HostCheck:
    """The names that clients may use for this server."""

    names: Collection[str]
    any_address: bool = False
    """Addresses in numbers are ours too, since the server listens on all of them; only a name can be rebound."""

    def allows(self, header: str) -> bool:
        """Return whether a Host header is one of ours, with any port."""
        name = header.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.rpartition(":")[0] or name
        return name in self.names or (self.any_address and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class TokenCheck:
    """A secret that clients send as `Authorization: Bearer TOKEN`."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def allows(self, header: str) -> bool:
        """Compare in constant time, whatever the length."""
        scheme, _, given = header.partition(" ")
        is_same = hmac.compare_digest(_digest(given.strip()), self._digest)
        return is_same and scheme.lower() == "bearer"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf8", "surrogateescape")).digest()


@dataclass(frozen=True)
class HeaderCheck:
    """What a request must have in its headers, whatever it asks."""

    hosts: HostCheck
    token: TokenCheck | None
    max_body_bytes: int

    def check(self, path: str, headers: Headers) -> None:
        """Refuse another Host, the page of another site, no token, and a body that is too large."""
        host = headers.get("host", "")
        if not self.hosts.allows(host):
            raise RequestProblem(
                421,
                "wrong_host",
                "The Host header names another server. Use the address that the server printed, or allow the name with "
                "--set allowed_hosts=NAME.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise RequestProblem(403, "wrong_origin", "The request comes from the page of another site.")
        self._check_token(path, headers)
        if body_length(headers) > self.max_body_bytes:
            raise body_too_large(self.max_body_bytes)

    def _check_token(self, path: str, headers: Headers) -> None:
        if self.token is None or path in OPEN_PATHS or path.startswith("/page/"):
            return
        if not self.token.allows(headers.get("authorization", "")):
            raise RequestProblem(
                401,
                "no_token",
                "The request has no token, or a wrong one. Send the header `Authorization: Bearer TOKEN` with the content "
                "of the server's --token-file.",
                {"www-authenticate": "Bearer"},
            )


def body_length(headers: Headers) -> int:
    """Return the bytes of the body that the headers announce; 0 if they announce none."""
    declared = headers.get("content-length", "")
    return int(declared) if declared.isdecimal() else 0


class Guard:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, *, headers: HeaderCheck, metrics: Metrics, check_queue: Callable[[int], None]
    ) -> None:
        self.app = app
        self.headers = headers
        self.metrics = metrics
        self._check_queue = check_queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message)
                self._count(scope, message["status"])
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_safely)
        except RequestProblem as problem:
            self.metrics.count("refused_total", reason=problem.kind)
            await to_response(problem, close=problem.status != 429)(scope, receive, send_safely)
        except Exception as bug:
            log_bug(bug)
            if started:
                raise ConnectionAbortedError from None  # the client sees that the answer is not whole
            await to_response(_BUG, close=True)(scope, receive, send_safely)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self.headers.check(scope["path"], headers)
        if scope["path"] in QUEUED_PATHS:
            self._check_queue(body_length(headers))

    def _count(self, scope: Scope, status: int) -> None:
        refused_path = scope["path"] if scope["path"] in QUEUED_PATHS else "none"
        route = scope["route"].path if "route" in scope else refused_path
        self.metrics.count("requests_total", route=route, status=str(status))


_BUG: Final = RequestProblem(
    500, "bug", "The server failed on this request; that is a bug, and its log has the place in the code."
)


def body_too_large(limit: int) -> RequestProblem:
    """Return the refusal of a body that is too large."""
    return RequestProblem(
        413,
        "too_large",
        f"The body of the request is larger than {limit:,} bytes. Send the texts in several requests, or use "
        "`alembert annotate` for whole collections.",
    )


def to_busy(full: Overloaded) -> RequestProblem:
    """Return the refusal of a request for which the queue is too long."""
    return RequestProblem(
        429,
        "busy",
        f"The server is busy: this request would take {full.waiting_seconds:.0f} s, and the limit is "
        f"{full.limit:g} s. Send it again in {full.retry_after} s.",
        {"retry-after": str(full.retry_after)},
    )


def to_response(problem: RequestProblem, *, close: bool = False) -> Response:
    """Write a refusal as an answer; `close` ends the connection, since the body may not have been read."""
    headers = {**problem.headers, **({"connection": "close"} if close else {})}
    return Response(encode(problem.to_dict()), problem.status, headers, JSON)


def log_bug(bug: BaseException) -> None:
    """Log the kind of an error and where it was raised; its message may hold text of a user."""
    frames = traceback.extract_tb(bug.__traceback__)[-6:]
    places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    LOG.error("bug: %s at %s", type(bug).__name__, places)


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in SAFE_HEADERS.items():
        headers.setdefault(name, value)
