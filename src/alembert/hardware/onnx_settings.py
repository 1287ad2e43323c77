"""The one door to ONNX Runtime: what is switched off before it is used, and how a graph is opened."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile

_ERRORS_ALONE: Final = 3
"""Its level of messages without warnings, which would be about its own rewriting of the graph."""


@functools.cache
def import_onnxruntime() -> Any:
    """Import ONNX Runtime with its telemetry switched off."""
    runtime = importlib.import_module("onnxruntime")
    runtime.disable_telemetry_events()
    return runtime


def open_session(graph: Path | bytes, threads: int) -> Any:
    """Open a graph on the CPU; each call of it runs on so many threads.

    Threads that wait for each other inside a call spin: on a quiet machine a single text is ready sooner, beside a busy
    process later (docs/export.md). Between calls they sleep: those that spin on would take the time of whatever else runs.
    """
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _ERRORS_ALONE
    options.add_session_config_entry("session.force_spinning_stop", "1")
    given = graph if isinstance(graph, bytes) else str(graph)
    try:
        return runtime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # its errors have no common class but this
        name = "The graph" if isinstance(graph, bytes) else str(graph)
        raise BadFile(
            f"{name} cannot be opened in ONNX Runtime ({type(problem).__name__}). Export the checkpoint again."
        ) from problem
