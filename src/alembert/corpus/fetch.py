"""Inputs that lie in an object store, copied beside the result before they are read.

In: what a user named, paths and addresses (`s3://bucket/prefix/`). Out: paths alone. An address has become a file, or a
folder with the names below it, so readers, hashes, workers and resuming meet nothing new; what was read is still called
by its address. Nothing is opened unless there is an address. Standard input (`-`) is copied too, and removed at the end.
Copies belong to one result and are kept:

    .alembert-cache/inputs/RESULT/3f9c.../files/prefix/a.xml.gz   has its name when it is whole
    .alembert-cache/inputs/RESULT/3f9c.../incoming/12             is being copied, or was when a run was stopped

The same command again asks the store what is there, and copies what is new or was changed (size or time). The trade-off:
room on the disk for the objects as they are stored. Inputs are read three times or more (to hash them, to know their
format, after a kill), which over the network would cost more than the room.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

from alembert import artifact
from alembert.artifact.disk import remove_folder, translate_os_errors
from alembert.artifact.lock import hold_lock
from alembert.corpus.inputs import expand_inputs
from alembert.corpus.jobs import Progress
from alembert.corpus.object_store import (
    SCHEMES,
    ObjectAddress,
    ObjectCopy,
    StoredObject,
    copy_objects,
    list_objects,
    make_not_found_error,
)
from alembert.errors import BadFile, BadInput
from alembert.extras import require
from alembert.workers import processes

CACHE_FOLDER: Final = ".alembert-cache"
STDIN: Final = "-"
_PARALLEL_COPIES: Final = 4
"""Processes that copy: they wait for the network most of the time."""


@dataclass(frozen=True)
class LocalInputs:
    """What was named, as paths; those of copies have an address."""

    paths: Sequence[Path]
    addresses: Mapping[Path, str] = field(default_factory=dict)

    def get_display_name(self, path: Path) -> str:
        """Give the address of a copy, or of what lies in it; the path of everything else.

        >>> LocalInputs((), {Path("cache/notes"): "s3://bucket/notes"}).called(Path("cache/notes/a.txt"))
        's3://bucket/notes/a.txt'
        """
        for copy in (path, *path.parents):
            if copy in self.addresses:
                return "/".join([self.addresses[copy], *path.relative_to(copy).parts])
        return str(path)

    def to_manifest_inputs(self, paths: Sequence[Path]) -> list[Path | artifact.NamedInput]:
        """Give paths as a manifest records them."""
        called = [(path, self.get_display_name(path)) for path in paths]
        return [path if name == str(path) else artifact.NamedInput(path, name) for path, name in called]


def is_object_address(given: str | Path) -> bool:
    """Tell whether an object store is meant; a `Path` never does, because it holds no two slashes in a row."""
    return isinstance(given, str) and given.startswith(tuple(f"{name}://" for name in SCHEMES))


def needs_copy(given: str | Path) -> bool:
    """Tell whether an input has to be copied before it is a file: an object, or standard input."""
    return given == STDIN or is_object_address(given)


def check_inputs(inputs: Sequence[str | Path]) -> None:
    """Refuse paths at which nothing is, and addresses that are none; no store is asked."""
    here = [each for each in inputs if not needs_copy(each)]
    for given in inputs:
        if is_object_address(given):
            ObjectAddress.parse(str(given))
    if here or not inputs:
        expand_inputs(here)


@contextmanager
def fetch_inputs(
    inputs: Sequence[str | Path], out: str | Path, tell: Callable[[Progress], None] = lambda _: None
) -> Iterator[LocalInputs]:
    """Copy what is no file here; for the length of the block nobody else changes the copies for this result."""
    if not any(map(needs_copy, inputs)):
        yield LocalInputs([Path(each) for each in inputs])
        return
    found = _list_all(inputs)
    result = Path(os.path.realpath(out))
    folder = result.parent / CACHE_FOLDER / "inputs"
    with ExitStack() as stack:
        with translate_os_errors(f"Copying inputs to {folder}"):
            _make(folder)
            stack.enter_context(hold_lock(folder / f".{result.name}.lock", str(out)))
            copied = _copy_inputs(inputs, found, folder / result.name, tell)
        if STDIN in inputs:
            stack.callback(copied.paths[list(inputs).index(STDIN)].unlink, missing_ok=True)
        yield copied


def fetch_to_temporary_folder(inputs: Sequence[str | Path]) -> list[Path]:
    """Copy what is no file here to a folder that goes when this process ends; paths stay as they are.

    For files that are read by commands without a result of their own, and are small beside a corpus.
    """
    if not any(map(needs_copy, inputs)):
        return [Path(each) for each in inputs]
    with translate_os_errors("Copying inputs to a temporary folder"):
        folder = Path(tempfile.mkdtemp(dir=_temporary_folder().name))
        return list(_copy_inputs(inputs, _list_all(inputs), folder, lambda _: None).paths)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="alembert-")  # removed when the interpreter ends


_Listing = Mapping[str, tuple[ObjectAddress, Sequence[StoredObject]]]
"""What was given as an address -> what is there."""


def _list_all(inputs: Sequence[str | Path]) -> _Listing:
    addresses = {str(each): ObjectAddress.parse(str(each)) for each in inputs if is_object_address(each)}
    if addresses:
        require("Reading from an object store", "pyarrow")
    return {given: (address, _list_in_subprocess(address)) for given, address in addresses.items()}


def _copy_inputs(
    inputs: Sequence[str | Path], found: _Listing, folder: Path, tell: Callable[[Progress], None]
) -> LocalInputs:
    """Copy objects and standard input into a folder."""
    copies = {given: _sync_copy(folder, address, stored, tell) for given, (address, stored) in found.items()}
    names = {copy: found[given][0].display_name.rstrip("/") for given, copy in copies.items()}
    if STDIN in inputs:
        copies[STDIN] = _copy_stdin(folder)
        names[copies[STDIN]] = copies[STDIN].name
    return LocalInputs([copies[str(each)] if needs_copy(each) else Path(each) for each in inputs], names)


def _copy_stdin(folder: Path) -> Path:
    """Copy standard input, which can be read once alone; its format is told from its content."""
    copy = folder / "stdin"
    folder.mkdir(parents=True, exist_ok=True)
    with copy.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        size = file.tell()
    if not size:
        raise BadInput("There is nothing on standard input, which `-` stands for. Pipe a file into the command.")
    return copy


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, FileExistsError) as error:  # a file in the way, or a place like /proc
        raise BadFile(
            f"The folder {folder} cannot be made: {error.strerror}. Choose another place for the result."
        ) from error


def _list_in_subprocess(address: ObjectAddress) -> list[StoredObject]:
    """Ask a store what it has, in a process of its own; names as in folders here, without hidden ones."""
    with tempfile.TemporaryDirectory(prefix="alembert-") as folder:
        answer = Path(folder) / "listing.json"
        processes.run_processes(partial(_write_listing, address, answer), 1, lambda: None)
        stored = [StoredObject(**each) for each in json.loads(answer.read_bytes())]
    visible = [each for each in stored if not _is_hidden(each.name)]
    if not visible:
        raise make_not_found_error(address.display_name)
    _check_names(address, [each.name for each in visible])
    return visible


def _write_listing(address: ObjectAddress, answer: Path) -> None:
    answer.write_text(json.dumps([asdict(each) for each in list_objects(address)]))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _check_names(address: ObjectAddress, names: Sequence[str]) -> None:
    """Refuse keys that no folder can hold; an object has any text as its key."""
    folders = {"/".join(parts[:end]) for parts in (name.split("/") for name in names) for end in range(1, len(parts))}
    if any("" in name.split("/") for name in names if name) or any("\\" in name or "\0" in name for name in names):
        raise BadFile(
            f"A key below {address.display_name} has // or a backslash in it, and cannot be a path here. Give it another key."
        )
    if both := sorted(folders.intersection(names)):
        raise BadFile(
            f"{address.display_name} has an object {both[0]} and objects below {both[0]}/, which no folder can hold. Name single "
            "objects, or a longer prefix."
        )


def _sync_copy(
    place: Path, address: ObjectAddress, stored: Sequence[StoredObject], tell: Callable[[Progress], None]
) -> Path:
    """Bring the copy of an address to what the store has, and give its path."""
    folder = place / hashlib.sha256(f"{address.display_name} {address.options}".encode()).hexdigest()[:16]
    root, incoming = folder / "files" / address.name, folder / "incoming"
    copies = [ObjectCopy(each, root / each.name, incoming / str(number)) for number, each in enumerate(stored)]
    remove_folder(incoming)
    _remove_stale(root, {copy.target for copy in copies})
    left = [copy for copy in copies if not _is_current(copy)]
    if left:
        for parent in {incoming, *(copy.target.parent for copy in left)}:
            parent.mkdir(parents=True, exist_ok=True)
        _copy(address, left, sum(each.size for each in stored), tell)
        remove_folder(incoming)
    return root


def _remove_stale(root: Path, wanted: set[Path]) -> None:
    """Remove what the store no longer has, and folders that are empty then."""
    if root.is_file() and root not in wanted:
        root.unlink()
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    if root in wanted and root.is_dir():
        root.rmdir()


def _is_current(copy: ObjectCopy) -> bool:
    """Tell whether a copy is that of the object as it is now."""
    if not copy.target.is_file():
        return False
    found = copy.target.stat()
    return copy.stored.seconds is not None and (found.st_size, int(found.st_mtime)) == (
        copy.stored.size,
        copy.stored.seconds,
    )


def _copy(address: ObjectAddress, copies: Sequence[ObjectCopy], total: int, tell: Callable[[Progress], None]) -> None:
    before = total - sum(copy.stored.size for copy in copies)
    numbers, done = processes.get_context().Value("q", 0), processes.get_context().Value("q", 0)
    job = partial(copy_objects, address, copies, numbers, done)
    workers = min(_PARALLEL_COPIES, len(copies))
    processes.run_processes(job, workers, lambda: tell(Progress("copying the input", before + done.value, total)))
