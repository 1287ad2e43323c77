"""One input file or stream for the readers: named, decompressed, decoded, read once from front to back.

In: a path or a binary stream. Out: the first bytes for sniffing, blocks of bytes, or numbered lines of text. Lines end
at a line feed alone (a carriage return before it is dropped): the other characters that Python's ``splitlines`` takes
for line ends occur inside records. A line over the limit is skipped without being held, and a line that does not decode
is set aside. `tally` counts corrections, which become remarks.

gzip and zstd are decompressed in blocks. A damaged stream raises `DamagedFile` after its last whole line, so that
half a record is never read; the standard `gzip` module loses up to a buffer of good data before the damage, so gzip
members are inflated here with `zlib`. Several members or frames in one file, and zero padding after the last, are fine.
What grows more than 500-fold after its first 64 MB is taken for a decompression bomb: text of any language stays below
50.
"""

from __future__ import annotations

import codecs
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from alembert.corpus.readers.contract import MEGABYTE, DamagedFile, ReadOptions, Remark, SetAside, SetAsideKind
from alembert.corpus.readers.encoding import ENCODING_HINT, SURROGATE, detect_encoding, resolve_encoding
from alembert.errors import require

GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_INPUT_BYTES, _OUTPUT_BYTES = 1 << 16, MEGABYTE
_BOMB_START, _BOMB_RATIO = 64 * MEGABYTE, 500


