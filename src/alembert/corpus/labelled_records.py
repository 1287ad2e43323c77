"""Records of labelled files: tables, JSON lines, Parquet, and the sections of PubMed abstracts, as named fields.

In: a source. Out: each record with the place it stands at, and what could not be read. The low-level readers are those
of documents; what differs is that columns without a header are named by number, and that nothing is picked yet. A file
is held as a whole, since which column is which is told from all of it.

The format of sections (Dernoncourt and Lee 2017) is sequential: ``###PMID`` opens an abstract, each line after it is
``LABEL<TAB>sentence``, and a blank line ends it.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from alembert.corpus.labelled_names import KNOWN, SECTION_ID
from alembert.corpus.readers.contract import Damaged, ReadOptions, SetAside
from alembert.corpus.readers.jsonlines import json_records
from alembert.corpus.readers.parquet import MAGIC, batches, seekable
from alembert.corpus.readers.source import Line, Source, paragraphs
from alembert.corpus.readers.table import Rows

_SECTIONS: Final = re.compile(r"###[^\t\n]*\n[^\t\n]+\t")
_JSON: Final = re.compile(r"[\[{]\s*[\[{\"\]}]")
_NAME_SIZE: Final = 64
_MOST: Final = 0.9
_DECIMAL_COMMA: Final = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+")
_WHOLE: Final = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)")
_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")


class Record(NamedTuple):
    """Named fields, and where they stand in the file ("line 3", "record 7")."""

    fields: Mapping[str, Any]
    position: str


Found = Iterator[Record | SetAside]


def records_of(source: Source, options: ReadOptions) -> Found:
    """Read a file in whichever of the formats it is; raise `Damaged` for one that holds no records."""
    head = source.head(1 << 16)
    if not head:
        raise Damaged("the file is empty")
    if head.startswith(MAGIC):
        return _of_parquet(source)
    text = head.decode(source.encoding(), errors="replace").lstrip("\ufeff \t\r\n")
    return _reader(text)(source, options)


def _reader(text: str) -> Callable[[Source, ReadOptions], Found]:
    if text.startswith(("<?xml", "<!DOCTYPE")):
        raise Damaged("this is XML, which holds no labelled rows; give a table, JSON lines or Parquet")
    if _JSON.match(text):
        return _of_json
    return _of_sections if _SECTIONS.match(text.replace("\r\n", "\n")) else _of_table


def as_number(value: str) -> float | None:
    """Give the finite number that a text spells, if it does.

    >>> as_number("3.8"), as_number("nan"), as_number("1_000"), as_number("three")
    (3.8, None, None, None)
    """
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in value else None


def mostly_numbers(numbers: int, values: int) -> bool:
    """Tell whether so many of the values are numbers that the others are taken for mistakes."""
    return values > 0 and numbers >= _MOST * values


def _of_json(source: Source, options: ReadOptions) -> Found:
    for record in json_records(source):
        if isinstance(record, SetAside):
            yield record
        elif isinstance(record, Mapping):
            yield Record(record, source.position)
        else:
            yield source.aside("the record is not a JSON object with named fields")


def _of_parquet(source: Source) -> Found:
    with tempfile.TemporaryFile() as unpacked:
        number = 0
        for batch in batches(seekable(source, unpacked)):
            for index in range(batch.num_rows):
                number += 1
                source.position = f"record {number}"
                yield _parquet_row(batch, index, source)


def _parquet_row(batch: Any, index: int, source: Source) -> Record | SetAside:
    try:
        return Record({name: batch.column(name)[index].as_py() for name in batch.schema.names}, source.position)
    except UnicodeDecodeError:
        return source.aside("a value of the row is not UTF-8")


def _of_sections(source: Source, options: ReadOptions) -> Found:
    document, count = "", 0
    for run in paragraphs(source):
        if isinstance(run, SetAside):
            yield run
            continue
        count += 1
        document = f"{source.stem}-{count}"
        for line in run:
            if line.text.startswith(SECTION_ID):
                document = line.text.removeprefix(SECTION_ID).strip() or document
            else:
                yield _sentence(line, document, source)


def _sentence(line: Line, document: str, source: Source) -> Record | SetAside:
    position = f"line {line.number}"
    label, tab, sentence = line.text.partition("\t")
    if not tab:
        return source.aside("the line has no tab between label and sentence", document, position)
    return Record({"label": label, "sentence": sentence, SECTION_ID: document}, position)


def _of_table(source: Source, options: ReadOptions) -> Found:
    parser = Rows(source)
    rows: list[tuple[list[str], str]] = []
    damage: Damaged | None = None
    try:
        for row in parser.read():
            if isinstance(row, SetAside):
                yield row
                continue
            parser.width = parser.width or len(row)
            rows.append((row, source.position))
    except Damaged as found:
        damage = found
    commas = () if parser.dialect.delimiter == "," else _decimal_commas([row for row, _ in rows])
    for row, _ in rows:
        _spell_with_points(row, commas)
    yield from _named(rows, source, options, commas)
    if damage:
        raise damage


def _decimal_commas(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Find the columns whose numbers have a decimal comma; `1,234` alone may as well be a thousand."""
    width = len(rows[0]) if rows else 0
    cells = [[cell for row in rows[1:] if len(row) == width and (cell := row[n].strip())] for n in range(width)]
    return tuple(number for number, column in enumerate(cells) if _have_decimal_commas(column))


def _have_decimal_commas(cells: Sequence[str]) -> bool:
    decimal = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    whole = sum(bool(_WHOLE.fullmatch(cell)) for cell in cells)
    return mostly_numbers(len(decimal) + whole, len(cells)) and not all(map(_THOUSANDS.fullmatch, decimal))


def _spell_with_points(row: list[str], columns: Sequence[int]) -> None:
    for number in columns:
        cell = row[number].strip() if number < len(row) else ""
        if _DECIMAL_COMMA.fullmatch(cell) or _WHOLE.fullmatch(cell):
            row[number] = cell.replace(".", "").replace(",", ".")


def _named(rows: list[tuple[list[str], str]], source: Source, options: ReadOptions, commas: Sequence[int]) -> Found:
    first = rows[0][0] if rows else []
    has_header = _is_header([row for row, _ in rows], options)
    names = _header(first) if has_header else [str(number + 1) for number in range(len(first))]
    for number in commas:
        source.tally[f"the numbers of column {names[number]} have a decimal comma"] += 1
    for row, position in rows[has_header:]:
        if len(row) == len(names):
            yield Record(dict(zip(names, row, strict=True)), position)
        else:
            reason = f"the row has {len(row)} columns where the first has {len(names)}"
            yield source.aside(reason, position=position)


def _header(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if len(set(names)) < len(names):
        raise Damaged("the header names a column twice; give each its own name, or remove the header")
    return names


def _is_header(rows: list[list[str]], options: ReadOptions) -> bool:
    """Tell a header by names that are known or asked for, or by words above a column of numbers."""
    if options.header is not None or not rows:
        return bool(options.header)
    first = [cell.strip() for cell in rows[0]]
    if any(len(cell) > _NAME_SIZE or as_number(cell) is not None for cell in first):
        return False
    asked = {*options.text, options.id, options.title, options.label}
    if any(cell.lower() in KNOWN or cell in asked for cell in first):
        return True
    rest = [row for row in rows[1:] if len(row) == len(first)]
    return bool(rest) and any(all(as_number(row[column]) is not None for row in rest) for column in range(len(first)))
