"""Objects in a store (S3, Google Cloud Storage) as pyarrow sees them: what lies at an address, and copies of it.

In: an address such as `s3://bucket/prefix/`, in which pyarrow understands options and credentials. Out: what is there,
by names below the address, and files with its bytes. The libraries of the stores start threads, which forks and the end
of a process have to reckon with: call these functions in processes of their own (`crew`), which end without ceremony.
What a store says in its errors may hold credentials; a code is passed on, and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from alembert.artifact.disk import sync_folder, translate_os_errors
from alembert.errors import BadFile, BadSetting

SCHEMES: Final = ("s3", "gs")
_BLOCK_BYTES: Final = 8 << 20
_ADDRESS: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?:[^/?#]*@)?(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<key>/[^?#]*)?"
    r"(?:\?(?P<options>[^#]*))?"
)
_CODE: Final = re.compile(r"(?:AWS Error |google::cloud::Status\()([A-Z_]+(?: \(HTTP status \d+\))?)")
_URI_SAFE: Final = ":/?#[]@!$&'()*+,;=%~"
_UNREACHABLE_CODES: Final = {
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SLOW_DOWN",
    "SERVICE_UNAVAILABLE",
    "UNAVAILABLE",
}
_RETRY_LIMIT: Final = "retry_limit_seconds"
"""The option of gs:// that says how long to try; without it, a quarter of an hour without a word."""


@dataclass(frozen=True)
class ObjectAddress:
    """Where objects lie."""

    given: str
    """As pyarrow takes it; may hold credentials, and is never shown."""
    display_name: str
    """Bucket and key."""
    options: str
    """What was said of the store beside them, without credentials."""

    @classmethod
    def parse(cls, given: str) -> ObjectAddress:
        """Understand `s3://bucket/key`, with credentials before the bucket and options behind the key if need be.

        >>> ObjectAddress.of("s3://name:secret@bucket/some%20key?region=eu-west-1").shown
        's3://bucket/some key'
        """
        parts = _ADDRESS.fullmatch(given)
        if parts is None:  # and may hold a secret where none is expected: it is not quoted
            scheme = given.partition(":")[0]
            raise BadSetting(
                f"An input that begins with {scheme}:// is not understood. Write {scheme}://bucket/key, and in a key ? and # "
                "as %3F and %23, in credentials / as %2F."
            )
        shown = f"{parts['scheme']}://{parts['bucket']}{unquote(parts['key'] or '/')}"
        return cls(_with_retry_limit(quote(given, safe=_URI_SAFE)), shown, parts["options"] or "")

    @property
    def is_folder(self) -> bool:
        return self.display_name.endswith("/")

    @property
    def name(self) -> str:
        """The last part of the key, or the bucket."""
        return self.display_name.rstrip("/").rpartition("/")[2]

    def below(self, name: str) -> str:
        """Show an object by its name below the address."""
        return f"{self.display_name.rstrip('/')}/{name}" if name else self.display_name


def _with_retry_limit(given: str) -> str:
    if not given.startswith("gs://") or _RETRY_LIMIT in given:
        return given
    return f"{given}{'&' if '?' in given else '?'}{_RETRY_LIMIT}=30"


@dataclass(frozen=True)
class StoredObject:
    """An object: its name below the address, which is empty for the object at the address itself."""

    name: str
    size: int
    seconds: int | None
    """Time of change, if the store tells it; whole seconds, because some list fractions that they leave out elsewhere."""


@dataclass(frozen=True)
class ObjectCopy:
    """An object to be copied: which, to where, and by which file on the way."""

    stored: StoredObject
    target: Path
    incoming: Path


def list_objects(address: ObjectAddress) -> list[StoredObject]:
    """Name the object at an address, or those below it."""
    store, root = _open_store(address)
    with _translate_errors(address.display_name):
        if not address.is_folder and (found := store.get_file_info(root)).is_file:
            return [_stored("", found)]
        infos = store.get_file_info(_below(root))
    return [_stored(info.path.removeprefix(f"{root}/"), info) for info in infos if info.is_file]