def decompress_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of a stream block by block; its first bytes determine the compression."""
    start = stream.read(_INPUT_BYTES)
    if start.startswith(GZIP_MAGIC):
        yield from _inflate(stream, start)
    elif start.startswith(ZSTD_MAGIC):
        yield from _decompress_zstd(stream, start)
    else:
        while start:
            yield start
            start = stream.read(_OUTPUT_BYTES)


def _inflate(stream: BinaryIO, data: bytes) -> Iterator[bytes]:
    guard = _BombGuard()
    member = zlib.decompressobj(31)
    while data:
        try:
            block = member.decompress(data, _OUTPUT_BYTES)
        except zlib.error as error:
            raise DamagedFile(f"the gzip stream is damaged ({error})") from None
        guard.count(len(data) - len(member.unconsumed_tail) - len(member.unused_data), len(block))
        if block:
            yield block
        data = member.unconsumed_tail
        if member.eof:
            data = member.unused_data.lstrip(b"\0") or stream.read(_INPUT_BYTES).lstrip(b"\0")
            if data:
                member = _next_member(data)
        elif not data:
            data = stream.read(_INPUT_BYTES)
    if not member.eof:
        raise DamagedFile("the gzip stream ends too early: the file is truncated")


def _next_member(data: bytes) -> Any:
    if not data.startswith(GZIP_MAGIC[: len(data)]):
        raise DamagedFile("there is something after the end of the gzip stream that is not gzip")
    return zlib.decompressobj(31)


class _BombGuard:
    """Counts compressed and decompressed bytes, and stops at a decompression bomb."""

    def __init__(self) -> None:
        self.read = self.written = 0

    def count(self, read: int, written: int) -> None:
        self.read += read
        self.written += written
        if self.written > _BOMB_START and self.written > _BOMB_RATIO * self.read:
            raise DamagedFile(f"the compressed file grows more than {_BOMB_RATIO}-fold, like a decompression bomb")


class _PrefixedStream:
    """A stream with its first bytes put back, which knows its position."""

    def __init__(self, stream: BinaryIO, start: bytes) -> None:
        self.stream, self.start, self.position = stream, start, 0
        self.closed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> bytes:
        data = self.start[:size] or self.stream.read(size)
        self.start = self.start[size:]
        self.position += len(data)
        return data

    def close(self) -> None:
        """Leave the stream open: its owner closes it."""
        self.closed = True


def _decompress_zstd(stream: BinaryIO, start: bytes) -> Iterator[bytes]:
    require("Reading a .zst file", "pyarrow")
    import pyarrow as pa

    rest = _PrefixedStream(stream, start)
    source = pa.CompressedInputStream(pa.PythonFile(rest, mode="r"), "zstd")
    guard = _BombGuard()
    while True:
        before = rest.position
        try:
            block = source.read(_INPUT_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise DamagedFile(f"the zstd stream is damaged or truncated ({type(error).__name__})") from None
        if not block:
            return
        guard.count(rest.position - before, len(block))
        yield block


COMPRESSED_SUFFIXES = (".gz", ".zst")
_MEND_HINT = f"mend it, or {ENCODING_HINT}"
_PARTIAL_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]?\Z")


class SourceLine(NamedTuple):
    """A line of text without its line end, counted from 1."""

    number: int
    text: str


class SourceFile:
    """A file to read; `position` is that of the current record, for reports.

    `ids` replaces the names of files as ids of documents.
    """

    def __init__(self, origin: Path | BinaryIO, options: ReadOptions, ids: Mapping[str, str] | None = None) -> None:
        self.path = origin if isinstance(origin, Path) else None
        self.name = readable_name(str(origin if isinstance(origin, Path) else getattr(origin, "name", "<stream>")))
        self.options = options
        self.ids = ids or {}
        self.tally: Counter[str] = Counter()
        self.position = "file"
        self._origin = origin
        self._stream: BinaryIO | None = None
        self._buffered: list[bytes] = []
        self._rest: Iterator[bytes] | None = None
        self._damage: DamagedFile | None = None
        self._encoding: str | None = None

    @property
    def stem(self) -> str:
        """The prefix of ids: the file name without suffixes (`notes` for `notes.txt.gz`), or its entry in `ids`."""
        stem = strip_compression_suffix(Path(self.name).name).rsplit(".", 1)[0]
        return self.ids.get(stem, stem)

    def set_aside(
        self, reason: str, name: str | None = None, position: str | None = None, kind: SetAsideKind = "record"
    ) -> SetAside:
        return SetAside(self.name, position or self.position, name, reason, kind)

    def remarks(self) -> Iterator[Remark]:
        for reason, count in sorted(self.tally.items()):
            if count:
                yield Remark(self.name, reason, count)

    def close(self) -> None:
        """Close the file if it was opened here."""
        if self._stream is not None and self._stream is not self._origin:
            self._stream.close()

    def head(self, size: int = MEGABYTE) -> bytes:
        """Return the first bytes without consuming them; fewer than `size` only if the file is shorter."""
        length = sum(map(len, self._buffered))
        while length < size and self._damage is None and (block := self._next_block()):
            self._buffered.append(block)
            length += len(block)
        return b"".join(self._buffered)[:size]

    def blocks(self) -> Iterator[bytes]:
        """Yield the decompressed bytes, once."""
        while self._buffered:
            yield self._buffered.pop(0)
        while block := self._next_block():
            yield block

    def _next_block(self) -> bytes:
        if self._damage is not None:
            raise self._damage
        try:
            if self._rest is None:
                self._rest = decompress_blocks(self._open())
            return next(self._rest, b"")
        except DamagedFile as damage:
            self._damage = damage
        except OSError as error:
            self._damage = DamagedFile(f"the file cannot be read: {error.strerror or type(error).__name__}")
        if self._buffered:
            return b""
        raise self._damage

    def _open(self) -> BinaryIO:
        self._stream = self._origin.open("rb") if isinstance(self._origin, Path) else self._origin
        return self._stream

    def encoding(self) -> str:
        """Return the encoding of the options, or the detected one, which is remarked."""
        if self._encoding is None:
            head = self.head()
            requested = self.options.encoding
            self._encoding = (
                resolve_encoding(requested) if requested else detect_encoding(head, whole=len(head) < MEGABYTE)
            )
            if not requested and self._encoding != "utf-8":
                self.tally[f"read as {self._encoding}, which was recognised"] += 1
        return self._encoding

    def lines(self) -> Iterator[SourceLine | SetAside]:
        """Yield the lines of the file; unusable ones are set aside."""
        encoding = self.encoding()
        for number, line in _number_lines(self.narrow_blocks(encoding), self.options.max_record):
            self.position = f"line {number}"
            if line is None:
                yield self.set_aside(f"the line is longer than max_record ({self.options.max_record} bytes)")
                continue
            try:
                yield SourceLine(number, line.decode(_narrow(encoding)))
            except UnicodeDecodeError as error:
                yield self.set_aside(f"byte {error.start + 1} of the line is not {encoding}; see --set read.encoding")

    def text(self) -> str:
        """Return the whole file, or raise `DamagedFile` if it is too long or does not decode."""
        encoding = self.encoding()
        content = bytearray()
        for block in self.narrow_blocks(encoding):
            content += block
            if len(content) > self.options.max_record:
                raise DamagedFile(f"the text is longer than max_record ({self.options.max_record} bytes)")
        try:
            return content.decode(_narrow(encoding))
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            column = error.start - content.rfind(b"\n", 0, error.start)
            raise DamagedFile(f"byte {column} of line {line} is not {encoding}; {_MEND_HINT}") from None

    def characters(self) -> Iterator[str]:
        """Yield the text in pieces of any length, for formats without lines."""
        encoding = self.encoding()
        decoder = codecs.getincrementaldecoder(_narrow(encoding))()
        try:
            for block in self.narrow_blocks(encoding):
                yield decoder.decode(block)
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            raise DamagedFile(f"some bytes are not {encoding}; {_MEND_HINT}") from None

    def narrow_blocks(self, encoding: str) -> Iterator[bytes]:
        """Yield blocks in which a line feed byte is a line feed, without a byte order mark."""
        if not _is_multi_byte_unit(encoding):
            blocks = _strip_byte_order_mark(self.blocks())
            yield from self._without_surrogates(blocks) if encoding == "utf-8" else blocks
            return
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        for block in itertools.chain(self.blocks(), [b""]):
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError:
                raise DamagedFile(
                    f"the file has no byte order mark, so {encoding} is not enough to read it. "
                    f"Name {encoding}-le or {encoding}-be with --set read.encoding, or leave the encoding out"
                ) from None
            self.tally["bytes that are not text were replaced by U+FFFD"] += text.count("�")
            yield text.encode()

    def _without_surrogates(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Replace surrogates that were written as UTF-8; U+FFFD is as long, so offsets stay the same."""
        held = b""
        for block in blocks:
            whole, count = SURROGATE.subn("�".encode(), held + block)
            self.tally["lone surrogates were replaced by U+FFFD"] += count
            cut = _PARTIAL_SURROGATE.search(whole)
            held = cut[0] if cut else b""
            yield whole.removesuffix(held)
        yield held


