"""Compiled OpenVINO graphs, kept in the cache folder, so that the next command need not compile: a third of its start.

As with all that is cached (`cache`), whatever is not there, is damaged or was made by another version or on another
processor counts as absent, and a folder that cannot be written is no error. The last few graphs are kept, and none that is
large: those take as long to read as to compile.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile
from alembert.hardware import cache
from alembert.hardware.environment import ISA
from alembert.hardware.openvino_settings import import_openvino, the_core

KEPT: Final = 4
"""Graphs that stay in the folder."""
LARGEST: Final = 50_000_000
"""Bytes of the files of a graph that is kept, at most; compiled, with its int8 tables in float, it may take thrice that."""


def compiled(graph: Path, content: str, settings: Mapping[str, Any]) -> Any:
    """Compile a graph, or take what was compiled before; `content` stands for what is in its files."""
    core, options = the_core(), dict(settings)
    if sum(path.stat().st_size for path in {graph, graph.with_suffix(".bin")} if path.is_file()) > LARGEST:
        return core.compile_model(graph, "CPU", options)
    key = _key(content, options)
    if (found := _read(key)) is not None:
        try:
            return core.import_model(found, "CPU", options)
        except RuntimeError:  # its own check: another version, another machine
            pass
    made = core.compile_model(graph, "CPU", options)
    _keep(key, made.export_model().getvalue())
    return made


def folder() -> Path:
    """Name the folder of compiled graphs."""
    return cache.folder() / "openvino"


def _key(content: str, settings: Mapping[str, Any]) -> str:
    machine = the_core().get_property("CPU", "FULL_DEVICE_NAME")
    version, limit = import_openvino().get_version(), os.environ.get(ISA)
    parts = [content, version, machine, limit, sorted(settings.items())]
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
