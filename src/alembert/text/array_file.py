"""Arrays in one file, mapped into memory when they are opened, so that processes share them.

In: named arrays and a head that JSON can hold. Out: the same, read-only. A file begins with a mark and the SHA-256 of
everything after it, which is checked before anything is mapped: a file that is truncated, damaged or of another kind is a
`ValueError`. There is no pickle in it. Numbers have the byte order of the machine.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LARGEST: Final = 1 << 31
"""Bytes of a file, at most."""
_MARK: Final = b"alembert arrays\n"
_HASH_BYTES: Final = hashlib.sha256().digest_size
_HEAD_START: Final = len(_MARK) + _HASH_BYTES + 8
_ALIGNMENT: Final = 64
_TYPES: Final = {np.dtype(name).str for name in ("bool", "uint8", "int32", "int64", "uint64")}

AnyArray = NDArray[Any]


def pack_arrays(arrays: Mapping[str, AnyArray], head: Mapping[str, Any]) -> bytes:
    """Return the content of a file."""
    table, start = {}, 0
    for name, array in arrays.items():
        if array.dtype.str not in _TYPES or not array.flags.c_contiguous:
            raise TypeError(f"array {name} has the type {array.dtype}, or is not contiguous")
        table[name] = {"dtype": array.dtype.str, "shape": array.shape, "start": start}
        start += _padded(array.nbytes)
    described = json.dumps({"head": head, "arrays": table}).encode()
    parts: list[Any] = [len(described).to_bytes(8, "little"), described, bytes(_gap(_HEAD_START + len(described)))]
    for array in arrays.values():
        parts += (array.data, bytes(_gap(array.nbytes)))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return b"".join((_MARK, digest.digest(), *parts))


def map_arrays(path: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Map a file and return its arrays and its head."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not _HEAD_START <= size <= LARGEST:
            raise ValueError(f"a file of arrays cannot have {size} bytes")
        mark, expected = file.read(len(_MARK)), file.read(_HASH_BYTES)
        if mark != _MARK or hashlib.file_digest(file, "sha256").digest() != expected:
            raise ValueError("it is no file of arrays, or it is damaged")
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    length = int.from_bytes(content[_HEAD_START - 8 : _HEAD_START], "little")
    described = json.loads(content[_HEAD_START : _HEAD_START + length])
    base = _padded(_HEAD_START + length)
    return {name: _view(content, base, **row) for name, row in described["arrays"].items()}, described["head"]


def _view(content: mmap.mmap, base: int, *, dtype: str, shape: list[int], start: int) -> AnyArray:
    if dtype not in _TYPES:
        raise ValueError(f"{dtype} is no type of a file of arrays")
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(content, dtype, count, base + start).reshape(shape)  # refuses what is out of the file


def _padded(size: int) -> int:
    return size + _gap(size)


def _gap(size: int) -> int:
    return -size % _ALIGNMENT
