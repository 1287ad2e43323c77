"""Writers: documents in, a file (for brat a folder) in one of eight formats out, with a count of what it cannot hold."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from alembert.corpus.document import Document
from alembert.corpus.writers.contract import ConversionLosses, OutputTarget
from alembert.errors import BadSetting

FORMATS = {
    "bioc-json": "bioc_json",
    "bioc-xml": "bioc_xml",
    "brat": "brat",
    "conll": "conll",
    "jsonl": "jsonlines",
    "label-studio": "label_studio",
    "parquet": "parquet",
    "pubtator": "pubtator",
}
__all__ = ["FORMATS", "ConversionLosses", "write"]


class FormatWriter(Protocol):
    """A module that writes one format."""

    def write(self, documents: Iterable[Document], target: OutputTarget) -> ConversionLosses: ...


def write(
    documents: Iterable[Document],
    target: str | Path | BinaryIO,
    format: str,  # noqa: A002
) -> ConversionLosses:
    """Write documents in a format; return what it cannot hold, counted by reason."""
    if format not in FORMATS:
        raise BadSetting(f"`format` is {format!r}, which no writer has. Use one of {', '.join(FORMATS)}.")
    module = importlib.import_module(f"alembert.corpus.writers.{FORMATS[format]}")
    return cast(FormatWriter, module).write(documents, Path(target) if isinstance(target, str) else target)
