"""Bytes of a plain, gzip or zstd file in blocks, up to the first damage and not beyond a bomb.

Goes in: a binary stream at its start. Comes out: blocks of decompressed bytes; `Damaged` is raised where the stream is
cut or broken, after everything before that place was given. The standard `gzip` module loses up to a buffer of good
data before a cut, so gzip members are inflated here with `zlib`. Several members or frames in one file, and zero
padding after the last, are fine. Anything that grows more than 500-fold after its first 64 MB is taken for a bomb: text
of any language stays below 50.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from alembert.corpus.readers.contract import MEGABYTE, Damaged
from alembert.extras import require

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_IN, _OUT = 1 << 16, MEGABYTE
_BOMB_START, _BOMB_RATIO = 64 * MEGABYTE, 500


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Give the decompressed content of a stream block by block, choosing by its first bytes."""
    start = stream.read(_IN)
    if start.startswith(GZIP):
        yield from _inflate(stream, start)
    elif start.startswith(ZSTD):
        yield from _unfold_zstd(stream, start)
    else:
        while start:
            yield start
            start = stream.read(_OUT)


def _inflate(stream: BinaryIO, data: bytes) -> Iterator[bytes]:
    meter = _Meter()
    member = zlib.decompressobj(31)
    while data:
        try:
            block = member.decompress(data, _OUT)
        except zlib.error as error:
            raise Damaged(f"the gzip stream is damaged ({error})") from None
        meter.count(len(data) - len(member.unconsumed_tail) - len(member.unused_data), len(block))
        if block:
            yield block
        data = member.unconsumed_tail
        if member.eof:
            data = member.unused_data.lstrip(b"\0") or stream.read(_IN).lstrip(b"\0")
            if data:
                member = _next_member(data)
        elif not data:
            data = stream.read(_IN)
    if not member.eof:
        raise Damaged("the gzip stream ends too early: the file is truncated")


def _next_member(data: bytes) -> Any:
    if not data.startswith(GZIP[: len(data)]):
        raise Damaged("there is something after the end of the gzip stream that is not gzip")
    return zlib.decompressobj(31)


class _Meter:
    """Counts what goes in and comes out, and stops a bomb."""

    def __init__(self) -> None:
        self.taken = self.given = 0

    def count(self, taken: int, given: int) -> None:
        self.taken += taken
        self.given += given
        if self.given > _BOMB_START and self.given > _BOMB_RATIO * self.taken:
            raise Damaged(f"the compressed file grows more than {_BOMB_RATIO}-fold, like a decompression bomb")


class _Rest:
    """A stream with its first bytes put back, counted as they are taken."""

    def __init__(self, stream: BinaryIO, start: bytes) -> None:
        self.stream, self.start, self.taken = stream, start, 0
        self.closed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        data = self.start[:size] or self.stream.read(size)
        self.start = self.start[size:]
        self.taken += len(data)
        return data

    def close(self) -> None:
        """Take note of the end; the stream is closed by whoever opened it."""
        self.closed = True


def _unfold_zstd(stream: BinaryIO, start: bytes) -> Iterator[bytes]:
    require("Reading a .zst file", "pyarrow")
    import pyarrow as pa

    rest = _Rest(stream, start)
    source = pa.CompressedInputStream(pa.PythonFile(rest, mode="r"), "zstd")
    meter = _Meter()
    while True:
        taken = rest.taken
        try:
            block = source.read(_IN)
        except (OSError, pa.ArrowException) as error:
            raise Damaged(f"the zstd stream is damaged or truncated ({type(error).__name__})") from None
        if not block:
            return
        meter.count(rest.taken - taken, len(block))
        yield block
