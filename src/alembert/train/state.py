"""The state of a run: everything needed to continue it, in safetensors and JSON.

    step-000001200/          one state, made visible by one rename
        <group>.safetensors  "model", "optimiser", "average" ...
        state.json           written last: step, facts, which step is the best so far, hash and size of each file
    step-000001200.old/      the state before, if a save of the same step was killed between two renames
    damaged-step-.../        found damaged and set aside; never read again, never deleted
    .saving/                 a save under way; what a killed one leaves goes with the next save

In go a step, facts and groups of tensors; out come the same, bit by bit, after every hash was compared. Each state
names the best one as it was known then, rather than one pointer for all: so a kill between two files, or going back to
an older state, never pairs the facts of one moment with the best weights of another. The price is that a best state is
kept for as long as a kept state names it. One process writes (`artifact.create` holds the lock); any number may read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from alembert.artifact import FileDigest, hash_config, hash_file
from alembert.artifact.disk import (
    describe_os_error,
    file_size,
    read_json,
    remove_folder,
    remove_hidden,
    sync_folder,
    translate_os_errors,
)
from alembert.errors import BadFile, BadSetting
from alembert.files.weights import SafetensorsWeights, load_tensor, read_header

FORMAT: Final = 1
STATE_FILE: Final = "state.json"
_NAME: Final = re.compile(r"step-(\d{9,})(\.old)?")
_GROUP: Final = re.compile(r"[a-z0-9_-]+")
_TYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A run at the end of a step; `facts` are JSON (finite numbers, and a tuple comes back as a list)."""

    step: int
    facts: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    """Group, such as "model" -> name -> tensor."""


class RunStates:
    """The states of one run in a folder: the newest `keep` good ones, and the best that each of these knows."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError("at least one state is kept")
        self._folder = folder
        self._keep = keep
        self._sound: set[str] = set()
        """Seals of the states whose hashes are known to be right, so that no save reads what others wrote."""

    def save(self, snapshot: Snapshot, *, best: bool = False) -> None:
        """Write a state so that a kill leaves the one before or this one, then remove those that are too old.

        A state of the same step is replaced; if that one was the best and `best` is not given, the new one is.
        """
        facts = _check_snapshot(snapshot)
        with (
            translate_os_errors(f"Saving the state of step {snapshot.step}", self._describe_remaining),
            self._draft() as draft,
        ):
            files = {group: _write_tensors(draft, group, named) for group, named in snapshot.tensors.items()}
            known_best = snapshot.step if best else self._find_best_until(snapshot.step)
            record = _StateRecord(snapshot.step, known_best, facts, files)
            _write(draft / STATE_FILE, [record.to_bytes()])
            sync_folder(draft)
            self._put_in_place(draft, snapshot.step)
            self._sound.add(record.seal())
            self._prune(snapshot.step)

    def latest(self) -> tuple[Snapshot, list[str]] | None:
        """Load the newest good state, with a note on each damaged one that was passed over; none: there is no state."""
        notes: list[str] = []
        with translate_os_errors(f"Reading the states in {self._folder}"):
            for path in self._list_folders():
                try:
                    return _load(path, self._verify(path)), notes
                except BadFile as problem:
                    notes.append(f"The state {path.name} is passed over: {problem}")
        if notes:
            raise BadFile(
                f"{self._folder} holds states and none can be used. {' '.join(notes)} "
                "Restore these files from a copy, or delete that folder to begin the run again."
            )
        return None

    def best(self) -> Snapshot | None:
        """Load the best state that the newest good one knows; none: it knows none, or that folder was deleted."""
        with translate_os_errors(f"Reading the best state in {self._folder}"):
            _, record = next(self._iterate_intact(), (None, None))
            best = record.best if record else None
            path = next((path for path in self._list_folders() if _step_of(path) == best), None)
            if path is None:
                return None
            try:
                return _load(path, self._verify(path))
            except BadFile as problem:
                raise BadFile(
                    f"The best state cannot be used. {problem} Restore it from a copy, or delete {path} to do without."
                ) from problem

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Make an empty hidden folder, without leftovers of killed saves beside it; nothing of it stays."""
        draft = self._folder / ".saving"
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True)
                sync_folder(self._folder.parent)
            remove_hidden(self._folder)
            draft.mkdir()
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _put_in_place(self, draft: Path, step: int) -> None:
        target = self._folder / f"step-{step:09d}"
        if target.is_dir():
            if self._read_intact_record(target) is None:
                self._set_aside(target)
            else:
                older = target.with_name(f"{target.name}.old")
                remove_folder(older)
                target.rename(older)
        draft.rename(target)
        sync_folder(self._folder)

    def _prune(self, saved: int) -> None:
        """Remove all but the newest good states, the one just saved, and the best that these know."""
        kept: dict[int, int | None] = {}
        for path in self._list_folders():
            step = _step_of(path)
            if step in kept or (len(kept) >= self._keep and step != saved):
                continue
            record = self._read_intact_record(path)
            if record is None:
                self._set_aside(path)
            else:
                kept[step] = record.best
        steps = {*kept, *kept.values()}
        for path in self._list_folders():
            step = _step_of(path)
            if step not in steps:
                remove_folder(path)
            steps.discard(step)

    def _set_aside(self, path: Path) -> None:
        names = (f"damaged-{path.name}{f'-{n}' if n > 1 else ''}" for n in count(1))
        path.rename(next(path.with_name(name) for name in names if not path.with_name(name).exists()))

    def _find_best_until(self, step: int) -> int | None:
        return next((record.best for path, record in self._iterate_intact() if _step_of(path) <= step), None)

    def _describe_remaining(self) -> str:
        with suppress(OSError):
            for path, _ in self._iterate_intact():
                return f"The last state, {path}, is intact: run the same command again to continue from it."
        return "Nothing that was there before has changed."

    def _iterate_intact(self) -> Iterator[tuple[Path, _StateRecord]]:
        for path in self._list_folders():
            if (record := self._read_intact_record(path)) is not None:
                yield path, record

    def _read_intact_record(self, path: Path) -> _StateRecord | None:
        """Read the record of a state and compare sizes, and hashes too if they never were; none: it is damaged."""
        try:
            record = _read_record(path)
            return record if record.seal() in self._sound else self._verify(path)
        except BadFile:
            return None

    def _verify(self, path: Path) -> _StateRecord:
        record = _read_record(path)
        self._sound.discard(record.seal())
        for group, digest in record.files.items():
            _compare_hash(path / f"{group}.safetensors", digest)
        self._sound.add(record.seal())
        return record

    def _list_folders(self) -> list[Path]:
        """List the folders that should be states, newest first."""
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        named = [path for path in paths if _NAME.fullmatch(path.name)]
        return sorted(named, key=lambda path: (_step_of(path), path.suffix != ".old"), reverse=True)


