"""A record a document with everything it has: JSON lines, the native annotation format, and Parquet.

JSON lines: one object a line. Parquet: a row per document; `meta` is JSON text, because its keys differ per document.

Rows are written in groups of 1,000 documents, so memory does not grow with their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from alembert.corpus.document import Document, to_record
from alembert.corpus.writers import ConversionLosses, OutputTarget, open_output
from alembert.errors import require


def write_jsonl(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as JSON lines; nothing is lost."""
    with open_output(target) as file:
        for document in documents:
            line = json.dumps(to_record(document), ensure_ascii=False, separators=(",", ":"))
            file.write(line.encode() + b"\n")
    return ConversionLosses()


_GROUP = 1000


def write_parquet(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as a Parquet file; nothing is lost."""
    require("Writing Parquet", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    with (
        open_output(target) as file,
        pq.ParquetWriter(pa.PythonFile(file, mode="w"), schema, compression="zstd") as writer,
    ):
        for rows in _groups(documents):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return ConversionLosses()


def _groups(documents: Iterable[Document]) -> Iterator[list[dict[str, Any]]]:
    rows = (_row(document) for document in documents)
    while group := list(islice(rows, _GROUP)):
        yield group


def _row(document: Document) -> dict[str, Any]:
    record = to_record(document)
    record["meta"] = json.dumps(record.get("meta", {}), ensure_ascii=False)
    return record


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    pairs = pa.list_(pa.list_(text))
    section = pa.struct({"start": number, "end": number, "kind": text, "heading": text})
    spans = pa.list_(pa.list_(number))
    entity = pa.struct({"id": text, "label": text, "spans": spans, "concepts": pa.list_(text), "attributes": pairs})
    relation = pa.struct({"id": text, "label": text, "arguments": pairs, "attributes": pairs})
    columns = {"id": text, "text": pa.large_string(), "language": text, "sections": pa.list_(section)}
    columns |= {
        "entities": pa.list_(entity),
        "relations": pa.list_(relation),
        "unlinked_relations": pa.list_(relation),
        "labels": pa.list_(text),
        "meta": text,
    }
    return pa.schema(columns)
