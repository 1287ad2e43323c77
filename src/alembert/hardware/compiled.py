"""Compiled OpenVINO graphs, kept in the cache folder, so that the next command need not compile: a third of its start.

As with all that is cached (`cache`), whatever is not there, is damaged or was made by another version or on another
processor counts as absent, and a folder that cannot be written is no error. The last few graphs are kept, and none that is
large: those take as long to read as to compile.

What was compiled is found by a hash of the graph's bytes, not by what the folder says of them: a folder whose files were
changed must not answer for an intact one. SHA-256 takes about half a millisecond for a megabyte.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from alembert.errors import BadFile
from alembert.hardware import cache
from alembert.hardware.environment import ISA
from alembert.hardware.openvino_settings import import_openvino, the_core

KEPT: Final = 4
"""Graphs that stay in the folder."""
LARGEST: Final = 50_000_000
"""Bytes of the files of a graph that is kept, at most; compiled, with its int8 tables in float, it may take thrice that."""


class _GraphContent(NamedTuple):
    xml: bytes
    weights: bytes


def compiled(graph: Path, settings: Mapping[str, Any]) -> Any:
    """Compile a graph, or take what was compiled before from the same bytes."""
    core, options = the_core(), dict(settings)
    weights = graph.with_suffix(".bin")
    if sum(path.stat().st_size for path in (graph, weights) if path.is_file()) > LARGEST:
        return core.compile_model(graph, "CPU", options)
    # Each file is read once: what is compiled is what the key was computed from.
    content = _GraphContent(graph.read_bytes(), weights.read_bytes())
    if not content.xml.startswith(b"<?xml"):  # in memory, OpenVINO would take other formats too
        raise BadFile(f"{graph} is damaged: it is not an OpenVINO graph. Export the checkpoint again.")
    key = _key(content, options)
    if (found := _read(key)) is not None:
        try:
            return core.import_model(found, "CPU", options)
        except RuntimeError:  # its own check: another version, another machine
            pass
    made = core.compile_model(core.read_model(content.xml, content.weights), "CPU", options)
    _keep(key, made.export_model().getvalue())
    return made


def folder() -> Path:
    """Name the folder of compiled graphs."""
    return cache.folder() / "openvino"


def _key(content: _GraphContent, settings: Mapping[str, Any]) -> str:
    digests = [sha256(part).hexdigest() for part in content]
    machine = the_core().get_property("CPU", "FULL_DEVICE_NAME")
    version, limit = import_openvino().get_version(), os.environ.get(ISA)
    parts = [digests, version, machine, limit, sorted(settings.items())]
    return sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _read(key: str) -> bytes | None:
    """Read what was kept; the name of the file ends with its checksum."""
    for path in folder().glob(f"{key}-*.blob"):
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
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        atomic_write(folder() / _name(key, content), content)
        oldest_first = sorted(folder().glob("*.blob"), key=lambda path: path.stat().st_mtime)
        for path in oldest_first[:-KEPT]:
            path.unlink(missing_ok=True)
    except (OSError, BadFile):
        return


def _name(key: str, content: bytes) -> str:
    return f"{key}-{zlib.crc32(content):08x}.blob"