@dataclass(frozen=True)
class _StateRecord:
    """What `state.json` says."""

    step: int
    best: int | None
    facts: dict[str, Any]
    files: dict[str, FileDigest]
    """Keyed by group."""

    def seal(self) -> str:
        """Hash everything: a changed digit in a fact is damage too."""
        return hash_config(self._plain())

    def to_bytes(self) -> bytes:
        return json.dumps({**self._plain(), "sha256": self.seal()}, indent=2).encode()

    def _plain(self) -> dict[str, Any]:
        return {"format": FORMAT, **dataclasses.asdict(self)}


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _read_record(folder: Path) -> _StateRecord:
    """Read `state.json`; refuse it if it is not what was written, belongs elsewhere, or a file has another size."""
    record = _parse(_read_sealed(folder / STATE_FILE), folder / STATE_FILE)
    if record.step != _step_of(folder):
        raise BadFile(f"{folder / STATE_FILE} is damaged: it is the record of step {record.step}.")
    for group, digest in record.files.items():
        _compare_size(folder / f"{group}.safetensors", digest)
    return record


def _read_sealed(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
        seal = content.pop("sha256", None)
        is_whole = hash_config(content) == seal
    except (ValueError, RecursionError, BadSetting):  # numbers too long or not finite, lists too deep
        is_whole = False
    if not is_whole:
        raise BadFile(f"{path} is damaged: it is not what was written.")
    return content


def _parse(content: dict[str, Any], path: Path) -> _StateRecord:
    if content.pop("format", None) != FORMAT:
        raise BadFile(f"{path} was written by another version of alembert. Use that one to continue from it.")
    try:
        files = {_check_group_name(group): FileDigest(**digest) for group, digest in content.pop("files").items()}
        return _StateRecord(**content, files=files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadFile(f"{path} is damaged: it is not the record of a state.") from None


def _check_group_name(group: str) -> str:
    if not _GROUP.fullmatch(group):
        raise ValueError(f"the group {group!r} cannot name a file")
    return group


def _compare_size(path: Path, digest: FileDigest) -> None:
    size = file_size(path)
    if size is None:
        raise BadFile(f"{path} is missing.")
    if size != digest.size:
        raise BadFile(f"{path} is damaged: it has {size:,} bytes, and {digest.size:,} were written.")


def _compare_hash(path: Path, digest: FileDigest) -> None:
    try:
        sha256 = hash_file(path)
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {describe_os_error(error)}") from error
    if sha256 != digest.sha256:
        raise BadFile(f"{path} is damaged: its content is not what was written.")


def _load(folder: Path, record: _StateRecord) -> Snapshot:
    tensors = {group: _read_tensors(folder / f"{group}.safetensors") for group in record.files}
    return Snapshot(record.step, record.facts, tensors)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    shapes = read_header(path)
    weights = SafetensorsWeights(shapes, dict.fromkeys(shapes, path))
    # Cloned: a loaded tensor is a view of the file, which the run may delete.
    return {name: load_tensor(weights, name).clone() for name in shapes}


def _check_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Return the facts as JSON brings them back; what cannot be saved is a bug of the caller."""
    for group, named in snapshot.tensors.items():
        _check_group_name(group)
        if "__metadata__" in named:
            raise ValueError(f"{group}: safetensors files keep the name __metadata__ for themselves")
        for name, tensor in named.items():
            if tensor.dtype not in _TYPES:
                raise ValueError(f"{group}: {name} is of type {tensor.dtype}, which is not saved")
    facts: dict[str, Any] = json.loads(json.dumps(snapshot.facts, allow_nan=False))
    return facts


def _write_tensors(folder: Path, group: str, tensors: Mapping[str, Tensor]) -> FileDigest:
    """Write a safetensors file piece by piece.

    The library's own writer makes a copy of everything in memory or leaves a file to be read again for its hash, and
    refuses tensors that share memory.
    """
    # Large elements first, so that each tensor begins at a multiple of its element size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    ordered = {name: tensors[name] for name in names}
    return _write(folder / f"{group}.safetensors", _iterate_bytes(ordered))


def _iterate_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Return the bytes of a safetensors file: length of the header, header, values."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for tensor in tensors.values():
        plain = tensor.detach().cpu().contiguous()
        # Not reshape: it leaves a stride other than 1 to a single element, which cannot be seen as bytes.
        yield plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().data


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> FileDigest:
    """Write a new file to the disk, hashed on the way."""
    seen = hashlib.sha256()
    with path.open("xb") as file:
        for piece in pieces:
            seen.update(piece)
            file.write(piece)
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    return FileDigest(seen.hexdigest(), size)
