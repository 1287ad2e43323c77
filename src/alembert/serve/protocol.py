"""uvicorn's HTTP protocol with limits that it does not have: time, header size and connections of an address.

uvicorn resets its only timer at each byte, so that a client which sends a byte now and then holds a connection for ever.
Here a request has a deadline from its first byte (the first one from the moment of connecting), and so has an answer that
nobody reads. What is refused here has not reached the application.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.datastructures import Headers
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from alembert.serve.admission import Overloaded
from alembert.serve.guards import QUEUED_PATHS, SAFE_HEADERS, HeaderCheck, body_length, to_busy
from alembert.serve.metrics import Metrics
from alembert.serve.wire import JSON, RequestProblem, encode

_MAX_HEADER_BYTES: Final = 32_768
_KEPT_REFUSALS: Final = 100


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections, and how many each address has open."""

    receive_seconds: float
    send_seconds: float
    max_per_address: int
    by_address: Counter[str] = field(default_factory=Counter)


class FullQueue:
    """Refuses requests by their headers while the queue is full, without a task, the application or the body.

    What is refused takes its time from what is answered, so that this is the path that must cost least.
    """

    def __init__(self, check: HeaderCheck, find_overload: Callable[[int], Overloaded | None], metrics: Metrics) -> None:
        self._check = check
        self._find_overload = find_overload
        self._metrics = metrics
        self._rendered: dict[tuple[int, int], bytes] = {}

    def find_refusal(self, target: bytes, raw_headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """Return the whole answer to a request for which there is no room; None: the application answers."""
        path = target.partition(b"?")[0].decode("ascii", "replace")
        if path not in QUEUED_PATHS:
            return None
        headers = Headers(raw=raw_headers)
        full = self._find_overload(body_length(headers))
        if full is None:
            return None
        try:
            self._check.check(path, headers)
        except RequestProblem:  # the application says so
            return None
        self._metrics.count("refused_total", reason="busy")
        self._metrics.count("requests_total", route=path, status="429")
        return self._render(full)

    def _render(self, full: Overloaded) -> bytes:
        key = round(full.waiting_seconds), full.retry_after
        if key not in self._rendered:
            if len(self._rendered) >= _KEPT_REFUSALS:
                self._rendered.clear()
            self._rendered[key] = render_refusal(to_busy(full), SAFE_HEADERS)
        return self._rendered[key]


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP/1.1 with deadlines; `limits` and `queue` are set on a subclass by `with_limits`."""

    limits: ConnectionLimits
    queue: FullQueue
    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _address = ""
    _is_reading_headers = True
    _header_bytes = 0
    _is_refused = False
    """The request under way was answered by its headers; its body is not kept."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.limits.by_address[self._address] += 1
        self._start_receiving()
        if self.limits.by_address[self._address] > self.limits.max_per_address:
            self._refuse(
                RequestProblem(
                    429,
                    "too_many_connections",
                    f"This address has more than {self.limits.max_per_address} open connections. Close some, or send "
                    "several texts in a request.",
                    {"retry-after": "1"},
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_receiving()
        self._stop_sending()
        self.limits.by_address[self._address] -= 1
        if not self.limits.by_address[self._address]:
            del self.limits.by_address[self._address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_reading_headers:
            self._header_bytes += len(data)
        if self._is_reading_headers and self._header_bytes > _MAX_HEADER_BYTES:
            self._refuse(
                RequestProblem(431, "headers_too_large", f"The headers have more than {_MAX_HEADER_BYTES:,} bytes.")
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_reading_headers = True
        self._header_bytes = 0
        if self._receiving is None:
            self._start_receiving()

    def on_headers_complete(self) -> None:
        self._is_reading_headers = False
        refusal = self._find_refusal()
        if refusal is None:
            super().on_headers_complete()
        else:
            self._is_refused = True
            self.transport.write(refusal)

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_receiving()
        if self._is_refused:
            self._is_refused = False
            self._end_refused()
        else:
            super().on_message_complete()
            if self.cycle.response_complete:  # before the body came, whose bytes ended the keep-alive timer
                self._wait_for_next()

    def _find_refusal(self) -> bytes | None:
        """Return the refusal of a request that needs only its headers.

        The application answers if a request before it has no answer yet, or nobody reads the answers.
        """
        is_answering = self.cycle is not None and not self.cycle.response_complete
        is_special = self.expect_100_continue or self.parser.should_upgrade() or self.parser.get_method() != b"POST"
        if is_answering or is_special or self.flow.write_paused:
            return None
        return self.queue.find_refusal(self.url, self.headers)

    def _end_refused(self) -> None:
        """Wait for the next request, or close, as the client wants it."""
        if self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
            self.transport.close()
        else:
            self._wait_for_next()

    def _wait_for_next(self) -> None:
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            handler = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is None:
            self._sending = self.loop.call_later(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_sending()
        super().resume_writing()

    def _start_receiving(self) -> None:
        self._receiving = self.loop.call_later(self.limits.receive_seconds, self._end_slow_request)

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _end_slow_request(self) -> None:
        self._receiving = None
        if self._is_refused or (self.cycle is not None and self.cycle.response_started):
            self.transport.close()
            return
        seconds = f"{self.limits.receive_seconds:g}"
        self._refuse(
            RequestProblem(
                408, "too_slow", f"The request did not arrive within {seconds} seconds. Send it faster, or in parts."
            )
        )

    def _refuse(self, problem: RequestProblem) -> None:
        """Answer without the application, and close."""
        if not self.transport.is_closing():
            self.transport.write(render_refusal(problem, {"connection": "close"}))
            self.transport.close()


def render_refusal(problem: RequestProblem, more_headers: Mapping[str, str]) -> bytes:
    """Write an answer that refuses a request."""
    body = encode(problem.to_dict())
    headers = {"content-type": JSON, "content-length": str(len(body)), **problem.headers, **more_headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"".join([STATUS_LINE[problem.status], lines.encode("ascii"), b"\r\n", body])


def with_limits(limits: ConnectionLimits, queue: FullQueue) -> type[Any]:
    """Return the protocol with these limits, which uvicorn makes for each connection."""
    return type("LimitedProtocol", (DeadlineProtocol,), {"limits": limits, "queue": queue})
