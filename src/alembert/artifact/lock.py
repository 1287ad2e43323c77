"""File locks: one writer of an artefact at a time.

The lock is `flock` on a file beside the artefact: it lies outside of the folder, which is renamed, and the kernel
releases it when its holder dies. It also holds between threads of one process. Where the system or the file system
has no such lock, a warning says so and the work goes on.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from alembert.errors import BadFile, FolderBusy

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
