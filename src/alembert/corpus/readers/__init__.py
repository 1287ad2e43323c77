"""Readers: files of a dozen formats in, documents out; what cannot be used is set aside with a reason.

`read` is the only entry point: it detects the format from the file's name and first bytes unless it is given, streams
the items, and reports an empty, damaged or unreadable file as a set-aside item after everything that could be read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from alembert.corpus.readers.contract import DamagedFile, DeletedRecord, Item, ReadOptions, Remark, SetAside
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadFile, BadSetting

FORMATS = {
    "bioc-json": "bioc_json",
    "bioc-xml": "bioc_xml",
    "brat": "brat",
    "conll": "conll",
    "jats": "jats",
    "jsonl": "jsonlines",
    "medline": "medline",
    "parquet": "parquet",
    "pubtator": "pubtator",
    "table": "table",
    "text": "plain",
}
__all__ = ["FORMATS", "DeletedRecord", "Item", "ReadOptions", "Remark", "SetAside", "detect_file_format", "read"]


class FormatReader(Protocol):
    """A module that reads one format."""

    def read(self, source: SourceFile, options: ReadOptions) -> Iterator[Item]: ...


def read(
    origin: str | Path | BinaryIO,
    options: ReadOptions | None = None,
    format: str | None = None,  # noqa: A002
    ids: Mapping[str, str] | None = None,
) -> Iterator[Item]:
    """Read the documents of a file, a folder (brat) or a binary stream, with set-aside and deleted records and remarks.

    `ids` replaces the names of files as ids of documents. Raises only for settings that cannot work (an unknown format
    or encoding), before anything is read.
    """
    options = options or ReadOptions()
    if options.encoding:
        from alembert.corpus.readers.encoding import resolve_encoding

        resolve_encoding(options.encoding)
    reader = _reader(format) if format else None
    source = SourceFile(Path(origin) if isinstance(origin, str) else origin, options, ids)
    return _items(source, options, reader)


def detect_file_format(origin: str | Path | BinaryIO) -> str:
    """Detect the format of a file, or raise `BadFile`."""
    from alembert.corpus.readers.sniff import sniff_format

    source = SourceFile(Path(origin) if isinstance(origin, str) else origin, ReadOptions())
    try:
        return sniff_format(source)
    except DamagedFile as damage:
        raise BadFile(f"The format of {source.name} cannot be detected: {damage}.") from None
    finally:
        source.close()


def _reader(name: str) -> FormatReader:
    if name not in FORMATS:
        raise BadSetting(f"`format` is {name!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
    return cast(FormatReader, importlib.import_module(f"alembert.corpus.readers.{FORMATS[name]}"))


def _items(source: SourceFile, options: ReadOptions, reader: FormatReader | None) -> Iterator[Item]:
    from alembert.corpus.readers.sniff import sniff_format

    try:
        if (source.path is None or not source.path.is_dir()) and not source.head(1):
            yield source.set_aside("the file is empty", kind="file")
        else:
            reader = reader or _reader(sniff_format(source))
            yield from reader.read(source, options)
    except DamagedFile as damage:
        after = "" if source.position == "file" else "after "
        yield source.set_aside(str(damage), position=after + source.position, kind="file")
    finally:
        source.close()
    yield from source.remarks()
