"""The life of an artefact: draft, commit, recovery.

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
    explained,
    is_occupied,
    remove,
    remove_hidden,
    sync_folder,
    visible,
)
from alembert.artifact.lock import locked
from alembert.artifact.manifest import (
    Digest,
    Input,
    Manifest,
    canonical,
    differences,
    joined_versions,
    parse,
    read_manifest,
    read_record,
    versions,
)
from alembert.artifact.opening import (
    DRAFT,
    MANIFEST,
    Named,
    Place,
    few,
    hash_input,
    name_in,
    open_artifact,
    place_of,
    read_target,
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


@contextmanager
def create(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | Named] = (),
    seed: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> Iterator[Draft]:
    """Write an artefact that appears at `folder` when the block ends, whole or not at all.

    With `resume`, unfinished work stays in `<folder>.partial` after an error or a kill, and the same call continues
    it (`Draft.resumed`); without it, unfinished work is removed. `overwrite` replaces a complete artefact of this kind.
    """
    place = place_of(folder)
    with explained(f"Writing {place.shown}", lambda: _afterwards(place)), _owned(place):
        _settle(place, overwrite)
        _check_target(place, kind, overwrite)
        plan = _plan(kind, config, inputs, seed)
        old = _unfinished(place, plan, resume)
        if old is not None:
            plan = dataclasses.replace(plan, versions=joined_versions(old.versions, plan.versions))
        draft = Draft(place.partial, resumed=old is not None)
        try:
            _begin(place, plan, resume)
            yield draft
            _commit(place, plan, draft.counts)
            _put_in_place(place, kind, overwrite)
        except BaseException:
            if not resume and not _is_committed(place):
                with suppress(OSError):
                    _discard(place)
            raise


def finished(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | Named] = (),
    seed: int | None = None,
) -> Manifest | None:
    """Give the manifest if this very artefact is complete already, so that a repeated command has nothing to do."""
    place = place_of(folder)
    if not place.target.parent.is_dir():
        return None
    with explained(f"Looking at {place.shown}"), _owned(place):
        _settle(place, overwrite=False)
        if not (place.target / MANIFEST).is_file():
            return None
        manifest = open_artifact(folder)
        return None if differences(manifest, _plan(kind, config, inputs, seed)) else manifest


def check(
    folder: str | Path,
    kind: str,
    *,
    config: Mapping[str, Any],
    inputs: Iterable[str | Path | Named] = (),
    seed: int | None = None,
    overwrite: bool = False,
) -> None:
    """Refuse at once what `create` with `resume` would refuse, before long preparations."""
    place = place_of(folder)
    _check_place(place)
    if place.target.parent.is_dir():
        with explained(f"Looking at {place.shown}"), _owned(place):
            _settle(place, overwrite)
            _check_target(place, kind, overwrite)
            _unfinished(place, _plan(kind, config, inputs, seed), resume=True)


@contextmanager
def _owned(place: Place) -> Iterator[None]:
    _check_place(place)
    try:
        place.target.parent.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, FileExistsError) as error:  # a file in the way, or a place like /proc
        parent = Path(place.shown).parent
        raise BadFile(f"The folder {parent} cannot be made: {error.strerror}. Choose another.") from error
    with locked(place.lock, place.shown):
        yield


def _check_place(place: Place) -> None:
    # Not under the lock yet, so another writer may be swapping the target: ask nothing about its content.
    if place.target == Path.cwd() or os.path.ismount(place.target):
        raise BadFile(f"{place.shown} is the current folder or a mount point. Name a new folder inside it.")
    if place.target.name.endswith(".partial"):
        raise BadFile(f"{place.shown} ends in .partial, which marks unfinished work. Choose another name.")
    if place.target.parent.is_file():
        raise BadFile(f"{place.shown} cannot be written: {place.target.parent} is a file. Choose another folder.")


def _check_target(place: Place, kind: str, overwrite: bool) -> None:
    if not is_occupied(place.target):
        return
    if not place.target.is_dir():
        raise BadFile(f"{place.shown} is a file, and a folder is to be written there. Choose another name.")
    if not (place.target / MANIFEST).is_file():
        raise BadFile(f"{place.shown} holds files but no {MANIFEST}, so it is left alone. Choose a new folder.")
    manifest = read_target(place)
    if manifest.kind != kind:
        raise BadFile(
            f"{place.shown} is {with_article(manifest.kind)}; {with_article(kind)} will not replace it. Choose a new folder."
        )
    if not overwrite:
        raise BadFile(f"{place.shown} is a complete {kind} already. Choose a new folder, or replace it (--overwrite).")
    names = {name_in(place.target, path) for path in visible(place.target)}
    if strange := sorted(names - manifest.files.keys() - {MANIFEST}):
        raise BadFile(
            f"{place.shown} holds files of others, which overwriting would delete: {few(strange)}. Move them away."
        )


def _settle(place: Place, overwrite: bool) -> None:
    """Finish what a killed writer had committed, and remove what it was deleting."""
    if _is_committed(place) and (overwrite or not is_occupied(place.target)):
        manifest = read_manifest(place.partial / MANIFEST, f"{place.shown}.partial/{MANIFEST}")
        _put_in_place(place, manifest.kind, overwrite)
    remove(place.trash)


def _unfinished(place: Place, plan: Manifest, resume: bool) -> Manifest | None:
    """Give the plan of unfinished work to continue; clear away what cannot be continued."""
    if not is_occupied(place.partial):
        return None
    record = _read_draft(place)
    if not record.get("resumable"):
        _discard(place)
        return None
    old = parse(record, f"{place.shown}.partial/{DRAFT}")
    if (changes := differences(old, plan)) or not resume:
        raise BadFile(
            f"{place.shown}.partial holds unfinished work{' with other settings: ' if changes else ''}"
            f"{few(changes)}. Continue it with the command and settings it began with, or delete that folder."
        )
    return old


def _read_draft(place: Place) -> dict[str, Any]:
    if (place.partial / DRAFT).is_file():
        return read_record(place.partial / DRAFT, f"{place.shown}.partial/{DRAFT}")
    # Killed before its first file, a draft holds at most the temporary file of `.draft.json`.
    if place.partial.is_dir() and all(path.suffix == ".tmp" for path in place.partial.iterdir()):
        return {}
    raise BadFile(f"{place.shown}.partial is in the way and is no draft of alembert. Move it, or choose a new folder.")


def _plan(kind: str, config: Mapping[str, Any], inputs: Iterable[str | Path | Named], seed: int | None) -> Manifest:
    plain = json.loads(canonical(config))
    hashed = tuple(Input(each.name, hash_input(each.path)) for each in map(_named, inputs))
    return Manifest(kind=kind, versions=dict(versions()), seed=seed, config=plain, inputs=hashed)


def _named(origin: str | Path | Named) -> Named:
    return origin if isinstance(origin, Named) else Named(Path(origin), Path(origin).absolute().name)


def _begin(place: Place, plan: Manifest, resume: bool) -> None:
    place.partial.mkdir(exist_ok=True)
    atomic_write(place.partial / DRAFT, plan.to_bytes(resumable=resume))
    sync_folder(place.partial.parent)


def _commit(place: Place, plan: Manifest, counts: dict[str, int]) -> None:
    manifest = dataclasses.replace(plan, counts=dict(sorted(counts.items())), files=_seal(place.partial))
    ready = place.partial / ".ready.json"
    atomic_write(ready, manifest.to_bytes())
    ready.replace(place.partial / MANIFEST)
    sync_folder(place.partial)


def _seal(folder: Path) -> dict[str, Digest]:
    """Bring every file to the disk and hash it."""
    paths = list(visible(folder))
    files = {}
    for path in paths:
        if path.is_symlink() or not path.is_file() or path == folder / MANIFEST:
            raise ValueError(f"{name_in(folder, path)}: an artefact holds files of its own and no {MANIFEST} of a verb")
        with path.open("rb") as file:
            os.fsync(file.fileno())
            files[name_in(folder, path)] = Digest(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
    for parent in {folder, *(path.parent for path in paths)}:
        sync_folder(parent)
    return files


def _is_committed(place: Place) -> bool:
    return (place.partial / MANIFEST).is_file()


def _put_in_place(place: Place, kind: str, overwrite: bool) -> None:
    """Move committed work to the target; may be killed and called again at any point."""
    try:
        _check_target(place, kind, overwrite)
    except BadFile as error:
        raise BadFile(f"{error} The finished {kind} is kept in {place.shown}.partial.") from error
    remove_hidden(place.partial)
    if is_occupied(place.target):
        remove(place.trash)
        place.target.rename(place.trash)
    elif place.target.exists():
        place.target.rmdir()
    place.partial.rename(place.target)
    sync_folder(place.target.parent)
    remove(place.trash)


def _discard(place: Place) -> None:
    # Renamed first: a half-deleted draft could be taken for a folder of the user's.
    place.partial.rename(place.trash)
    remove(place.trash)


def _afterwards(place: Place) -> str:
    if os.access(place.partial, os.F_OK):
        return f"The work so far is kept in {place.shown}.partial: run the same command again to continue."
    return f"What was at {place.shown} before is unchanged."
