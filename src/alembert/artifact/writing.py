"""How an artefact is written: draft, commit, recovery after a crash.

    <folder>          absent, empty, or complete
    <folder>.partial  with `.draft.json`: unfinished; with `manifest.json`: finished, not yet in place
    .<folder>.trash   being deleted
    .<folder>.lock    held by the kernel for as long as the writer lives

The manifest is the commit record: it is written last, under its hidden name, and one rename makes it valid. Whoever
takes the lock next finishes what was committed and removes or continues what was not. The trade-off: replacing takes
two renames, since no portable call swaps two folders, so a reader may for an instant find nothing; a kill in that
instant leaves the new result whole in `<folder>.partial`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembert.artifact.disk import (
    atomic_write,
    hold_lock,
    is_occupied,
    iter_visible_files,
    remove_folder,
    remove_hidden,
    sync_folder,
    translate_os_errors,
)
from alembert.artifact.opening import (
    DRAFT,
    MANIFEST,
    ArtifactPaths,
    FileDigest,
    Manifest,
    ManifestInput,
    NamedInput,
    get_library_versions,
    get_relative_name,
    hash_input,
    list_differences,
    locate_artifact,
    merge_versions,
    open_artifact,
    parse_manifest,
    read_manifest,
    read_manifest_record,
    read_target_manifest,
    shortlist,
    to_canonical_json,
    with_article,
)
from alembert.errors import BadFile


@dataclass(frozen=True)
class Draft:
    """An artefact being written: fill `path` and `counts`.

    Names that begin with a dot are scratch, such as the state needed to resume: they are deleted at the end.
    """

    path: Path
    resumed: bool
    counts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Sentences about the result."""


@contextmanager
def create(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | NamedInput] = (),
    seed: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> Iterator[Draft]:
    """Write an artefact that appears at `folder` when the block ends, whole or not at all.

    With `resume`, unfinished work stays in `<folder>.partial` after an error or a kill, and the same call continues
    it (`Draft.resumed`); without it, unfinished work is removed. `overwrite` replaces a complete artefact of this kind.
    """
    paths = locate_artifact(folder)
    with translate_os_errors(f"Writing {paths.shown}", lambda: _make_resume_hint(paths)), _hold_artifact_lock(paths):
        _recover(paths, overwrite)
        _check_target(paths, kind, overwrite)
        plan = _plan(kind, config, inputs, seed)
        old = _find_unfinished(paths, plan, resume)
        if old is not None:
            plan = dataclasses.replace(plan, versions=merge_versions(old.versions, plan.versions))
        draft = Draft(paths.partial, resumed=old is not None)
        try:
            _begin(paths, plan, resume)
            yield draft
            _commit(paths, dataclasses.replace(plan, notes=draft.notes), draft.counts)
            _publish(paths, kind, overwrite)
        except BaseException:
            if not resume and not _is_committed(paths):
                with suppress(OSError):
                    _discard(paths)
            raise


def find_finished(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | NamedInput] = (),
    seed: int | None = None,
) -> Manifest | None:
    """Return the manifest if this very artefact is complete already, so that a repeated command has nothing to do."""
    paths = locate_artifact(folder)
    if not paths.target.parent.is_dir():
        return None
    with translate_os_errors(f"Looking at {paths.shown}"), _hold_artifact_lock(paths):
        _recover(paths, overwrite=False)
        if not (paths.target / MANIFEST).is_file():
            return None
        manifest = open_artifact(folder)
        return None if list_differences(manifest, _plan(kind, config, inputs, seed)) else manifest


