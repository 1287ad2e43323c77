"""Run an exported graph over rows: the same numbers for tasks as `running`, without torch.

Rows of near lengths make a batch, padded to its longest; one stream of batches runs per core, on one thread each. A lone
batch has all cores to itself. The two ways are compiled when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alembert.data.batching import by_padded_budget
from alembert.data.rows import Row
from alembert.data.streams import in_streams
from alembert.errors import BadSetting
from alembert.hardware.openvino_settings import compile_settings, import_openvino
from alembert.hardware.threads import choose_threads
from alembert.tasks.example import Encoded
from alembert.tasks.runner import Outputs

if TYPE_CHECKING:
    from pathlib import Path

    from alembert.tasks.decoding.writing import Writer

TOKEN_BUDGET: Final = 512
"""Tokens in a batch, padding included: large enough for full matrix products, small enough for the cache."""


class GraphRunner:
    """A graph with the head of a task; `graph` is an OpenVINO model or the file of one."""

    def __init__(
        self, graph: Any | Path, *, per_token: bool, budget: int = TOKEN_BUDGET, threads: int | None = None
    ) -> None:
        self._graph = graph
        self._per_token = per_token
        self._budget = budget
        self._threads = threads or choose_threads().count

    def outputs(self, encoded: Sequence[Encoded]) -> list[list[Outputs]]:
        """Give the head's outputs at the places of each row of each example."""
        rows = [row for each in encoded for row in each.rows]
        found: list[Outputs] = [np.empty((0, 0), np.float32)] * len(rows)
        for number, outputs in self._computed(rows):
            found[number] = outputs
        left = iter(found)
        return [[next(left) for _ in each.rows] for each in encoded]

    def writer(self, segment: int = 0) -> Writer:
        """Refuse: an Export has no head over the vocabulary."""
        raise BadSetting("An Export cannot write texts. Use the checkpoint that it was made of.")

    def _computed(self, rows: Sequence[Row]) -> Iterator[tuple[int, Outputs]]:
        batches = list(by_padded_budget([row.length for row in rows], self._budget))
        if min(self._threads, len(batches)) < 2:
            found: Iterator[list[Outputs]] = map(self._with(self._whole_machine, rows), batches)
        else:
            found = in_streams(self._with(self._streams, rows), batches, self._threads)
        for numbers, outputs in zip(batches, found, strict=True):
            yield from zip(numbers, outputs, strict=True)

    def _with(self, requests: Requests, rows: Sequence[Row]) -> Callable[[list[int]], list[Outputs]]:
        return lambda numbers: self._batch(requests, [rows[number] for number in numbers])

    def _batch(self, requests: Requests, rows: Sequence[Row]) -> list[Outputs]:
        with requests.one() as request:
            outputs: Outputs = request.infer(padded(rows), share_inputs=True)[0]
        if self._per_token:
            return [outputs[place, row.places] for place, row in enumerate(rows)]
        return [outputs[place : place + 1] for place in range(len(rows))]

    @cached_property
    def _whole_machine(self) -> Requests:
        return Requests(self._graph, self._threads, streams=1)

    @cached_property
    def _streams(self) -> Requests:
        return Requests(self._graph, self._threads, streams=self._threads)


class Requests:
    """A compiled graph, with a request for each stream."""

    def __init__(self, graph: Any | Path, threads: int, streams: int) -> None:
        core = import_openvino().Core()
        self._compiled = core.compile_model(graph, "CPU", compile_settings(threads, streams))
        self._free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(streams):
            self._free.put(self._compiled.create_infer_request())

    @contextmanager
    def one(self) -> Iterator[Any]:
        """Lend a request that nobody else uses meanwhile."""
        request = self._free.get()
        try:
            yield request
        finally:
            self._free.put(request)


def padded(rows: Sequence[Row]) -> dict[str, Any]:
    """Give the inputs of the graph: ids and segments side by side, with zeros after the shorter ones."""
    lengths = np.array([row.length for row in rows], np.int32)
    ids = np.zeros((len(rows), lengths.max()), np.int32)
    segments = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : row.length] = row.ids
        if row.segments is not None:
            segments[place, : row.length] = row.segments
    return {"ids": ids, "segments": segments, "lengths": lengths}
