"""Readers: files of a dozen formats in, documents out; what cannot be used is set aside with a reason.

`read` is the only entry point: it detects the format from the file's name and first bytes unless it is given, streams
the items, and reports an empty, damaged or unreadable file as a set-aside item after everything that could be read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from alembert.corpus.readers.contract import DamagedFile, DeletedRecord, Item, ReadOptions, Remark, SetAside
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadFile, BadSetting

__all__ = ["FORMATS", "DeletedRecord", "Item", "ReadOptions", "Remark", "SetAside", "detect_file_format", "read"]


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """Where the reader of a format is, and how its files are recognised."""

    module: str
    start: str = ""
    """How a text in this format begins, as a regular expression."""
    xml_root: str = ""
    """Elements of XML that are in no other format; the earliest one of a file decides."""
    suffixes: tuple[str, ...] = ()
    """Endings of file names that decide where the content does not."""


_JSON: Final = r"[\[{]\s*[\[{\"\]}]"
FORMATS: Final = {
    "bioc-json": FormatSpec("bioc_json", rf'(?={_JSON})(?s:.*?)(?<!\\)"(?:documents|PubTator3|passages)"\s*:\s*\['),
    "bioc-xml": FormatSpec("bioc_xml", xml_root=r"<collection[\s>]|<!DOCTYPE collection|<document[\s>]"),
    "brat": FormatSpec("brat"),
    "conll": FormatSpec("conll"),
    "jats": FormatSpec("jats", xml_root=r"<(article|pmc-articleset)[\s>]"),
    "jsonl": FormatSpec("jsonlines", _JSON, suffixes=(".jsonl", ".json")),
    "medline": FormatSpec("medline", xml_root=r"<(PubmedArticle|PubmedBookArticle|DeleteCitation)"),
    "nbib": FormatSpec("nbib", r"PMID- *\d+\s*\n", suffixes=(".nbib",)),
    "parquet": FormatSpec("parquet"),
    "pubtator": FormatSpec("pubtator", r"[^|\t\n]+\|t\|"),
    "table": FormatSpec("table", suffixes=(".csv", ".tsv", ".tab")),
    "text": FormatSpec("plain"),
}
"""The formats that are read; of several that begin alike, the first is taken."""


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
    return cast(FormatReader, importlib.import_module(f"alembert.corpus.readers.{FORMATS[name].module}"))


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
