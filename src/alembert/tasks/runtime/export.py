"""The graph of an Export, and the runtimes that compute it: ONNX Runtime and OpenVINO.

The same numbers for tasks as `runtime.torch`, without torch. OpenVINO has a request for each stream, lent to whoever
computes a batch; any number of threads may ask the session of ONNX Runtime at once.

Rows of near lengths make a batch, padded to its longest; one stream of batches runs per core, on one thread each. A lone
batch has all cores to itself. The two ways are compiled when they are first needed, by the library that the format is
made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from alembert.data.batching import batch_by_padded_tokens, map_in_threads
from alembert.data.windows import Row, stack_features
from alembert.errors import BadFile, BadSetting
from alembert.hardware.runtimes import (
    get_core,
    load_or_compile,
    make_compile_settings,
    open_session,
)
from alembert.hardware.torch_settings import choose_threads
from alembert.tasks.runtime import HeadRunner, Outputs, check_finite
from alembert.tasks.runtime.export_files import HeadMetadata

if TYPE_CHECKING:
    from alembert.tasks.generate.writing import IncrementalDecoder


PAD_MULTIPLE: Final = 16
"""Rows of a lone batch are padded to a multiple of so many tokens: each shape that is new to a process costs several
milliseconds, as much as the text itself (docs/benchmarks.md). Over many batches that is lost in the rest."""


class OpenVinoGraph:
    """A compiled graph; `graph` is an OpenVINO model or the file of one.

    `exact` asks for float32 in all that is not quantised; `longest` is how many tokens the graph reads at once, if rows may
    be padded; `keep` keeps the file's graph compiled for the next process.
    """

    def __init__(
        self,
        graph: Any | Path,
        threads: int,
        streams: int,
        *,
        exact: bool = True,
        longest: int | None = None,
        keep: bool = False,
    ) -> None:
        settings = make_compile_settings(threads, streams, exact=exact)
        self._longest = longest if streams == 1 else None
        self._name = str(graph) if isinstance(graph, Path) else "The graph"
        with self._explained("opened"):
            if keep:
                self._compiled = load_or_compile(graph, settings)
            else:
                self._compiled = get_core().compile_model(graph, "CPU", settings)
        self._reads_features = FEATURES_INPUT in {port.get_any_name() for port in self._compiled.inputs}
        self._free: SimpleQueue[Any] = SimpleQueue()
        for _ in range(streams):
            self._free.put(self._compiled.create_infer_request())

    def infer(self, rows: Sequence[Row]) -> Mapping[str, Outputs]:
        """Compute a batch; outputs have their names."""
        request = self._free.get()
        try:
            with self._explained("run"):
                found = request.infer(self._pad(rows), share_inputs=True)
        finally:
            self._free.put(request)
        return {name: values for output, values in found.items() for name in output.get_names()}

    def _pad(self, rows: Sequence[Row]) -> dict[str, Any]:
        padded = pad_rows(rows, width := self._width(rows))
        return padded | ({FEATURES_INPUT: pad_features(rows, width)} if self._reads_features else {})

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """Refuse in a sentence a graph that the library cannot use, which anyone may have changed."""
        try:
            yield
        except RuntimeError as problem:  # the class of all its errors
            raise BadFile(
                f"{self._name} cannot be {done} in OpenVINO. It is damaged; export the checkpoint again."
            ) from problem

    def _width(self, rows: Sequence[Row]) -> int:
        needed = max(row.length for row in rows)
        return (
            needed
            if self._longest is None
            else max(needed, min(self._longest, -(-needed // PAD_MULTIPLE) * PAD_MULTIPLE))
        )


class OnnxGraph:
    """A graph in the ONNX format, given as its file or the content of it."""

    def __init__(self, graph: Path | bytes, threads: int, streams: int) -> None:
        self._name = str(graph) if isinstance(graph, Path) else "The graph"
        self._session = open_session(graph, threads // streams)
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._reads_features = FEATURES_INPUT in {node.name for node in self._session.get_inputs()}

    def infer(self, rows: Sequence[Row]) -> Mapping[str, Outputs]:
        """Compute a batch; outputs have their names."""
        try:
            outputs = self._session.run(self._outputs, self._inputs(rows))
        except Exception as problem:  # its errors have no common class but this
            raise BadFile(
                f"{self._name} cannot be run in ONNX Runtime ({type(problem).__name__}). Export the checkpoint again."
            ) from problem
        return dict(zip(self._outputs, outputs, strict=True))

    def _inputs(self, rows: Sequence[Row]) -> dict[str, Any]:
        inputs = build_bert_inputs(rows)
        if self._reads_features:
            inputs[FEATURES_INPUT] = pad_features(rows, inputs["input_ids"].shape[1]).astype(np.int64)
        return inputs


def build_bert_inputs(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the inputs that programs have for a BERT."""
    padded = pad_rows(rows)
    real = np.arange(padded["ids"].shape[1]) < padded["lengths"][:, None]
    named = {"input_ids": padded["ids"], "attention_mask": real, "token_type_ids": padded["segments"]}
    return {name: values.astype(np.int64) for name, values in named.items()}


FEATURES_INPUT: Final = "features"
"""The input of a graph that reads features of tokens beside their ids."""
TOKEN_BUDGET: Final = 512
"""Tokens in a batch, padding included: large enough for full matrix products, small enough for the cache."""


