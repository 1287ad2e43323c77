"""List and copy the objects of a store (S3, Google Cloud Storage) through pyarrow.

In: an address such as `s3://bucket/prefix/`, which may carry options and credentials for pyarrow. Out: the objects by
their names below the address, and files with their bytes. The libraries of the stores start threads, which do not
survive a fork and delay the end of a process: call these functions in processes of their own (`workers.pool`).
Error messages of a store may contain credentials, so only the error code is passed on.
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
from alembert.workers.pool import claim_numbers

SCHEMES: Final = ("s3", "gs")
_BLOCK_BYTES: Final = 8 << 20
_ADDRESS: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?:[^/?#]*@)?(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<key>/[^?#]*)?"
    r"(?:\?(?P<options>[^#]*))?"
)
_CODE: Final = re.compile(r"(?:AWS Error |google::cloud::Status\()([A-Z_]+(?: \(HTTP status \d+\))?)")
_URI_SAFE: Final = ":/?#[]@!$&'()*+,;=%~"
_UNREACHABLE_CODES: Final = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "UNAVAILABLE"}
_RETRY_LIMIT: Final = "retry_limit_seconds"
"""The option of gs:// for the time limit of retries; the default is a quarter of an hour without any message."""


@dataclass(frozen=True)
class ObjectAddress:
    """The bucket and key of one object or of several."""

    uri: str
    """For pyarrow; may hold credentials, and is never shown."""
    display_name: str
    """Scheme, bucket and key."""
    options: str
    """Options of the store, without credentials."""

    @classmethod
    def parse(cls, uri: str) -> ObjectAddress:
        """Parse `s3://bucket/key`, with optional credentials before the bucket and options behind the key.

        >>> ObjectAddress.parse("s3://name:secret@bucket/some%20key?region=eu-west-1").display_name
        's3://bucket/some key'
        """
        parts = _ADDRESS.fullmatch(uri)
        if parts is None:  # and may hold a secret where none is expected: it is not quoted
            scheme = uri.partition(":")[0]
            raise BadSetting(
                f"An input that begins with {scheme}:// is not understood. Write {scheme}://bucket/key, and in a key ? and # "
                "as %3F and %23, in credentials / as %2F."
            )
        shown = f"{parts['scheme']}://{parts['bucket']}{unquote(parts['key'] or '/')}"
        return cls(_with_retry_limit(quote(uri, safe=_URI_SAFE)), shown, parts["options"] or "")

    @property
    def is_folder(self) -> bool:
        return self.display_name.endswith("/")

    @property
    def name(self) -> str:
        """The last part of the key, or the bucket."""
        return self.display_name.rstrip("/").rpartition("/")[2]

    def get_object_name(self, name: str) -> str:
        """Return the display name of an object below the address."""
        return f"{self.display_name.rstrip('/')}/{name}" if name else self.display_name


def _with_retry_limit(uri: str) -> str:
    if not uri.startswith("gs://") or _RETRY_LIMIT in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}{_RETRY_LIMIT}=30"


@dataclass(frozen=True)
class StoredObject:
    """An object by its name below the address; the object at the address itself has an empty name."""

    name: str
    size: int
    seconds: int | None
    """Modification time, if known; whole seconds, because some stores report fractions only in listings."""


@dataclass(frozen=True)
class ObjectCopy:
    """An object to copy, the target file, and the file that holds the bytes until the copy is complete."""

    stored: StoredObject
    target: Path
    incoming: Path


def list_objects(address: ObjectAddress) -> list[StoredObject]:
    """List the object at an address, or those below it."""
    store, root = _open_store(address)
    with _translate_errors(address.display_name):
        if not address.is_folder and (target := store.get_file_info(root)).is_file:
            return [_stored("", target)]
        infos = store.get_file_info(_select_below(root))
    return [_stored(info.path.removeprefix(f"{root}/"), info) for info in infos if info.is_file]


def copy_objects(address: ObjectAddress, copies: Sequence[ObjectCopy], numbers: Any, done: Any) -> None:
    """Copy the objects that this process claims from the shared counter `numbers`; `done` counts bytes."""
    store, root = _open_store(address)
    for number in claim_numbers(numbers, len(copies)):
        _copy(store, root, address, copies[number])
        with done.get_lock():
            done.value += copies[number].stored.size


def _copy(store: Any, root: str, address: ObjectAddress, copy: ObjectCopy) -> None:
    """Copy an object; the target appears when it is complete on disk, with the modification time of the store."""
    key, shown = f"{root}/{copy.stored.name}".rstrip("/"), address.get_object_name(copy.stored.name)
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
    """Yield the stored bytes of an object; each block is a request, so the object must not change meanwhile."""
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

        store, root = FileSystem.from_uri(address.uri)
        return store, str(root).rstrip("/")


def _select_below(root: str) -> Any:
    from pyarrow.fs import FileSelector

    return FileSelector(root, allow_not_found=True, recursive=True)


def _stored(name: str, info: Any) -> StoredObject:
    return StoredObject(name, int(info.size), None if info.mtime_ns is None else info.mtime_ns // 10**9)


@contextmanager
def _translate_errors(shown: str) -> Iterator[None]:
    """Replace the messages of pyarrow, which may quote an address with credentials."""
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
    return BadFile(f"There is nothing at {shown}. Check bucket and key, and the region or endpoint.")


def _make_changed_error(shown: str) -> BadFile:
    return BadFile(f"{shown} was changed while it was copied. Run the same command again.")


def _explain_error(shown: str, problem: BaseException) -> str:
    match = _CODE.search(str(problem))
    code = match[1] if match else type(problem).__name__
    if code in _UNREACHABLE_CODES:
        return (
            f"{shown} cannot be reached ({code}). Check the network, the endpoint and the credentials, and run the same "
            "command again."
        )
    return (
        f"{shown} cannot be read ({code}). Check bucket and key, the credentials and what they allow, and the region or "
        "endpoint."
    )
