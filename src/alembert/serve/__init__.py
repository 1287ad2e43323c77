"""The HTTP service and its page: `alembert serve`, over the models that `alembert.load` opens.

A request goes through `protocol` (deadlines), `guards` (Host, token, size), `app` (routes), `wire` (JSON), `admission`
and `batcher` (the queue) to `models`, and its answer back to the client.

`ServeSettings` says what the service admits, how long it waits, and how it batches; it loads without starlette. Limits
are for a single server process. Each is a number that can be measured on a machine with `benchmarks/serve.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from alembert.errors import BadSetting

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""Addresses that only programs on the same machine can reach."""
_MAY_BE_ZERO: Final = ("drain_seconds",)


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """How the service admits, batches and answers."""

    device: str = "auto"
    """Device of Checkpoints: auto, cpu, cuda or cuda:1; Exports run on the CPU."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that clients may use for this server in the Host header, such as the name of a reverse proxy."""
    max_queue_seconds: float = 10.0
    """A request that would wait longer than this is refused with 429."""
    max_body_bytes: int = 8_000_000
    """Largest request body."""
    max_characters: int = 1_000_000
    """Most characters in the texts of a request."""
    max_texts: int = 1000
    """Most texts in a request."""
    max_explain_tokens: int = 200_000
    """Most tokens that are computed for an explanation: those of the text, once for each of its words."""
    receive_seconds: float = 30.0
    """Time in which a request must arrive completely, however slowly it is sent."""
    send_seconds: float = 60.0
    """Time for which a client may leave an answer unread."""
    keep_alive_seconds: float = 15.0
    """Time for which an idle connection stays open."""
    max_connections_per_address: int = 100
    """Most open connections of one client address."""
    batch_tokens: int = 4096
    """Tokens, estimated from characters, that are computed together."""
    probe_seconds: float = 15.0
    """Time between two checks of readiness."""
    drain_seconds: float = 0.0
    """After SIGTERM, time to go on accepting connections while /readyz says no, for load balancers."""
    stop_seconds: float = 60.0
    """After SIGTERM, time for admitted work to finish."""

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            smallest_is_zero = name in _MAY_BE_ZERO
            if isinstance(value, int | float) and (value < 0 or (value == 0 and not smallest_is_zero)):
                expected = "0 or more" if smallest_is_zero else "a number above 0"
                raise BadSetting(f"`{name}` is {value}; expected {expected}.")


def is_loopback(host: str) -> bool:
    """Return whether only programs on the same machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host in LOOPBACK or host.startswith("127.")