def copy_objects(address: ObjectAddress, copies: Sequence[ObjectCopy], numbers: Any, done: Any) -> None:
    """Copy objects, each taken by its number from a shared counter, until none is left; `done` counts bytes."""
    store, root = _open_store(address)
    while (number := _next(numbers)) < len(copies):
        _copy(store, root, address, copies[number])
        with done.get_lock():
            done.value += copies[number].stored.size


def _next(numbers: Any) -> int:
    with numbers.get_lock():
        numbers.value += 1
        return int(numbers.value) - 1


def _copy(store: Any, root: str, address: ObjectAddress, copy: ObjectCopy) -> None:
    """Copy an object: it has its name when all of it is on the disk, and the time of its change in the store."""
    key, shown = f"{root}/{copy.stored.name}".rstrip("/"), address.below(copy.stored.name)
    with translate_os_errors(f"Copying {shown}"):
        with copy.incoming.open("wb") as file:
            for block in _blocks(store, key, shown):
                file.write(block)
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        if size != copy.stored.size:
            raise _make_changed_error(shown)
        if copy.stored.seconds is not None:
            os.utime(copy.incoming, (copy.stored.seconds, copy.stored.seconds))
        copy.incoming.replace(copy.target)
        sync_folder(copy.target.parent)


def _blocks(store: Any, key: str, shown: str) -> Iterator[bytes]:
    """Give the bytes of an object as they are stored; each block is a request, so the object must stay the same."""
    with _translate_errors(shown), store.open_input_stream(key, compression=None) as stream:
        before = stream.metadata()
        while block := stream.read(_BLOCK_BYTES):
            yield block
        with store.open_input_file(key) as again:
            if again.metadata() != before:
                raise _make_changed_error(shown)


def _open_store(address: ObjectAddress) -> tuple[Any, str]:
    with _translate_errors(address.display_name):
        from pyarrow.fs import FileSystem

        store, root = FileSystem.from_uri(address.given)
        return store, str(root).rstrip("/")


def _below(root: str) -> Any:
    from pyarrow.fs import FileSelector

    return FileSelector(root, allow_not_found=True, recursive=True)


def _stored(name: str, info: Any) -> StoredObject:
    return StoredObject(name, int(info.size), None if info.mtime_ns is None else info.mtime_ns // 10**9)


@contextmanager
def _translate_errors(shown: str) -> Iterator[None]:
    """Turn what pyarrow raises into a sentence of our own: its own may quote an address with credentials."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise make_not_found_error(shown) from None
    except (ImportError, pa.ArrowNotImplementedError):
        raise BadFile(
            f"{shown} cannot be read: this pyarrow was built without such stores. Install the pyarrow of PyPI, or copy the "
            "files here and name them."
        ) from None
    except pa.ArrowInvalid:
        raise BadSetting(
            f"The address {shown} is not understood. Behind a ? come options that pyarrow has, such as region= and "
            "endpoint_override=; a ? in a key is written %3F."
        ) from None
    except (OSError, pa.ArrowException) as problem:
        raise BadFile(_explain_error(shown, problem)) from None


def make_not_found_error(shown: str) -> BadFile:
    """Say that neither an object nor a folder of objects is there."""
    return BadFile(f"There is nothing at {shown}. Check bucket and key, and the region or endpoint.")


def _make_changed_error(shown: str) -> BadFile:
    return BadFile(f"{shown} was changed while it was copied. Run the same command again.")


def _explain_error(shown: str, problem: BaseException) -> str:
    found = _CODE.search(str(problem))
    code = found[1] if found else type(problem).__name__
    if code in _UNREACHABLE_CODES:
        return (
            f"{shown} cannot be reached ({code}). Check the network, the endpoint and the credentials, and run the same "
            "command again."
        )
    return (
        f"{shown} cannot be read ({code}). Check bucket and key, the credentials and what they allow, and the region or "
        "endpoint."
    )
