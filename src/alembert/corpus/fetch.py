"""Copy inputs from an object store, and standard input, to files beside the result before they are read.

In: paths and addresses (`s3://bucket/prefix/`) that a user named. Out: paths alone. An address becomes a file, or a
folder with the names below it, so that readers, hashes, workers and resuming see files only; reports show the address.
Nothing is opened unless there is an address. The copy of standard input (`-`) is removed at the end. Other copies
belong to one result and are kept:

    .alembert-cache/inputs/RESULT/3f9c.../files/prefix/a.xml.gz   complete
    .alembert-cache/inputs/RESULT/3f9c.../incoming/12             being copied, or left over from a stopped run

The same command again lists the store, and copies what is new or has changed (size or time). The trade-off is disk
space: inputs are read three times or more (to hash them, to detect their format, after a kill), which would be slow
over the network.
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
from alembert.artifact.disk import hold_lock, remove_folder, translate_os_errors
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
from alembert.errors import BadFile, BadInput, require
from alembert.workers import pool

CACHE_FOLDER: Final = ".alembert-cache"
STDIN: Final = "-"
_PARALLEL_COPIES: Final = 4
"""Processes that copy: they wait for the network most of the time."""


@dataclass(frozen=True)
class LocalInputs:
    """The inputs as paths, with the addresses of those that are copies."""

    paths: Sequence[Path]
    addresses: Mapping[Path, str] = field(default_factory=dict)

    def get_display_name(self, path: Path) -> str:
        """Return the address of a copy, or of a file in it; the path of everything else.

        >>> LocalInputs((), {Path("cache/notes"): "s3://bucket/notes"}).get_display_name(Path("cache/notes/a.txt"))
        's3://bucket/notes/a.txt'
        """
        for copy in (path, *path.parents):
            if copy in self.addresses:
                return "/".join([self.addresses[copy], *path.relative_to(copy).parts])
        return str(path)

    def to_manifest_inputs(self, paths: Sequence[Path]) -> list[Path | artifact.NamedInput]:
        names = [self.get_display_name(path) for path in paths]
        return [
            path if name == str(path) else artifact.NamedInput(path, name)
            for path, name in zip(paths, names, strict=True)
        ]


def is_object_address(address: str | Path) -> bool:
    """Check for the scheme of an object store; a `Path` has none, because it holds no two slashes in a row."""
    return isinstance(address, str) and address.startswith(tuple(f"{name}://" for name in SCHEMES))


def needs_copy(path: str | Path) -> bool:
    return path == STDIN or is_object_address(path)


def check_inputs(inputs: Sequence[str | Path]) -> None:
    """Raise for paths that do not exist and malformed addresses; no store is contacted."""
    local_paths = [path for path in inputs if not needs_copy(path)]
    for address in inputs:
        if is_object_address(address):
            ObjectAddress.parse(str(address))
    if local_paths or not inputs:
        expand_inputs(local_paths)


@contextmanager
def fetch_inputs(
    inputs: Sequence[str | Path], out: str | Path, on_progress: Callable[[Progress], None] = lambda _: None
) -> Iterator[LocalInputs]:
    """Copy inputs that are not local files; the copies are locked until the end of the block."""
    if not any(map(needs_copy, inputs)):
        yield LocalInputs([Path(path) for path in inputs])
        return
    listing = _list_all(inputs)
    result = Path(os.path.realpath(out))
    folder = result.parent / CACHE_FOLDER / "inputs"
    with ExitStack() as stack:
        with translate_os_errors(f"Copying inputs to {folder}"):
            _make_folder(folder)
            stack.enter_context(hold_lock(folder / f".{result.name}.lock", str(out)))
            copied = _copy_inputs(inputs, listing, folder / result.name, on_progress)
        if STDIN in inputs:
            stack.callback(copied.paths[list(inputs).index(STDIN)].unlink, missing_ok=True)
        yield copied


def fetch_to_temporary_folder(inputs: Sequence[str | Path]) -> list[Path]:
    """Copy inputs that are not local files to a folder that is removed when this process ends.

    For commands without a result of their own, whose inputs are small compared with a corpus.
    """
    if not any(map(needs_copy, inputs)):
        return [Path(path) for path in inputs]
    with translate_os_errors("Copying inputs to a temporary folder"):
        folder = Path(tempfile.mkdtemp(dir=_temporary_folder().name))
        return list(_copy_inputs(inputs, _list_all(inputs), folder, lambda _: None).paths)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="alembert-")  # removed when the interpreter ends


_Listing = Mapping[str, tuple[ObjectAddress, Sequence[StoredObject]]]
"""The objects of each address that a user named."""


def _list_all(inputs: Sequence[str | Path]) -> _Listing:
    addresses = {str(path): ObjectAddress.parse(str(path)) for path in inputs if is_object_address(path)}
    if addresses:
        require("Reading from an object store", "pyarrow")
    return {name: (address, _list_in_subprocess(address)) for name, address in addresses.items()}


def _copy_inputs(
    inputs: Sequence[str | Path], listing: _Listing, folder: Path, on_progress: Callable[[Progress], None]
) -> LocalInputs:
    copies = {name: _sync_copy(folder, address, stored, on_progress) for name, (address, stored) in listing.items()}
    names = {copy: listing[name][0].display_name.rstrip("/") for name, copy in copies.items()}
    if STDIN in inputs:
        copies[STDIN] = _copy_stdin(folder)
        names[copies[STDIN]] = copies[STDIN].name
    return LocalInputs([copies[str(path)] if needs_copy(path) else Path(path) for path in inputs], names)


def _copy_stdin(folder: Path) -> Path:
    """Copy standard input, which can be read only once; its format is detected from its content."""
    copy = folder / "stdin"
    folder.mkdir(parents=True, exist_ok=True)
    with copy.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        size = file.tell()
    if not size:
        raise BadInput("There is nothing on standard input, which `-` stands for. Pipe a file into the command.")
    return copy


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, FileExistsError) as error:  # a file in the way, or a place like /proc
        raise BadFile(
            f"The folder {folder} cannot be made: {error.strerror}. Choose another place for the result."
        ) from error


def _list_in_subprocess(address: ObjectAddress) -> list[StoredObject]:
    """List the objects of an address in a process of its own, without hidden ones, as for local folders."""
    with tempfile.TemporaryDirectory(prefix="alembert-") as folder:
        answer = Path(folder) / "listing.json"
        pool.run_processes(partial(_write_listing, address, answer), 1, lambda: None)
        stored = [StoredObject(**stored_object) for stored_object in json.loads(answer.read_bytes())]
    visible = [stored_object for stored_object in stored if not _is_hidden(stored_object.name)]
    if not visible:
        raise make_not_found_error(address.display_name)
    _check_names(address, [stored_object.name for stored_object in visible])
    return visible


def _write_listing(address: ObjectAddress, answer: Path) -> None:
    answer.write_text(json.dumps([asdict(stored) for stored in list_objects(address)]))


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _check_names(address: ObjectAddress, names: Sequence[str]) -> None:
    """Raise for keys that cannot be paths: any text can be the key of an object."""
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
    cache: Path, address: ObjectAddress, stored: Sequence[StoredObject], on_progress: Callable[[Progress], None]
) -> Path:
    """Update the copy of an address to the objects of the store, and return its path."""
    folder = cache / hashlib.sha256(f"{address.display_name} {address.options}".encode()).hexdigest()[:16]
    root, incoming = folder / "files" / address.name, folder / "incoming"
    copies = [ObjectCopy(item, root / item.name, incoming / str(number)) for number, item in enumerate(stored)]
    remove_folder(incoming)
    _remove_stale(root, {copy.target for copy in copies})
    pending = [copy for copy in copies if not _is_current(copy)]
    if pending:
        for parent in {incoming, *(copy.target.parent for copy in pending)}:
            parent.mkdir(parents=True, exist_ok=True)
        _copy(address, pending, sum(item.size for item in stored), on_progress)
        remove_folder(incoming)
    return root


def _remove_stale(root: Path, current: set[Path]) -> None:
    """Remove copies of objects that the store no longer has, and empty folders."""
    if root.is_file() and root not in current:
        root.unlink()
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):
                path.rmdir()
        elif path not in current:
            path.unlink()
    if root in current and root.is_dir():
        root.rmdir()


def _is_current(copy: ObjectCopy) -> bool:
    if not copy.target.is_file():
        return False
    status = copy.target.stat()
    return (status.st_size, int(status.st_mtime)) == (copy.stored.size, copy.stored.seconds)


def _copy(
    address: ObjectAddress, copies: Sequence[ObjectCopy], total: int, on_progress: Callable[[Progress], None]
) -> None:
    before = total - sum(copy.stored.size for copy in copies)
    numbers, done = pool.get_context().Value("q", 0), pool.get_context().Value("q", 0)
    job = partial(copy_objects, address, copies, numbers, done)
    workers = min(_PARALLEL_COPIES, len(copies))
    pool.run_processes(job, workers, lambda: on_progress(Progress("copying the input", before + done.value, total)))