class CompiledGraph(Protocol):
    """A graph in a library that computes it."""

    def infer(self, rows: Sequence[Row]) -> Mapping[str, Outputs]:
        """Compute a batch: for each head, what it says of rows x tokens or of rows.

        As many threads may ask at once as there are streams.
        """


CompileGraph = Callable[[int, int], CompiledGraph]
"""Compiles a graph for a number of threads in all, and of streams that they are shared out to."""


class ExportedGraph:
    """An encoder with its heads, by the names of their outputs; `width` is that of the hidden states."""

    def __init__(
        self,
        compile_graph: CompileGraph,
        heads: Mapping[str, HeadMetadata],
        width: int,
        *,
        budget: int = TOKEN_BUDGET,
        threads: int | None = None,
    ) -> None:
        self.heads = heads
        self._width = width
        self._compile = compile_graph
        self._budget = budget
        self._threads = threads or choose_threads().count
        self._compiled: dict[int, CompiledGraph] = {}
        self._compiling = Lock()

    def head_outputs(self, heads: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, dict[str, Outputs]]]:
        """Yield the number of each row and what the heads say at its places, short rows first."""
        batches = list(batch_by_padded_tokens([row.length for row in rows], self._budget))
        streams = self._threads if min(self._threads, len(batches)) > 1 else 1
        graph = self._compiled_for(streams)

        def compute(numbers: list[int]) -> list[dict[str, Outputs]]:
            return self._compute_batch(graph, heads, [rows[number] for number in numbers])

        results = map(compute, batches) if streams == 1 else map_in_threads(compute, batches, streams)
        for numbers, outputs in zip(batches, results, strict=True):
            yield from zip(numbers, outputs, strict=True)

    def _compute_batch(
        self, graph: CompiledGraph, heads: Sequence[str], rows: Sequence[Row]
    ) -> list[dict[str, Outputs]]:
        by_head = graph.infer(rows)
        for head in heads:
            self._check(head, by_head.get(head), rows)
            check_finite(by_head[head], f"Outputs of the head `{head}`")
        return [{head: self._of_row(head, by_head[head], i, row) for head in heads} for i, row in enumerate(rows)]

    def _check(self, head: str, outputs: Outputs | None, rows: Sequence[Row]) -> None:
        """Refuse an answer that is none of the head's: no such output, or of another rank or size."""
        shape = () if outputs is None else outputs.shape
        longest = max(row.length for row in rows)
        facts = self.heads[head]
        if facts.per_token:
            fits = len(shape) == 3 and shape[0] == len(rows) and shape[1] >= longest
        else:
            fits = len(shape) == 2 and shape[0] == len(rows)
        if not fits or not facts.fits(shape[-1], self._width):
            raise BadFile(
                f"The graph of the Export gives for {len(rows)} texts of up to {longest} tokens "
                f"{f'numbers of the shape {list(shape)}' if shape else 'nothing'} as its output {head!r}, which is not what "
                f"a head of kind {facts.kind} gives. Export the checkpoint again."
            )

    def _of_row(self, head: str, outputs: Outputs, i: int, row: Row) -> Outputs:
        return outputs[i, row.positions] if self.heads[head].per_token else outputs[i : i + 1]

    def _compiled_for(self, streams: int) -> CompiledGraph:
        """Return the graph for so many streams, compiled once, whoever comes first."""
        with self._compiling:
            if streams not in self._compiled:
                self._compiled[streams] = self._compile(self._threads, streams)
            return self._compiled[streams]


@dataclass(frozen=True)
class GraphRunner(HeadRunner):
    """A graph with the name of the head that a task asks."""

    graph: ExportedGraph
    head: str
    attention: str | None = None

    @property
    def per_token(self) -> bool:
        return self.graph.heads[self.head].per_token

    def compute(self, heads: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, Mapping[str, Outputs]]]:
        return self.graph.head_outputs(heads, rows)

    def decoder(self, segment: int = 0) -> IncrementalDecoder:
        """Refuse: an Export has no head over the vocabulary."""
        raise BadSetting("An Export cannot write texts. Use the checkpoint that it was made of.")


def pad_rows(rows: Sequence[Row], width: int | None = None) -> dict[str, Any]:
    """Put rows below each other: ids and segments (rows x tokens), with zeros after the shorter ones, and lengths.

    `width` is the tokens of each; none: those of the longest.
    """
    lengths = np.array([row.length for row in rows], np.int32)
    ids = np.zeros((len(rows), width or lengths.max()), np.int32)
    segments = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : row.length] = row.ids
        if row.segments is not None:
            segments[place, : row.length] = row.segments
    return {"ids": ids, "segments": segments, "lengths": lengths}


def pad_features(rows: Sequence[Row], width: int) -> npt.NDArray[np.int32]:
    """Put the features of rows below each other (rows x tokens x features), with zeros where there are none."""
    stacked = stack_features([row.features for row in rows], [row.length for row in rows])
    padded = np.zeros((len(rows), width, 1 if stacked is None else stacked[0].shape[1]), np.int32)
    for place, rows_TF in enumerate(stacked or ()):
        padded[place, : len(rows_TF)] = rows_TF
    return padded