def check_can_create(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | NamedInput] = (),
    seed: int | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse at once what `create` with `resume` would refuse, before long preparations."""
    paths = locate_artifact(folder)
    _check_location(paths)
    if paths.target.parent.is_dir():
        with translate_os_errors(f"Looking at {paths.shown}"), _hold_artifact_lock(paths):
            _recover(paths, overwrite)
            _check_target(paths, kind, overwrite)
            _find_unfinished(paths, _plan(kind, config, inputs, seed), resume=True)


@contextmanager
def _hold_artifact_lock(paths: ArtifactPaths) -> Iterator[None]:
    _check_location(paths)
    try:
        paths.target.parent.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, FileExistsError) as error:  # a file in the way, or a folder like /proc
        parent = Path(paths.shown).parent
        raise BadFile(f"The folder {parent} cannot be made: {error.strerror}. Choose another.") from error
    with hold_lock(paths.lock, paths.shown):
        yield


def _check_location(paths: ArtifactPaths) -> None:
    # Not under the lock yet, so another writer may be swapping the target: ask nothing about its content.
    if paths.target == Path.cwd() or os.path.ismount(paths.target):
        raise BadFile(f"{paths.shown} is the current folder or a mount point. Name a new folder inside it.")
    if paths.target.name.endswith(".partial"):
        raise BadFile(f"{paths.shown} ends in .partial, which marks unfinished work. Choose another name.")
    if paths.target.parent.is_file():
        raise BadFile(f"{paths.shown} cannot be written: {paths.target.parent} is a file. Choose another folder.")


def _check_target(paths: ArtifactPaths, kind: str, overwrite: bool) -> None:
    if not is_occupied(paths.target):
        return
    if not paths.target.is_dir():
        raise BadFile(f"{paths.shown} is a file, and a folder is to be written there. Choose another name.")
    if not (paths.target / MANIFEST).is_file():
        raise BadFile(f"{paths.shown} holds files but no {MANIFEST}, so it is left alone. Choose a new folder.")
    manifest = read_target_manifest(paths)
    if manifest.kind != kind:
        raise BadFile(
            f"{paths.shown} is {with_article(manifest.kind)}; {with_article(kind)} will not replace it. Choose a new folder."
        )
    if not overwrite:
        raise BadFile(f"{paths.shown} is a complete {kind} already. Choose a new folder, or replace it (--overwrite).")
    names = {get_relative_name(paths.target, path) for path in iter_visible_files(paths.target)}
    if strange := sorted(names - manifest.files.keys() - {MANIFEST}):
        raise BadFile(
            f"{paths.shown} holds files of others, which overwriting would delete: {shortlist(strange)}. Move them away."
        )


def _recover(paths: ArtifactPaths, overwrite: bool) -> None:
    """Finish what a killed writer had committed, and remove what it was deleting."""
    if _is_committed(paths) and (overwrite or not is_occupied(paths.target)):
        manifest = read_manifest(paths.partial / MANIFEST, f"{paths.shown}.partial/{MANIFEST}")
        _publish(paths, manifest.kind, overwrite)
    remove_folder(paths.trash)


def _find_unfinished(paths: ArtifactPaths, plan: Manifest, resume: bool) -> Manifest | None:
    """Return the plan of unfinished work to continue; clear away what cannot be continued."""
    if not is_occupied(paths.partial):
        return None
    record = _read_draft(paths)
    if not record.get("resumable"):
        _discard(paths)
        return None
    old = parse_manifest(record, f"{paths.shown}.partial/{DRAFT}")
    if (changes := list_differences(old, plan)) or not resume:
        raise BadFile(
            f"{paths.shown}.partial holds unfinished work{' with other settings: ' if changes else ''}"
            f"{shortlist(changes)}. Continue it with the command and settings it began with, or delete that folder."
        )
    return old


def _read_draft(paths: ArtifactPaths) -> dict[str, Any]:
    if (paths.partial / DRAFT).is_file():
        return read_manifest_record(paths.partial / DRAFT, f"{paths.shown}.partial/{DRAFT}")
    # Killed before its first file, a draft holds at most the temporary file of `.draft.json`.
    if paths.partial.is_dir() and all(path.suffix == ".tmp" for path in paths.partial.iterdir()):
        return {}
    raise BadFile(f"{paths.shown}.partial is in the way and is no draft of alembert. Move it, or choose a new folder.")


def _plan(
    kind: str, config: Mapping[str, Any], inputs: Iterable[str | Path | NamedInput], seed: int | None
) -> Manifest:
    plain = json.loads(to_canonical_json(config))
    hashed = tuple(ManifestInput(origin.name, hash_input(origin.path)) for origin in map(_to_named_input, inputs))
    return Manifest(kind=kind, versions=dict(get_library_versions()), seed=seed, config=plain, inputs=hashed)


def _to_named_input(origin: str | Path | NamedInput) -> NamedInput:
    return origin if isinstance(origin, NamedInput) else NamedInput(Path(origin), Path(origin).absolute().name)


def _begin(paths: ArtifactPaths, plan: Manifest, resume: bool) -> None:
    paths.partial.mkdir(exist_ok=True)
    atomic_write(paths.partial / DRAFT, plan.to_bytes(resumable=resume))
    sync_folder(paths.partial.parent)


def _commit(paths: ArtifactPaths, plan: Manifest, counts: dict[str, int]) -> None:
    manifest = dataclasses.replace(plan, counts=dict(sorted(counts.items())), files=_sync_and_hash(paths.partial))
    ready = paths.partial / ".ready.json"
    atomic_write(ready, manifest.to_bytes())
    ready.replace(paths.partial / MANIFEST)
    sync_folder(paths.partial)


def _sync_and_hash(folder: Path) -> dict[str, FileDigest]:
    """Bring every file to the disk and hash it."""
    paths = list(iter_visible_files(folder))
    files = {}
    for path in paths:
        if path.is_symlink() or not path.is_file() or path == folder / MANIFEST:
            raise ValueError(
                f"{get_relative_name(folder, path)}: an artefact holds files of its own and no {MANIFEST} of a verb"
            )
        with path.open("rb") as file:
            os.fsync(file.fileno())
            files[get_relative_name(folder, path)] = FileDigest(
                hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
            )
    for parent in {folder, *(path.parent for path in paths)}:
        sync_folder(parent)
    return files


def _is_committed(paths: ArtifactPaths) -> bool:
    return (paths.partial / MANIFEST).is_file()


def _publish(paths: ArtifactPaths, kind: str, overwrite: bool) -> None:
    """Move committed work to the target; may be killed and called again at any point."""
    try:
        _check_target(paths, kind, overwrite)
    except BadFile as error:
        raise BadFile(f"{error} The finished {kind} is kept in {paths.shown}.partial.") from error
    remove_hidden(paths.partial)
    if is_occupied(paths.target):
        remove_folder(paths.trash)
        paths.target.rename(paths.trash)
    elif paths.target.exists():
        paths.target.rmdir()
    paths.partial.rename(paths.target)
    sync_folder(paths.target.parent)
    remove_folder(paths.trash)


def _discard(paths: ArtifactPaths) -> None:
    # Renamed first: a half-deleted draft could be taken for a folder of the user's.
    paths.partial.rename(paths.trash)
    remove_folder(paths.trash)


def _make_resume_hint(paths: ArtifactPaths) -> str:
    if os.access(paths.partial, os.F_OK):
        return f"The work so far is kept in {paths.shown}.partial: run the same command again to continue."
    return f"What was at {paths.shown} before is unchanged."
