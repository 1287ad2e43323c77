"""Records of labelled files: tables, JSON lines, Parquet, and the sections of PubMed abstracts, as named fields.

In: a source. Out: each record with its position, and what could not be read. The low-level readers are those of
documents, but columns without a header are named by number, and no column is selected yet. A file is held as a whole,
because the columns are detected from all of it. The usual names of columns are listed here.

The format of sections (Dernoncourt and Lee 2017) is sequential: ``###PMID`` begins an abstract, each line after it is
``LABEL<TAB>sentence``, and a blank line ends it.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from alembert.corpus.readers.contract import DamagedFile, ReadOptions, SetAside
from alembert.corpus.readers.jsonlines import read_json_records
from alembert.corpus.readers.parquet import PARQUET_MAGIC, iter_batches, open_seekable
from alembert.corpus.readers.records import ID_FIELDS, LABEL_FIELDS, TEXT_FIELDS
from alembert.corpus.readers.source import SourceFile, SourceLine, split_paragraphs
from alembert.corpus.readers.table import TableRows
from alembert.errors import BadInput

PAIR_COLUMNS: Final = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "answer"),
    ("query", "passage"),
)
"""First and second text of a pair."""
TEXT_COLUMNS: Final = (*TEXT_FIELDS, "abstract", "document", "review", "utterance")
LABEL_COLUMNS: Final = ("gold_label", *LABEL_FIELDS, "target", "score", "similarity", "rating", "sentiment", "relation")
"""The first one in a file is its label."""
SECTION_ID: Final = "###"
"""Precedes the id of a document in a file of sections."""
GROUP_COLUMNS: Final = (SECTION_ID, *(name for name in ID_FIELDS if name not in ("id", "_id", "uid")))
"""Columns with the document that a row is a part of."""
ROW_ID_COLUMNS: Final = ("id", "_id", "uid", "guid", "index", "idx", "pairid")
KNOWN_COLUMNS: Final = frozenset(
    (
        *TEXT_COLUMNS,
        *LABEL_COLUMNS,
        *GROUP_COLUMNS,
        *ROW_ID_COLUMNS,
        *(name for pair in PAIR_COLUMNS for name in pair),
        "title",
    )
)


_SECTIONS: Final = re.compile(r"###[^\t\n]*\n[^\t\n]+\t")
_JSON: Final = re.compile(r"[\[{]\s*[\[{\"\]}]")
_MAX_NAME_LENGTH: Final = 64
_MOSTLY_SHARE: Final = 0.9
_DECIMAL_COMMA: Final = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+")
_WHOLE: Final = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+)")
_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")


class FieldRecord(NamedTuple):
    """Named fields, and their position in the file ("line 3", "record 7")."""

    fields: Mapping[str, Any]
    position: str


RecordIterator = Iterator[FieldRecord | SetAside]


def read_records(source: SourceFile, options: ReadOptions) -> RecordIterator:
    """Detect the format of a file and read it; raise `DamagedFile` for one without records."""
    head = source.head(1 << 16)
    if not head:
        raise DamagedFile("the file is empty")
    if head.startswith(PARQUET_MAGIC):
        return _read_parquet(source)
    text = head.decode(source.encoding(), errors="replace").lstrip("\ufeff \t\r\n")
    return _reader(text)(source, options)


def _reader(text: str) -> Callable[[SourceFile, ReadOptions], RecordIterator]:
    if text.startswith(("<?xml", "<!DOCTYPE")):
        raise DamagedFile("this is XML, which holds no labelled rows; give a table, JSON lines or Parquet")
    if _JSON.match(text):
        return _read_json
    return _read_sections if _SECTIONS.match(text.replace("\r\n", "\n")) else _read_table


def parse_number(value: str) -> float | None:
    """Parse a finite number; None for any other text.

    >>> parse_number("3.8"), parse_number("nan"), parse_number("1_000"), parse_number("three")
    (3.8, None, None, None)
    """
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in value else None


def are_mostly_numbers(numbers: int, values: int) -> bool:
    """Whether so many of the values are numbers that the others are taken for mistakes."""
    return values > 0 and numbers >= _MOSTLY_SHARE * values


def find_column(columns: Mapping[str, str], names: Sequence[str], without: str | None = None) -> str | None:
    """Find the first of these names among the columns, which are given by their lower-case names."""
    return next((columns[name] for name in names if name in columns and columns[name] != without), None)


def join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more


def format_location(source: str, position: str) -> str:
    """Write file and position as `file:3` where there are lines."""
    kind, _, number = position.partition(" ")
    return f"{source}:{number}" if kind == "line" else f"{source}, {position}"


def check_text(value: Any, column: str) -> str:
    """Return a text, or a list of lines joined; raise `BadInput` for anything else and for white space."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise BadInput(f"there is no text in {column}")
    if not value.strip():
        raise BadInput(f"the text in {column} is empty")
    return value


