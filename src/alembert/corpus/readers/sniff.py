"""Detect the format of a file from its first bytes and its name.

The content comes first, because names mislead: CoNLL files are called `.tsv` and `.txt`, JSON lines `.json` and `.txt`.
Each reader knows the signature of its format; the earliest in the text decides, and the name decides the rest. Only
binary files and folders are recognised here.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembert.corpus.readers import FORMATS, load_reader
from alembert.corpus.readers.brat import NOT_BRAT_REASON, has_annotations, has_partner
from alembert.corpus.readers.contract import DamagedFile
from alembert.corpus.readers.parquet import PARQUET_MAGIC
from alembert.corpus.readers.source import SourceFile, strip_compression_suffix

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
    starts: dict[str, int] = {}
    for name in FORMATS:
        find_signature = getattr(load_reader(name), "find_signature", None)
        start = find_signature(text) if find_signature else None
        if start == 0:
            return name
        if start is not None:
            starts[name] = start
    if not starts and text.startswith("<?xml"):
        raise DamagedFile("this XML is in no format that alembert reads; name the format if it is one of them")
    return min(starts, key=starts.__getitem__, default=None)


def _detect_by_name(name: str) -> str:
    ending = Path(strip_compression_suffix(name)).suffix.lower()
    return next((name for name in FORMATS if ending in getattr(load_reader(name), "SUFFIXES", ())), "text")
