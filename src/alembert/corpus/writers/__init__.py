"""Writers: documents in, a file (for brat a folder) in one of eight formats out, with a count of what it cannot hold.

The output is a path, compressed according to its suffix, or a binary stream. Compressed files hold no time stamp, so
the same documents give the same bytes. Writers write in place: hiding a half-written file is up to the caller.
"""

from __future__ import annotations

import gzip
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from alembert.corpus.document import Document, Entity, Relation, Span
from alembert.corpus.readers.mentions import split_concepts
from alembert.errors import BadSetting, require

OutputTarget = Path | BinaryIO
ConversionLosses = Counter[str]
"""What the format could not hold, counted by reason."""


@contextmanager
def open_output(target: OutputTarget) -> Iterator[BinaryIO]:
    """Open a target for writing bytes; a stream stays open afterwards."""
    if not isinstance(target, Path):
        yield target
    elif target.suffix == ".zst":
        require("Writing a .zst file", "pyarrow")
        import pyarrow as pa

        with pa.CompressedOutputStream(str(target), "zstd") as packed:
            yield cast(BinaryIO, packed)
    elif target.suffix == ".gz":
        with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    else:
        with target.open("wb") as file:
            yield file


DISCONTINUOUS = "discontinuous mentions were written from their first to their last character"
RENAMED = "names were changed because the format cannot hold one of their characters"


def get_covering_span(entity: Entity, losses: ConversionLosses) -> Span:
    """Return the span from the first to the last character of a mention."""
    losses[DISCONTINUOUS] += len(entity.spans) > 1
    return entity.start, entity.end


def replace_forbidden(name: str, forbidden: str, losses: ConversionLosses) -> str:
    """Replace each forbidden character of an id or a label by "_"."""
    changed = "".join("_" if character in forbidden or character == "\n" else character for character in name)
    losses[RENAMED] += changed != name
    return changed


def list_all_relations(document: Document) -> tuple[Relation, ...]:
    """Return all relations of a document, for formats that do not distinguish unlinked ones."""
    return (*document.relations, *document.unlinked_relations)


def join_concepts(entity: Entity, losses: ConversionLosses) -> str:
    """Join the concepts of a mention; those that a reader would split are counted."""
    split = sum(split_concepts(concept) != (concept,) for concept in entity.concepts)
    losses["concept ids with a sign that joins several will be read as several"] += split
    return "|".join(entity.concepts)


def count_unsupported_fields(document: Document, losses: ConversionLosses, *supported: str) -> None:
    """Count the fields of a document that a format does not support."""
    for name in ("sections", "relations", "unlinked_relations", "labels", "meta", "language"):
        if name not in supported and (value := getattr(document, name)):
            losses[f"no place in the format for {name.replace('_', ' ')}"] += (
                1 if isinstance(value, str) else len(value)
            )


def count_unsupported_attributes(owner: Entity | Relation, losses: ConversionLosses, *supported: str) -> None:
    """Count the attributes that a format does not support."""
    losses["no place in the format for attributes"] += sum(name not in supported for name, _ in owner.attributes)


FORMATS = {
    "bioc-json": ("bioc", "write_json"),
    "bioc-xml": ("bioc", "write_xml"),
    "brat": ("brat", "write"),
    "conll": ("conll", "write"),
    "jsonl": ("records", "write_jsonl"),
    "label-studio": ("label_studio", "write"),
    "parquet": ("records", "write_parquet"),
    "pubtator": ("pubtator", "write"),
}
"""Format -> module and function."""
__all__ = ["FORMATS", "ConversionLosses", "write"]


FormatWriter = Callable[[Iterable[Document], OutputTarget], ConversionLosses]


def write(
    documents: Iterable[Document],
    target: str | Path | BinaryIO,
    format: str,  # noqa: A002
) -> ConversionLosses:
    """Write documents in a format; return what it cannot hold, counted by reason."""
    if format not in FORMATS:
        raise BadSetting(f"`format` is {format!r}, which no writer has. Use one of {', '.join(FORMATS)}.")
    module, function = FORMATS[format]
    writer: FormatWriter = getattr(importlib.import_module(f"alembert.corpus.writers.{module}"), function)
    return writer(documents, Path(target) if isinstance(target, str) else target)