def readable_name(name: str) -> str:
    r"""Make a file name valid Unicode for ids and reports; other bytes are escaped as in manifests.

    >>> print(readable_name("caf\udce9.txt"))
    caf\udce9.txt
    """
    return name.encode("utf-8", "backslashreplace").decode()


def strip_compression_suffix(name: str) -> str:
    """Remove the suffix of a compressed file: `a.xml.gz` becomes `a.xml`."""
    ending = next((ending for ending in COMPRESSED_SUFFIXES if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]


def split_paragraphs(source: SourceFile) -> Iterator[list[SourceLine] | SetAside]:
    """Yield the lines between blank lines; a paragraph with an unusable line is set aside as a whole."""
    lines: list[SourceLine] = []
    bad: SetAside | None = None
    size = 0
    for line in source.lines():
        if isinstance(line, SetAside):
            bad = bad or line
        elif line.text and not line.text.isspace():
            size += len(line.text)
            if size > source.options.max_record:
                bad = bad or source.set_aside(f"the record is longer than max_record ({source.options.max_record})")
            elif bad is None:
                lines.append(line)
        elif lines or bad:
            yield bad or lines
            lines, bad, size = [], None, 0
    if lines or bad:
        yield bad or lines


def _number_lines(blocks: Iterator[bytes], limit: int) -> Iterator[tuple[int, bytes | None]]:
    number, rest, skipping = 0, b"", False
    for block in blocks:
        first, *lines = block.split(b"\n")
        rest = b"" if skipping else rest + first
        if len(rest) > limit:
            skipping, rest = True, b""
        for line in lines:
            number += 1
            yield number, None if skipping or len(rest) > limit else rest.removesuffix(b"\r")
            rest, skipping = line, False
    if rest or skipping:
        yield number + 1, None if skipping or len(rest) > limit else rest.removesuffix(b"\r")


def _strip_byte_order_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    first = next(blocks, b"")
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from blocks


def _is_multi_byte_unit(encoding: str) -> bool:
    return "\n".encode(encoding) != b"\n"


def _narrow(encoding: str) -> str:
    return "utf-8" if _is_multi_byte_unit(encoding) else encoding
