"""Detect the format of a file from its first bytes and its name.

The content comes first (XML roots, JSON, PubTator titles, Parquet's magic, columns of tags), because names mislead:
CoNLL files are called `.tsv` and `.txt`, JSON lines `.json` and `.txt`. The name decides the rest.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembert.corpus.readers.bioc_json import DOCUMENTS_PATTERN
from alembert.corpus.readers.brat import NOT_BRAT_REASON, has_annotations, has_partner
from alembert.corpus.readers.conll import detect_layout_from_head
from alembert.corpus.readers.contract import DamagedFile
from alembert.corpus.readers.parquet import PARQUET_MAGIC
from alembert.corpus.readers.pubtator import TITLE_PATTERN
from alembert.corpus.readers.source import SourceFile, strip_compression_suffix

_HEAD_BYTES = 1 << 16
_XML_ROOTS = (
    ("medline", re.compile(r"<(PubmedArticle|PubmedBookArticle|DeleteCitation)")),
    ("bioc-xml", re.compile(r"<collection[\s>]|<!DOCTYPE collection|<document[\s>]")),
    ("jats", re.compile(r"<(article|pmc-articleset)[\s>]")),
)
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf)?\s*<")
_BIOC_DOCUMENT = re.compile(r'(?<!\\)"passages"\s*:\s*\[')


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
    if text.startswith(("{", "[")) and re.match(r"[\[{]\s*[\[{\"\]}]", text):
        is_bioc = DOCUMENTS_PATTERN.search(text) or _BIOC_DOCUMENT.search(text)
        return "bioc-json" if is_bioc else "jsonl"
    if TITLE_PATTERN.match(text.split("\n", 1)[0]):
        return "pubtator"
    return "conll" if detect_layout_from_head(text)[0] else None


def _detect_xml(text: str) -> str | None:
    roots = [(match.start(), name) for name, root in _XML_ROOTS if (match := root.search(text))]
    if not roots and text.startswith("<?xml"):
        raise DamagedFile("this XML is not MEDLINE, BioC or JATS; name the format if it is one of them")
    return min(roots)[1] if roots else None


def _detect_by_name(name: str) -> str:
    ending = Path(strip_compression_suffix(name)).suffix.lower()
    endings = {".csv": "table", ".tsv": "table", ".tab": "table", ".jsonl": "jsonl", ".json": "jsonl"}
    return endings.get(ending, "text")
