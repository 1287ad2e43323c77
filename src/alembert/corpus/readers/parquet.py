"""Parquet: one row is one document, read in small batches of a row group at a time.

Files of our own writer hold complete documents; in others the columns are used like the fields of JSON lines. Parquet
needs random access, so a stream or a compressed file is first unpacked into an unnamed temporary file. A row with a
value that is not UTF-8 is set aside.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from alembert.corpus.readers.contract import DamagedFile, Item, ReadOptions
from alembert.corpus.readers.records import build_record_items
from alembert.corpus.readers.source import SourceFile
from alembert.errors import require

PARQUET_MAGIC = b"PAR1"
_ROWS = 256


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the rows of a Parquet file as documents."""
    with tempfile.TemporaryFile() as unpacked:
        number = 0
        for batch in iter_batches(open_seekable(source, unpacked)):
            for index in range(batch.num_rows):
                number += 1
                source.position = f"record {number}"
                yield from _row(batch, index, number, source, options)


def open_seekable(source: SourceFile, unpacked: IO[bytes]) -> Any:
    """Return the path of the file, or a copy of the stream in `unpacked`."""
    if source.path is not None and source.path.suffix not in (".gz", ".zst"):
        return str(source.path)
    for block in source.blocks():
        unpacked.write(block)
    unpacked.seek(0)
    return unpacked


def iter_batches(file: Any) -> Iterator[Any]:
    require("Reading Parquet", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(batch_size=_ROWS)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DamagedFile(f"the Parquet file cannot be read ({type(error).__name__}): it is damaged or cut") from None


def _row(batch: Any, index: int, number: int, source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    try:
        record = {name: batch.column(name)[index].as_py() for name in batch.schema.names}
        if isinstance(record.get("meta"), str):
            record["meta"] = json.loads(record["meta"])
    except (UnicodeDecodeError, json.JSONDecodeError):
        yield source.set_aside("a value of the row is not UTF-8, or its meta is not JSON")
        return
    yield from build_record_items(record, source, options, number)