def _read_json(source: SourceFile, options: ReadOptions) -> RecordIterator:
    for record in read_json_records(source):
        if isinstance(record, SetAside):
            yield record
        elif isinstance(record, Mapping):
            yield FieldRecord(record, source.position)
        else:
            yield source.set_aside("the record is not a JSON object with named fields")


def _read_parquet(source: SourceFile) -> RecordIterator:
    with tempfile.TemporaryFile() as unpacked:
        number = 0
        for batch in iter_batches(open_seekable(source, unpacked)):
            for index in range(batch.num_rows):
                number += 1
                source.position = f"record {number}"
                yield _parquet_row(batch, index, source)


def _parquet_row(batch: Any, index: int, source: SourceFile) -> FieldRecord | SetAside:
    try:
        return FieldRecord({name: batch.column(name)[index].as_py() for name in batch.schema.names}, source.position)
    except UnicodeDecodeError:
        return source.set_aside("a value of the row is not UTF-8")


def _read_sections(source: SourceFile, options: ReadOptions) -> RecordIterator:
    document, count = "", 0
    for run in split_paragraphs(source):
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


def _sentence(line: SourceLine, document: str, source: SourceFile) -> FieldRecord | SetAside:
    position = f"line {line.number}"
    label, tab, sentence = line.text.partition("\t")
    if not tab:
        return source.set_aside("the line has no tab between label and sentence", document, position)
    return FieldRecord({"label": label, "sentence": sentence, SECTION_ID: document}, position)


def _read_table(source: SourceFile, options: ReadOptions) -> RecordIterator:
    parser = TableRows(source)
    rows: list[tuple[list[str], str]] = []
    damage: DamagedFile | None = None
    try:
        for row in parser.read():
            if isinstance(row, SetAside):
                yield row
                continue
            parser.width = parser.width or len(row)
            rows.append((row, source.position))
    except DamagedFile as error:
        damage = error
    commas = () if parser.dialect.delimiter == "," else _decimal_commas([row for row, _ in rows])
    for row, _ in rows:
        _spell_with_points(row, commas)
    yield from _name_fields(rows, source, options, commas)
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
    return are_mostly_numbers(len(decimal) + whole, len(cells)) and not all(map(_THOUSANDS.fullmatch, decimal))


def _spell_with_points(row: list[str], columns: Sequence[int]) -> None:
    for number in columns:
        cell = row[number].strip() if number < len(row) else ""
        if _DECIMAL_COMMA.fullmatch(cell) or _WHOLE.fullmatch(cell):
            row[number] = cell.replace(".", "").replace(",", ".")


def _name_fields(
    rows: list[tuple[list[str], str]], source: SourceFile, options: ReadOptions, commas: Sequence[int]
) -> RecordIterator:
    first = rows[0][0] if rows else []
    has_header = _is_header([row for row, _ in rows], options)
    names = _header(first) if has_header else [str(number + 1) for number in range(len(first))]
    for number in commas:
        source.tally[f"the numbers of column {names[number]} have a decimal comma"] += 1
    for row, position in rows[has_header:]:
        if len(row) == len(names):
            yield FieldRecord(dict(zip(names, row, strict=True)), position)
        else:
            reason = f"the row has {len(row)} columns where the first has {len(names)}"
            yield source.set_aside(reason, position=position)


def _header(row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if len(set(names)) < len(names):
        raise DamagedFile("the header names a column twice; give each its own name, or remove the header")
    return names


def _is_header(rows: list[list[str]], options: ReadOptions) -> bool:
    """Recognise a header by usual or requested names, or by words above a column of numbers."""
    if options.header is not None or not rows:
        return bool(options.header)
    first = [cell.strip() for cell in rows[0]]
    if any(len(cell) > _MAX_NAME_LENGTH or parse_number(cell) is not None for cell in first):
        return False
    asked = {*options.text, options.id, options.title, options.label}
    if any(cell.lower() in KNOWN_COLUMNS or cell in asked for cell in first):
        return True
    rest = [row for row in rows[1:] if len(row) == len(first)]
    return bool(rest) and any(
        all(parse_number(row[column]) is not None for row in rest) for column in range(len(first))
    )
