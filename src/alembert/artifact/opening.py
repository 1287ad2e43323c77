"""Where artefacts are, their `manifest.json`, how they are opened, and what may be wrong with them.

The manifest, the record of an artefact, carries no time and no host name: the same inputs, configuration, seed and
library versions give the same bytes. A manifest that is read may come from anywhere, so its size, shape and file names
are checked.

A complete artefact is opened by its manifest; the sizes of its files are compared, which is cheap, and `verify`
compares their hashes. Whatever is wrong becomes an error: nothing there, unfinished, of another kind, or damaged.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from alembert.artifact.disk import (
    check_text,
    check_whole_number,
    file_size,
    hash_file,
    hash_text,
    is_occupied,
    iter_visible_files,
    read_json,
    refuse_malformed,
    to_json_bytes,
    translate_os_errors,
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


MANIFEST = "manifest.json"
DRAFT = ".draft.json"
"""The file that marks unfinished work."""


@dataclass(frozen=True)
class ArtifactPaths:
    """Where an artefact and its siblings are; `shown` is the folder as the user wrote it."""

    shown: str
    target: Path

    @property
    def partial(self) -> Path:
        return self.target.parent / f"{self.target.name}.partial"

    @property
    def trash(self) -> Path:
        return self.target.parent / f".{self.target.name}.trash"

    @property
    def lock(self) -> Path:
        return self.target.parent / f".{self.target.name}.lock"


@dataclass(frozen=True)
class NamedInput:
    """An input that is called otherwise than its path says, such as the copy of an object in a store."""

    path: Path
    name: str


def open_artifact(folder: str | Path, kind: str | None = None) -> Manifest:
    """Read the manifest of a complete artefact, whose files must be there with the sizes listed."""
    paths = locate_artifact(folder)
    with translate_os_errors(f"Reading {paths.shown}"):
        if not (paths.target / MANIFEST).is_file():
            raise BadFile(
                explain_missing(folder)
                or f"{paths.shown} has no {MANIFEST}, so alembert has not written it. Check the path."
            )
        manifest = read_target_manifest(paths)
        if kind not in (None, manifest.kind):
            raise BadFile(
                f"{paths.shown} is {with_article(manifest.kind)}, and {with_article(str(kind))} was expected. Check the path."
            )
        if not manifest.files:
            own = (get_relative_name(paths.target, path) for path in iter_visible_files(paths.target))
            check_listed(folder, manifest, (name for name in own if name != MANIFEST))
        wrong = [name for name, digest in manifest.files.items() if file_size(paths.target / name) != digest.size]
        _refuse_damaged(paths, wrong, "missing or of another size than the manifest says")
    return manifest


def check_listed(folder: str | Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Refuse files that are to be read and that the manifest does not list: nothing would check their size."""
    unlisted = [name for name in names if name not in manifest.files]
    _refuse_damaged(locate_artifact(folder), unlisted, f"not listed in {MANIFEST}")


def verify(folder: str | Path) -> Manifest:
    """Hash every file of an artefact again and name those that have changed."""
    manifest = open_artifact(folder)
    paths = locate_artifact(folder)
    with translate_os_errors(f"Reading {paths.shown}"):
        wrong = [name for name, digest in manifest.files.items() if hash_file(paths.target / name) != digest.sha256]
    _refuse_damaged(paths, wrong, "not what was written")
    return manifest


def hash_input(path: str | Path) -> str:
    """SHA-256 that stands for a file, an artefact (by its manifest) or another folder (by its visible files)."""
    path = Path(path)
    if not path.exists():
        raise BadFile(f"The input {path} does not exist. Check the path.")
    if not path.is_dir():
        return hash_file(path)
    if (path / MANIFEST).is_file():
        open_artifact(path)
        return hash_file(path / MANIFEST)
    files = list(iter_visible_files(path))
    results = _find_artifact_files(path, files)
    files = [file for file in files if file not in results]
    if strange := [file for file in files if not file.is_file()]:
        raise BadFile(f"The input {strange[0]} is a link to a folder or to nothing. Put the files themselves there.")
    return hash_config({get_relative_name(path, file): hash_file(file) for file in files})


def is_artifact(folder: Path) -> bool:
    """Whether a folder is an artefact, complete or not."""
    if (folder / DRAFT).is_file():
        return True
    try:
        return (folder / MANIFEST).is_file() and bool(read_manifest(folder / MANIFEST, MANIFEST))
    except BadFile:  # another program's file of the same name
        return False


def _find_artifact_files(folder: Path, files: Sequence[Path]) -> set[Path]:
    """Return the files that belong to artefacts inside a folder: they may lie there, and are no part of an input."""
    parents = {file: [folder / part for part in file.relative_to(folder).parents[:-1]] for file in files}
    results = {parent for parent in {parent for above in parents.values() for parent in above} if is_artifact(parent)}
    return {file for file, above in parents.items() if not results.isdisjoint(above)}


def locate_artifact(folder: str | Path) -> ArtifactPaths:
    """Find where an artefact is or will be."""
    # Resolved at once: the working directory may change during a long run, and a link must not be replaced.
    return ArtifactPaths(str(Path(folder)), Path(os.path.realpath(folder)))


def read_target_manifest(paths: ArtifactPaths) -> Manifest:
    """Read the manifest of the target."""
    return read_manifest(paths.target / MANIFEST, f"{paths.shown}/{MANIFEST}")


def explain_missing(folder: str | Path) -> str | None:
    """Explain in a sentence why there is no folder of this name; none: there is one."""
    paths = locate_artifact(folder)
    if paths.target.is_dir():
        return None
    if is_occupied(paths.partial):
        return (
            f"{paths.shown} is not finished: {paths.shown}.partial is there. "
            "If nothing is writing it now, run the command that began it again."
        )
    if not paths.target.exists():
        return f"{paths.shown} does not exist. Check the path."
    return f"{paths.shown} is a file, and a folder was expected. Check the path."


def _refuse_damaged(paths: ArtifactPaths, names: list[str], what: str) -> None:
    if names:
        raise BadFile(f"{paths.shown} is damaged: {what}: {shortlist(names)}. Restore these files or write it anew.")


def get_relative_name(folder: Path, path: Path) -> str:
    """Name a file as manifests do."""
    return path.relative_to(folder).as_posix()


def shortlist(names: Sequence[str]) -> str:
    """List the first names and count the rest."""
    rest = len(names) - 5
    return ", ".join(names[:5]) + (f" and {rest} more" if rest > 0 else "")


def with_article(kind: str) -> str:
    """Put `a` or `an` before a kind: `a Corpus`, `an Export`."""
    return f"{'an' if kind[:1] in 'AEIOU' else 'a'} {kind}"
