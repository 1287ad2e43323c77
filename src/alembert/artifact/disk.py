"""Durable files and folders: atomic writes, hashes, locks, JSON, and file system errors in plain sentences.

Data is brought to the disk before the rename that makes it visible, and the folder after it, so that neither a kill nor
a power cut shows half a file. The price is an fsync for each write: write rarely, or many bytes at a time.

The lock of an artefact, which lets one writer in at a time, is `flock` on a file beside it: it lies outside of the
folder, which is renamed, and the kernel releases it when its holder dies. It also holds between threads of one process.
Where the system or the file system has no such lock, a warning says so and the work goes on.

JSON files may have been written by anyone. Each reader of a `task.json`, `config.json`, `manifest.json` or tokenizer
file comes through here, so that a damaged or hostile file is refused in one way: too large, no UTF-8, no JSON, nested
too deeply, or no object. What a table says is for its reader to check, inside `refuse_malformed`.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import math
import os
import platform
import re
import secrets
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile, FolderBusy

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_BAD_PATH = {errno.ENOTDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EXDEV}
_DEVICE = {errno.EIO, errno.EBUSY, errno.ESTALE, errno.ENODEV}
USER_FIXABLE_ERRORS = _FULL | _FORBIDDEN | _BAD_PATH | _DEVICE


def atomic_write(path: str | Path, data: bytes) -> None:
    """Replace one file so that a reader, or a crash, meets the old content or the new and nothing between."""
    path = Path(path)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        _write_through(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BadFile(f"{path} could not be written: {describe_os_error(error)}") from error


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    if os.name == "nt":  # Windows opens no folders, and writes names through by itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: str | Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_text(text: str) -> str:
    """SHA-256 of a text in UTF-8; unpaired surrogates are hashed too."""
    return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()


def iter_visible_files(folder: Path) -> Iterator[Path]:
    """Walk over everything that is not a folder, in order; links are not followed, names with a dot are skipped."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from iter_visible_files(path)
        else:
            yield path


def is_occupied(path: Path) -> bool:
    """Whether there is anything but an empty folder at a path."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def file_size(path: Path) -> int | None:
    """Return the size of a regular file; None if there is no such file."""
    return path.stat().st_size if path.is_file() else None


def remove_folder(folder: Path) -> None:
    """Delete a folder; what cannot be deleted is warned about, since the result does not depend on it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        warnings.warn(f"{folder} could not be deleted. Delete it by hand.", RuntimeWarning, stacklevel=2)


def remove_hidden(folder: Path) -> None:
    """Delete every file and folder whose name begins with a dot."""
    for path in list(folder.iterdir()):
        is_folder = path.is_dir() and not path.is_symlink()
        if is_folder and path.name.startswith("."):
            shutil.rmtree(path)
        elif is_folder:
            remove_hidden(path)
        elif path.name.startswith("."):
            path.unlink()


def describe_os_error(error: OSError) -> str:
    """Describe what the file system refused, and what to do."""
    reason = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return f"{reason}. Free some space, or use another disk."
    if error.errno in _FORBIDDEN:
        return f"{reason}. Check the permissions, or use another folder."
    return f"{reason}. Check the path and the disk."


@contextmanager
def translate_os_errors(action: str, then: Callable[[], str] = str) -> Iterator[None]:
    """Turn file system errors that a user can mend into a sentence: `action` stopped, why, what to do, `then()`."""
    try:
        yield
    except OSError as error:
        if error.errno not in USER_FIXABLE_ERRORS:
            raise
        where = f" ({error.filename})" if error.filename else ""
        raise BadFile(f"{action} stopped{where}: {describe_os_error(error)} {then()}".rstrip()) from error


_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}


