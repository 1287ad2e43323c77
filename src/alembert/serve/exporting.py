"""Corrected documents as a file in one of the formats of the corpus, for the page and for programs.

In: records of the native annotation format (docs/formats.md). Out: a file's name, type and bytes, and what the format could
not hold. brat, which is a folder, becomes a zip file. What a client sent is never quoted in an error.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembert.corpus.document import Document, from_record
from alembert.corpus.writers import write
from alembert.errors import BadInput

FILE_NAMES: Final = {
    "jsonl": ("labels.jsonl", "application/x-ndjson"),
    "brat": ("labels-brat.zip", "application/zip"),
    "pubtator": ("labels.pubtator.txt", "text/plain"),
    "conll": ("labels.conll", "text/plain"),
    "label-studio": ("labels-label-studio.json", "application/json"),
    "bioc-json": ("labels.bioc.json", "application/json"),
    "bioc-xml": ("labels.bioc.xml", "application/xml"),
}
"""Formats that a browser can save: the name and the media type of the file."""
_ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SavedFile:
    """A file for a browser to save."""

    name: str
    media_type: str
    content: bytes
    losses: Mapping[str, int]
    """What the format could not hold, counted by reason."""


def export_records(records: Sequence[Mapping[str, Any]], format_name: str) -> SavedFile:
    """Write records in a format."""
    if format_name not in FILE_NAMES:
        raise BadInput(f"`format` is not one of {', '.join(FILE_NAMES)}.")
    documents = list(_read_documents(records))
    name, media_type = FILE_NAMES[format_name]
    content, losses = _write_zip(documents) if format_name == "brat" else _write_stream(documents, format_name)
    return SavedFile(name, media_type, content, losses)


def _read_documents(records: Sequence[Mapping[str, Any]]) -> Iterator[Document]:
    for number, record in enumerate(records, 1):
        try:
            document = from_record(record)
            document.text.encode()
        except (BadInput, UnicodeError):
            raise BadInput(
                f"Document {number} cannot be read. It needs `id` and `text` in valid Unicode, and entities with `id`, "
                "`label` and `spans` inside the text, as docs/formats.md shows."
            ) from None
        yield document


def _write_stream(documents: Sequence[Document], format_name: str) -> tuple[bytes, Mapping[str, int]]:
    stream = io.BytesIO()
    losses = write(documents, stream, format_name)
    return stream.getvalue(), losses


def _write_zip(documents: Sequence[Document]) -> tuple[bytes, Mapping[str, int]]:
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        losses = write(documents, Path(folder) / "labels", "brat")
        for path in sorted(Path(folder, "labels").iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name, _ZIP_DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue(), losses
