"""Detect the format of a file from its first bytes and its name.

The content comes first, because names mislead: CoNLL files are called `.tsv` and `.txt`, JSON lines `.json` and `.txt`.
`FORMATS` has how texts begin in each format and which elements of XML are its own; columns of tags, binary files and
folders are recognised here. The name decides the rest.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembert.corpus.readers import FORMATS
from alembert.corpus.readers.brat import NOT_BRAT_REASON, has_annotations, has_partner
from alembert.corpus.readers.conll import detect_layout_from_head
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
