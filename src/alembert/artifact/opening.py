"""Where artefacts are, how they are opened, and what may be wrong with them.

A complete artefact is opened by its manifest; the sizes of its files are compared, which is cheap, and `verify` compares
their hashes. Whatever is wrong becomes an error: nothing there, unfinished, of another kind, or damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alembert.artifact.disk import (
    file_size,
    hash_file,
    is_occupied,
    iter_visible_files,
    translate_os_errors,
)
from alembert.artifact.manifest import Manifest, hash_config, read_manifest
from alembert.errors import BadFile

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
