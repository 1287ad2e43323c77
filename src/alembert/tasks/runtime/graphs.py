"""Exported graphs in OpenVINO: a request for each stream, lent to whoever computes a batch.

Exported graphs in ONNX Runtime, whose sessions any number of threads may ask at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

from alembert.data.windows import Row
from alembert.errors import BadFile
from alembert.hardware.runtimes import (
    get_core,
    load_or_compile,
    make_compile_settings,
    open_session,
)
from alembert.tasks.runtime import Outputs
from alembert.tasks.runtime.export import FEATURES_INPUT, pad_features, pad_rows

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
