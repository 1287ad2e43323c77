"""Readers: files of a dozen formats in, documents out; what cannot be used is set aside with a reason.

`read` is the only entry point: it detects the format from the file's name and first bytes unless it is given, streams
the items, and reports an empty, damaged or unreadable file as a set-aside item after everything that could be read.

The content comes first, because names mislead: CoNLL files are called `.tsv` and `.txt`, JSON lines `.json` and `.txt`.
`FORMATS` has how texts begin in each format and which elements of XML are its own; columns of tags, binary files and
folders are recognised here. The name decides the rest.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from alembert.corpus.readers.brat import NOT_BRAT_REASON, has_annotations, has_partner
from alembert.corpus.readers.conll import detect_layout_from_head
from alembert.corpus.readers.contract import DamagedFile, DeletedRecord, Item, ReadOptions, Remark, SetAside
from alembert.corpus.readers.parquet import PARQUET_MAGIC
from alembert.corpus.readers.source import SourceFile, strip_compression_suffix
from alembert.errors import BadFile, BadSetting

__all__ = ["FORMATS", "DeletedRecord", "Item", "ReadOptions", "Remark", "SetAside", "detect_file_format", "read"]


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """Where the reader of a format is, and how its files are recognised."""

    module: str
    function: str = "read"
    start: str = ""
    """How a text in this format begins, as a regular expression."""
    xml_root: str = ""
    """Elements of XML that are in no other format; the earliest one of a file decides."""
    suffixes: tuple[str, ...] = ()
    """Endings of file names that decide where the content does not."""


_JSON: Final = r"[\[{]\s*[\[{\"\]}]"
FORMATS: Final = {
    "bioc-json": FormatSpec(
        "bioc", "read_json", rf'(?={_JSON})(?s:.*?)(?<!\\)"(?:documents|PubTator3|passages)"\s*:\s*\['
    ),
    "bioc-xml": FormatSpec("bioc", "read_xml", xml_root=r"<collection[\s>]|<!DOCTYPE collection|<document[\s>]"),
    "brat": FormatSpec("brat"),
    "conll": FormatSpec("conll"),
    "jats": FormatSpec("jats", xml_root=r"<(article|pmc-articleset)[\s>]"),
    "jsonl": FormatSpec("jsonlines", start=_JSON, suffixes=(".jsonl", ".json")),
    "medline": FormatSpec("medline", "read_xml", xml_root=r"<(PubmedArticle|PubmedBookArticle|DeleteCitation)"),
    "nbib": FormatSpec("medline", "read_nbib", r"PMID- *\d+\s*\n", suffixes=(".nbib",)),
    "parquet": FormatSpec("parquet"),
    "pubtator": FormatSpec("pubtator", start=r"[^|\t\n]+\|t\|"),
    "table": FormatSpec("table", suffixes=(".csv", ".tsv", ".tab")),
    "text": FormatSpec("plain"),
}
"""The formats that are read; of several that begin alike, the first is taken."""


FormatReader = Callable[[SourceFile, ReadOptions], Iterator[Item]]


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
    spec = FORMATS[name]
    return cast(FormatReader, getattr(importlib.import_module(f"alembert.corpus.readers.{spec.module}"), spec.function))


def _items(source: SourceFile, options: ReadOptions, reader: FormatReader | None) -> Iterator[Item]:
    try:
        if (source.path is None or not source.path.is_dir()) and not source.head(1):
            yield source.set_aside("the file is empty", kind="file")
        else:
            reader = reader or _reader(sniff_format(source))
            yield from reader(source, options)
    except DamagedFile as damage:
        after = "" if source.position == "file" else "after "
        yield source.set_aside(str(damage), position=after + source.position, kind="file")
    finally:
        source.close()
    yield from source.remarks()


_HEAD_BYTES = 1 << 16
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf)?\s*<")


def sniff_format(source: SourceFile) -> str:
    """Detect the format of a source, or raise `DamagedFile`."""
    path = source.path
    if path is not None and path.is_dir():
        return _detect_folder(path)
    if path is not None and _is_brat(path):
        return "brat"
    head = source.head(_HEAD_BYTES)
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    if _MARKUP.match(head):
        # XML declares its own encoding; the tags that identify the format are ASCII in all of them.
        return _detect_by_content(head.decode("latin-1").lstrip("ï»¿ \t\r\n")) or _detect_by_name(source.name)
    text = head.decode(source.encoding(), errors="replace").lstrip("\ufeff \t\r\n")
    # Columns of labels without B and I look like any table, so the option decides.
    return _detect_by_content(text) or ("conll" if source.options.token_labels else _detect_by_name(source.name))


def _detect_folder(path: Path) -> str:
    try:
        if has_annotations(path):
            return "brat"
    except OSError as error:
        raise DamagedFile(f"the folder cannot be read: {error.strerror}") from None
    raise DamagedFile(NOT_BRAT_REASON)


def _is_brat(path: Path) -> bool:
    name = strip_compression_suffix(path.name)
    return name.endswith(".ann") or (name.endswith(".txt") and has_partner(path))


def _detect_by_content(text: str) -> str | None:
    if text.startswith("<"):
        return _detect_xml(text)
    for name, spec in FORMATS.items():
        if spec.start and re.match(spec.start, text):
            return name
    return "conll" if detect_layout_from_head(text)[0] else None


def _detect_xml(text: str) -> str | None:
    patterns = {name: spec.xml_root for name, spec in FORMATS.items() if spec.xml_root}
    roots = {name: match.start() for name, pattern in patterns.items() if (match := re.search(pattern, text))}
    if not roots and text.startswith("<?xml"):
        raise DamagedFile("this XML is in no format that alembert reads; name the format if it is one of them")
    return min(roots, key=roots.__getitem__, default=None)


def _detect_by_name(name: str) -> str:
    ending = Path(strip_compression_suffix(name)).suffix.lower()
    return next((name for name, spec in FORMATS.items() if ending in spec.suffixes), "text")
