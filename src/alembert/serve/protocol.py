"""uvicorn's HTTP protocol with limits that it does not have: time, header size and connections of an address.

uvicorn resets its only timer at each byte, so that a client which sends a byte now and then holds a connection for ever.
Here a request has a deadline from its first byte (the first one from the moment of connecting), and so has an answer that
nobody reads. What is refused here has not reached the application.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from alembert.serve.wire import JSON, RequestProblem, encode

_MAX_HEADER_BYTES: Final = 32_768


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections, and how many each address has open."""

    receive_seconds: float
    send_seconds: float
    max_per_address: int
    by_address: Counter[str] = field(default_factory=Counter)


class DeadlineProtocol(HttpToolsProtocol):
    """HTTP/1.1 with deadlines; `limits` is set on a subclass by `with_limits`."""

    limits: ConnectionLimits
    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _address = ""
    _is_reading_headers = True
    _header_bytes = 0

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
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_receiving()
        super().on_message_complete()

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
        if self.cycle is not None and self.cycle.response_started:
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
            self.transport.write(render_refusal(problem))
            self.transport.close()


def render_refusal(problem: RequestProblem) -> bytes:
    """Write an answer that refuses a request and closes the connection."""
    body = encode(problem.to_dict())
    headers = {"content-type": JSON, "content-length": str(len(body)), "connection": "close", **problem.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return b"".join([STATUS_LINE[problem.status], lines.encode("ascii"), b"\r\n", body])


def with_limits(limits: ConnectionLimits) -> type[Any]:
    """Return the protocol with these limits, which uvicorn makes for each connection."""
    return type("LimitedProtocol", (DeadlineProtocol,), {"limits": limits})
