"""Exported graphs in ONNX Runtime, whose sessions any number of threads may ask at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alembert.data.windows import Row
from alembert.errors import BadFile
from alembert.hardware.runtimes import open_session
from alembert.tasks.runner import Outputs
from alembert.tasks.running_export import padded


class OnnxGraph:
    """A graph in the ONNX format, given as its file or the content of it."""

    def __init__(self, graph: Path | bytes, threads: int, streams: int) -> None:
        self._name = str(graph) if isinstance(graph, Path) else "The graph"
        self._session = open_session(graph, threads // streams)
        self._outputs = [output.name for output in self._session.get_outputs()]

    def infer(self, rows: Sequence[Row]) -> Mapping[str, Outputs]:
        """Compute a batch; outputs have their names."""
        try:
            found = self._session.run(self._outputs, masked(rows))
        except Exception as problem:  # its errors have no common class but this
            raise BadFile(
                f"{self._name} cannot be run in ONNX Runtime ({type(problem).__name__}). Export the checkpoint again."
            ) from problem
        return dict(zip(self._outputs, found, strict=True))


def masked(rows: Sequence[Row]) -> dict[str, Any]:
    """Give the inputs that programs have for a BERT."""
    given = padded(rows)
    real = np.arange(given["ids"].shape[1]) < given["lengths"][:, None]
    named = {"input_ids": given["ids"], "attention_mask": real, "token_type_ids": given["segments"]}
    return {name: values.astype(np.int64) for name, values in named.items()}