@contextmanager
def hold_lock(path: Path, shown: str) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; raise `FolderBusy` if someone else does."""
    descriptor = _take(path, shown)
    try:
        _write_holder(descriptor)
        yield
    finally:
        # Deleted while still held: whoever has opened it already finds another file, or none, at this path.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _take(path: Path, shown: str) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError as error:  # such as /proc, whose folders take no files
            raise BadFile(f"{shown} cannot be written: its folder takes no files. Choose another.") from error
        with ExitStack() as on_failure:
            on_failure.callback(os.close, descriptor)
            if not _flock(descriptor):
                raise FolderBusy(
                    f"{shown} is being written by {_read_holder(descriptor)}. Wait for it to end, or choose a new folder."
                )
            if _is_at(path, descriptor):
                on_failure.pop_all()
                return descriptor


def _flock(descriptor: int) -> bool:
    """Try to lock; return False if someone else holds the lock."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except ImportError:
        _warn_unlocked()
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
        _warn_unlocked()
    return True


def _warn_unlocked() -> None:
    message = "This system has no file locks: a second process writing the same folder will not be noticed."
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is still the one at this path: its last holder may just have deleted it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    since = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    signature = {"pid": os.getpid(), "host": platform.node(), "since": since}
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(signature).encode())


def _read_holder(descriptor: int) -> str:
    try:
        signature = json.loads(os.read(descriptor, 4096))
        return f"process {signature['pid']} on {signature['host']} since {signature['since']}"
    except (ValueError, KeyError, TypeError):  # the holder has not signed yet
        return "another process"


MAX_JSON_BYTES: Final = 50_000_000
"""Bytes of a file, unless its reader expects another size."""
MALFORMED_ERRORS: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What Python raises for values of another type, size or shape than the code that reads them expects."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def read_json(path: Path, *, shown: str | None = None, largest: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read the JSON object in a file, which messages call `shown`; refuse anything else with a sentence."""
    name = shown or str(path)
    try:
        size = path.stat().st_size
        if size > largest:
            raise BadFile(f"{name} has {size:,} bytes; expected at most {largest:,}. Check the file.")
        content = parse_json(path.read_bytes())
    except OSError as problem:
        raise BadFile(f"{name} cannot be read: {problem.strerror}.") from None
    except ValueError:
        raise BadFile(f"{name} is damaged or cut off: it is not readable as JSON. Restore or rebuild it.") from None
    if not isinstance(content, dict):
        raise BadFile(f"{name} is damaged: it holds no JSON object. Restore or rebuild it.")
    return content


def parse_json(data: bytes, *, unique: bool = False) -> Any:
    """Parse JSON in UTF-8; raise ValueError for what is none, NaN and infinite numbers included.

    With `unique` an object that has one name twice is refused as well.
    """
    try:
        # Manifests of the past hold the bytes of file names that are not Unicode as surrogates.
        return json.loads(
            data.decode("utf-8", "surrogatepass"),
            object_pairs_hook=_unique if unique else None,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {name!r} occurs twice")
    return table


def to_json_bytes(value: Any, *, allow_nan: bool = True) -> bytes:
    r"""Write a value as JSON for people and programs: UTF-8, with escapes for what UTF-8 cannot hold.

    Python gives file names that are not Unicode with lone surrogates. Their escapes are read back as the same name.

    >>> to_json_bytes({"name": "caf\udce9"})
    b'{\n  "name": "caf\\udce9"\n}\n'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan, indent=2)
    return (_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n").encode()


@contextmanager
def refuse_malformed(sentence: str) -> Iterator[None]:
    """Refuse with this sentence a table that the code inside cannot read; its own sentences pass."""
    try:
        yield
    except MALFORMED_ERRORS:
        raise BadFile(sentence) from None


def check_whole_number(value: Any, smallest: int | None = 0) -> int:
    """Return a whole number of a table; raise ValueError for anything else, true and false included."""
    if type(value) is not int or (smallest is not None and value < smallest):
        raise ValueError("no whole number, or too small a one")
    return value


def check_text(value: Any) -> str:
    """Return a text of a table; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError("no text")
    return value
