"""The content of `manifest.json`, the record of an artefact.

It carries no time and no host name: the same inputs, configuration, seed and library versions give the same bytes.
A manifest that is read may come from anywhere, so its size, shape and file names are checked.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from alembert.artifact.disk import hash_text
from alembert.artifact.json_files import (
    check_text,
    check_whole_number,
    read_json,
    refuse_malformed,
    to_json_bytes,
)
from alembert.errors import BadFile, BadSetting
from alembert.settings import rename_old_keys

FORMAT = 1
_LIBRARIES = ("torch", "tokenizers", "safetensors", "numpy", "pyarrow", "lxml", "openvino", "nncf", "rjieba")
_LARGEST = 1 << 28
_SHORT = 40


@dataclass(frozen=True)
class ManifestInput:
    """What an artefact was made from; the name is the last part of its path, or its address; the hash decides."""

    name: str
    sha256: str


@dataclass(frozen=True)
class FileDigest:
    """Hash and size in bytes of one file of an artefact."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The record of an artefact; `files` is keyed by the path inside the folder, with forward slashes."""

    kind: str
    format: int = FORMAT
    versions: dict[str, str]
    seed: int | None
    config: dict[str, Any]
    inputs: tuple[ManifestInput, ...]
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, FileDigest] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Sentences about the result; left out of the file if there is none."""

    def to_bytes(self, **extra: Any) -> bytes:
        """Return the content of `manifest.json`."""
        record = {**dataclasses.asdict(self), **extra}
        if not self.notes:
            del record["notes"]
        return to_json_bytes(record, allow_nan=False)


def to_canonical_json(config: Mapping[str, Any]) -> str:
    """Write a configuration as JSON in the one way that equal configurations share."""
    try:
        return json.dumps(config, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise BadSetting(f"The configuration cannot be saved: {error}. Use finite numbers.") from error


def hash_config(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, whatever the order of its keys.

    >>> hash_config({"a": 1, "b": (2, 3)}) == hash_config({"b": [2, 3], "a": 1})
    True
    """
    return hash_text(to_canonical_json(config))


def read_manifest(path: Path, shown: str) -> Manifest:
    """Read and check a manifest."""
    return parse_manifest(read_manifest_record(path, shown), shown)


def read_manifest_record(path: Path, shown: str) -> dict[str, Any]:
    """Read the JSON object in a file, and check that this version of alembert understands it."""
    record = read_json(path, shown=shown, largest=_LARGEST)
    with refuse_malformed(_foreign(shown)):
        check_whole_number(record["format"], smallest=1)
    if record["format"] > FORMAT:
        raise BadFile(
            f"{shown} has format {record['format']}, and this alembert reads up to {FORMAT}. Install a newer alembert."
        )
    return record


def parse_manifest(record: dict[str, Any], shown: str) -> Manifest:
    """Build a manifest from JSON that may have been written by anyone."""
    with refuse_malformed(_foreign(shown)):
        return Manifest(
            kind=check_text(record["kind"]),
            versions={name: check_text(entry) for name, entry in record["versions"].items()},
            seed=None if record["seed"] is None else check_whole_number(record["seed"], smallest=None),
            config=dict(record["config"].items()),
            inputs=tuple(
                ManifestInput(check_text(entry["name"]), check_text(entry["sha256"])) for entry in record["inputs"]
            ),
            counts={name: check_whole_number(entry) for name, entry in record["counts"].items()},
            files={_check_file_name(name): _digest(entry) for name, entry in record["files"].items()},
            notes={name: check_text(entry) for name, entry in record.get("notes", {}).items()},
        )


def _digest(entry: Any) -> FileDigest:
    return FileDigest(check_text(entry["sha256"]), check_whole_number(entry["size"]))


def _check_file_name(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError("a file outside of the folder")
    return name


def _foreign(shown: str) -> str:
    return (
        f"{shown} was not written by alembert, or is damaged: its fields are not those of a manifest. Check the path."
    )


def list_differences(old: Manifest, new: Manifest) -> list[str]:
    """Name what makes two artefacts different work: kind, seed, configuration or inputs, but not versions."""
    before, now = _identity(old), _identity(new)
    keys = [key for key in sorted(before | now) if before.get(key) != now.get(key)]
    return [f"`{'.'.join(key)}` was {_short(before.get(key))} and is now {_short(now.get(key))}" for key in keys]


def _identity(manifest: Manifest) -> dict[tuple[str, ...], str]:
    inputs = {str(number): item.sha256 for number, item in enumerate(manifest.inputs, start=1)}
    config = rename_old_keys(manifest.config)
    return _flat({"kind": manifest.kind, "seed": manifest.seed, "config": config, "inputs": inputs})


def _flat(value: Any, keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Compare as JSON text: to Python, 1, 1.0 and True are equal."""
    if not isinstance(value, dict) or not value:
        return {keys: to_canonical_json(value)}
    parts = (_flat(item, (*keys, key)) for key, item in value.items())
    return {path: text for part in parts for path, text in part.items()}


def _short(text: str | None) -> str:
    if text is None:
        return "absent"
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


@functools.cache
def get_library_versions() -> Mapping[str, str]:
    """Return the versions of Python, alembert and the libraries on which results depend."""
    import importlib.metadata  # slow to load, and needed by writers alone

    from alembert import __version__  # the package may be importing this module before it knows its version

    versions = {"alembert": __version__, "python": platform.python_version()}
    for library in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    return versions


def merge_versions(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Keep the truth when work begun with one version is continued with another.

    >>> merge_versions({"torch": "2.13.0"}, {"torch": "2.14.0"})
    {'torch': '2.13.0, then 2.14.0'}
    """
    return {name: _join_versions(old.get(name, now), now) for name, now in new.items()}


def _join_versions(before: str, now: str) -> str:
    return before if before.rsplit(", then ", maxsplit=1)[-1] == now else f"{before}, then {now}"
