"""Metrics in the text format of Prometheus: counters, gauges and histograms, a dozen of them and no library.

They count requests, texts and tokens, and measure times. Labels are names of routes, statuses, and reasons from a fixed
list, never anything that a client sent.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_COUNTERS: Final = {
    "requests_total": "Requests, by route and status.",
    "refused_total": "Requests that were refused, by reason.",
    "texts_total": "Inputs that were answered.",
    "failed_texts_total": "Inputs that could not be answered.",
    "characters_total": "Characters of admitted inputs.",
    "cancelled_total": "Requests whose client went away before the answer.",
}
_HISTOGRAMS: Final = {
    "queue_seconds": ("Time in the queue, by request.", _SECONDS),
    "compute_seconds": ("Time in the model, by batch.", _SECONDS),
    "request_seconds": ("Time from the body of a request to its answer.", _SECONDS),
    "batch_inputs": ("Inputs that were computed together.", _SIZES),
}
_PREFIX: Final = "alembert_"


@dataclass
class MetricHistogram:
    """Counts of values by upper bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> Iterator[str]:
        """Yield cumulative counts as Prometheus reads them."""
        running = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            yield f'{name}_bucket{{le="{bound}"}} {running}'
        yield f"{name}_sum {self.total:.6f}"
        yield f"{name}_count {running}"


class Metrics:
    """Everything that is counted in a server process."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, float]] = {name: defaultdict(float) for name in _COUNTERS}
        self._histograms = {name: MetricHistogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        self._counters[name][f"{{{shown}}}" if shown else ""] += amount

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        self._histograms[name].observe(value)

    def gauge(self, name: str, purpose: str, read: Callable[[], float]) -> None:
        """Show a value that is read whenever metrics are."""
        self._gauges[name] = purpose, read

    def render(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield from _head("process_info", "gauge", "The server process, one of those of --processes.")
        yield f'{_PREFIX}process_info{{pid="{os.getpid()}"}} 1'
        for name, values in self._counters.items():
            yield from _head(name, "counter", _COUNTERS[name])
            for labels, value in values.items() or [("", 0)]:
                yield f"{_PREFIX}{name}{labels} {value:g}"
        for name, histogram in self._histograms.items():
            yield from _head(name, "histogram", _HISTOGRAMS[name][0])
            yield from histogram.lines(_PREFIX + name)
        for name, (purpose, read) in self._gauges.items():
            yield from _head(name, "gauge", purpose)
            yield f"{_PREFIX}{name} {read():g}"


def _head(name: str, kind: str, purpose: str) -> tuple[str, str]:
    return f"# HELP {_PREFIX}{name} {purpose}", f"# TYPE {_PREFIX}{name} {kind}"
