"""Run an exported graph over rows: the same numbers for tasks as `running`, without torch.

Rows of near lengths make a batch, padded to its longest; one stream of batches runs per core, on one thread each. A lone
batch has all cores to itself. The two ways are compiled when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alembert.data.batching import by_padded_budget
from alembert.data.rows import Row
from alembert.data.streams import in_streams
from alembert.errors import BadSetting
from alembert.hardware.compiled import compiled
from alembert.hardware.openvino_settings import compile_settings, the_core
from alembert.hardware.threads import choose_threads
from alembert.tasks.example import Encoded
from alembert.tasks.runner import Outputs

if TYPE_CHECKING:
    from pathlib import Path

    from alembert.tasks.decoding.writing import Writer

Feed = Callable[[Sequence[Row]], dict[str, Any]]
"""Makes the inputs of a graph of rows."""
TOKEN_BUDGET: Final = 512
"""Tokens in a batch, padding included: large enough for full matrix products, small enough for the cache."""


class ExportedGraph:
    """An encoder with its heads; `graph` is an OpenVINO model or the file of one.

    `heads` says of each, by its name, whether it answers for tokens; `feed` makes the inputs of the graph of rows;
    `content` stands for what is in the file, if it may be kept compiled for the next process.
    """

    def __init__(
        self,
        graph: Any | Path,
        heads: Mapping[str, bool],
        *,
        feed: Feed | None = None,
        content: str | None = None,
        budget: int = TOKEN_BUDGET,
        threads: int | None = None,
    ) -> None:
        self.heads = heads
        self._graph = graph
        self._feed = feed or padded
        self._content = content
        self._budget = budget
        self._threads = threads or choose_threads().count

    def head_outputs(
        self, heads: Sequence[str], rows: Sequence[Row]
    ) -> Iterator[tuple[int, dict[str, Outputs]]]:
        """Yield the number of each row and what the heads say at its places, short rows first."""
        batches = list(by_padded_budget([row.length for row in rows], self._budget))
        if min(self._threads, len(batches)) < 2:
            found: Iterator[list[dict[str, Outputs]]] = map(
                self._with(self._whole_machine, heads, rows), batches
            )
        else:
            found = in_streams(self._with(self._streams, heads, rows), batches, self._threads)
        for numbers, outputs in zip(batches, found, strict=True):
            yield from zip(numbers, outputs, strict=True)

    def _with(
        self, requests: Requests, heads: Sequence[str], rows: Sequence[Row]
    ) -> Callable[[list[int]], list[dict[str, Outputs]]]:
        return lambda numbers: self._batch(requests, heads, [rows[number] for number in numbers])

    def _batch(
        self, requests: Requests, heads: Sequence[str], rows: Sequence[Row]
    ) -> list[dict[str, Outputs]]:
        with requests.one() as request:
            found = request.infer(self._feed(rows), share_inputs=True)
        outputs = {head: found[head] for head in heads}
        return [
            {head: self._at(head, outputs[head], place, row) for head in heads}
            for place, row in enumerate(rows)
        ]

    def _at(self, head: str, outputs: Outputs, place: int, row: Row) -> Outputs:
        return outputs[place, row.places] if self.heads[head] else outputs[place : place + 1]

    @cached_property
    def _whole_machine(self) -> Requests:
        return Requests(self._graph, self._threads, streams=1, content=self._content)

    @cached_property
    def _streams(self) -> Requests:
        return Requests(self._graph, self._threads, streams=self._threads)


@dataclass(frozen=True)
class GraphRunner:
    """A graph with the name of the head that a task asks."""

    graph: ExportedGraph
    head: str

    def outputs(self, encoded: Sequence[Encoded]) -> list[list[Outputs]]:
        """Give the head's outputs at the places of each row of each example."""
        rows = [row for each in encoded for row in each.rows]
        found: list[Outputs] = [np.empty((0, 0), np.float32)] * len(rows)
        for number, outputs in self.graph.head_outputs([self.head], rows):
            found[number] = outputs[self.head]
        left = iter(found)
        return [[next(left) for _ in each.rows] for each in encoded]

    def writer(self, segment: int = 0) -> Writer:
        """Refuse: an Export has no head over the vocabulary."""
        raise BadSetting("An Export cannot write texts. Use the checkpoint that it was made of.")


class Requests:
    """A compiled graph, with a request for each stream."""

    def __init__(self, graph: Any | Path, threads: int, streams: int, content: str | None = None) -> None:
        settings = compile_settings(threads, streams)
        if content is None:
            self._compiled = the_core().compile_model(graph, "CPU", settings)
        else:
            self._compiled = compiled(graph, content, settings)
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


def masked(rows: Sequence[Row]) -> dict[str, Any]:
    """Give the inputs of a graph in the ONNX format, which are those that other programs have for BERT."""
    given = padded(rows)
    real = np.arange(given["ids"].shape[1]) < given["lengths"][:, None]
    named = {"input_ids": given["ids"], "attention_mask": real, "token_type_ids": given["segments"]}
    return {name: values.astype(np.int64) for name, values in named.items()}
