"""OpenVINO, NNCF and ONNX Runtime, imported without their telemetry, and how they open graphs.

OpenVINO and NNCF report their use to a server through the package `openvino_telemetry` when they are imported. It is
hidden from them here, and they run without it. The instruction limit is in the environment since `import alembert`
(`environment`).

Compiled OpenVINO graphs are kept in the cache folder: compiling would take a third of a command's start. As with all
that is cached (`environment`), whatever is missing, damaged or of another version or processor counts as absent, and a
folder that cannot be written is no error. The last few graphs are kept, and no large ones: those take as long to read
as to compile. The key is a hash of the graph's bytes, not of the folder's description: a folder whose files were
changed must not pass for an intact one. SHA-256 takes about half a millisecond for a megabyte.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import os
import sys
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from alembert.errors import BadFile, require
from alembert.hardware import environment
from alembert.hardware.environment import ISA_VARIABLE


def check_openvino_installed() -> None:
    """Refuse what needs OpenVINO if it is not installed."""
    require(
        "An Export in the OpenVINO format",
        "openvino",
        otherwise="Exports made with --format onnx run without it.",
    )


def import_openvino() -> Any:
    """Import OpenVINO with its telemetry switched off."""
    check_openvino_installed()
    return _import_library("openvino")


@functools.cache
def get_core() -> Any:
    """Return the one Core of the process, which stays to its end.

    Each Core moves the stack on which signals are handled, if there is one of its own (`faulthandler` makes it), and
    puts back the one that it found when it goes. With several that come and go in any order, the next signal would run
    on memory that is gone.
    """
    core = import_openvino().Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")  # the move comes with the first use
    return core


def import_nncf() -> Any:
    """Import NNCF with its telemetry switched off and its running commentary silenced."""
    get_core()  # before those that NNCF makes
    ordinary = logging.getLoggerClass()
    require("An int8 Export in the OpenVINO format", "nncf")
    nncf = _import_library("nncf")
    # It makes all loggers of the process its own, which say nothing to the root.
    logging.setLoggerClass(ordinary)
    # Its own function would change handlers that others use too.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    return nncf


def make_compile_settings(threads: int, streams: int, *, exact: bool = True) -> dict[str, Any]:
    """Return the options of `compile_model`: so many independent streams on so many threads in all.

    On processors with bfloat16 OpenVINO takes that by itself for whatever is not quantised. Where answers must be those
    of float32 (`exact`), float32 is named.
    """
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": streams, "ENABLE_CPU_PINNING": False}
    return {**settings, "INFERENCE_PRECISION_HINT": "f32"} if exact else settings


def _import_library(library: str) -> Any:
    if "openvino" not in sys.modules:
        # None makes `import openvino_telemetry` fail, as if it were not installed.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        _import_without_converter()
    return importlib.import_module(library)


def _import_without_converter() -> None:
    """Import OpenVINO without its model converter, which it does without: loading it would take as long as all the rest."""
    sys.modules["openvino.tools.ovc"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("openvino")
    finally:
        del sys.modules["openvino.tools.ovc"]


MAX_KEPT_GRAPHS: Final = 4
"""Graphs that stay in the folder."""
MAX_GRAPH_BYTES: Final = 50_000_000
"""Bytes of the files of a graph that is kept, at most; compiled, with its int8 tables in float, it may take thrice that."""


class _GraphContent(NamedTuple):
    xml: bytes
    weights: bytes


def load_or_compile(graph: Path, settings: Mapping[str, Any]) -> Any:
    """Compile a graph, or take what was compiled before from the same bytes."""
    core, options = get_core(), dict(settings)
    weights = graph.with_suffix(".bin")
    if sum(path.stat().st_size for path in (graph, weights) if path.is_file()) > MAX_GRAPH_BYTES:
        return core.compile_model(graph, "CPU", options)
    # Each file is read once: what is compiled is what the key was computed from.
    content = _GraphContent(graph.read_bytes(), weights.read_bytes())
    if not content.xml.startswith(b"<?xml"):  # in memory, OpenVINO would take other formats too
        raise BadFile(f"{graph} is damaged: it is not an OpenVINO graph. Export the checkpoint again.")
    key = _key(content, options)
    if (cached := _read(key)) is not None:
        try:
            return core.import_model(cached, "CPU", options)
        except RuntimeError:  # its own check: another version, another machine
            pass
    compiled = core.compile_model(core.read_model(content.xml, content.weights), "CPU", options)
    _keep(key, compiled.export_model().getvalue())
    return compiled


def get_compiled_folder() -> Path:
    """Name the folder of compiled graphs."""
    return environment.get_cache_folder() / "openvino"


def _key(content: _GraphContent, settings: Mapping[str, Any]) -> str:
    digests = [sha256(part).hexdigest() for part in content]
    machine = get_core().get_property("CPU", "FULL_DEVICE_NAME")
    version, limit = import_openvino().get_version(), os.environ.get(ISA_VARIABLE)
    parts = [digests, version, machine, limit, sorted(settings.items())]
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _read(key: str) -> bytes | None:
    """Read what was kept; the name of the file ends with its checksum."""
    for path in get_compiled_folder().glob(f"{key}-*.blob"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if path.name == _name(key, content):
            return content
    return None


def _keep(key: str, content: bytes) -> None:
    from alembert.artifact.disk import atomic_write

    try:
        get_compiled_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        atomic_write(get_compiled_folder() / _name(key, content), content)
        oldest_first = sorted(get_compiled_folder().glob("*.blob"), key=lambda path: path.stat().st_mtime)
        for path in oldest_first[:-MAX_KEPT_GRAPHS]:
            path.unlink(missing_ok=True)
    except (OSError, BadFile):
        return


def _name(key: str, content: bytes) -> str:
    return f"{key}-{zlib.crc32(content):08x}.blob"


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
    process later (docs/export.md). Between calls they sleep: those that spin on would take the time of whatever else
    runs.
    """
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _ERRORS_ALONE
    options.add_session_config_entry("session.force_spinning_stop", "1")
    source = graph if isinstance(graph, bytes) else str(graph)
    try:
        return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # its errors have no common class but this
        name = "The graph" if isinstance(graph, bytes) else str(graph)
        raise BadFile(
            f"{name} cannot be opened in ONNX Runtime ({type(problem).__name__}). Export the checkpoint again."
        ) from problem
