"""CSV and TSV: one row is one document.

The first row is a header if it names a usual column and holds no data; columns are then selected by name, or by number
counted from 1. A row with another number of columns than the first is set aside. Where a quoted cell of several lines
is not closed (never, after too many lines, or in a row of another width), its first line is set aside and reading
resumes with the next one: a lost quote costs one row. The price is that the lines of a truly broken row are read one by
one.

The delimiter and the use of quotes are detected from the first lines, the name and the options (`TableDialect`). The
suffix `.csv` decides unless its delimiter does not explain the lines and another one does: European spreadsheets write
semicolons, because their numbers have commas. The evidence is the share of lines in rows as wide as the first, of two
columns or more.

Quotes enclose cells wherever commas, semicolons or bars separate them. Between tabs both conventions exist: the GLUE
files have quotes as ordinary characters, often a single one, and spreadsheets enclose cells that hold tabs, line breaks
or quotes. There quotes enclose cells if that makes more lines fit, if they enclose all of a column, or if no quote is
left over and those inside of cells are doubled.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from alembert.corpus.readers.contract import DELIMITERS, DamagedFile, Item, ReadOptions, SetAside, describe_option
from alembert.corpus.readers.records import ID_FIELDS, LABEL_FIELDS, TEXT_FIELDS, build_record_items
from alembert.corpus.readers.source import SourceFile, SourceLine, strip_compression_suffix

_SAMPLE_BYTES: Final = 1 << 18
_MIN_SHARE: Final = 0.5
"""Share of the lines that another delimiter than the name's must explain; the head may end inside of a long cell."""
_NEARLY_ALL: Final = 0.9
"""Share of the cells of a column that is enclosed in quotes."""
_ENCLOSED: Final = re.compile(r'"(?:[^"]|"")*+"')
_DECIMAL_COMMAS: Final = re.compile(r"(?:[^,]|(?<=\d),(?=\d))*+")
_NAMES: Final = {sign: f"{name}s" for name, sign in DELIMITERS.items()}


@dataclass(frozen=True)
class TableDialect:
    """How the rows of a table are written."""

    delimiter: str
    quotes: bool
    """Whether double quotes enclose cells; otherwise they are ordinary characters."""

    def parse(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Read rows of cells from lines with their line ends; raise `csv.Error` for what cannot be read."""
        if self.quotes:
            return csv.reader(lines, delimiter=self.delimiter, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)


def detect_table_dialect(source: SourceFile) -> TableDialect:
    """Detect how a table is written, and remark what differs from its name."""
    options, text = source.options, _head(source)
    expected = _by_name(source.name, text)
    delimiter = options.delimiter or _delimiter(text, expected)
    if not options.delimiter and delimiter != expected:
        source.tally[f"the columns are separated by {_NAMES[delimiter]}, as the lines show"] += 1
    if options.quotes is not None or delimiter != "\t":
        return TableDialect(delimiter, options.quotes is not False)
    quotes = _encloses(text)
    if quotes:
        source.tally["double quotes enclose cells, as in CSV"] += 1
    elif re.search(r'(?:^|\t)"', text, re.MULTILINE):
        source.tally[f"double quotes are ordinary characters; if they enclose cells, {describe_option('quotes')}"] += 1
    return TableDialect(delimiter, quotes)


def _head(source: SourceFile) -> str:
    """Return whole lines from the beginning of the file."""
    data = source.head(_SAMPLE_BYTES)
    text = data.decode(source.encoding(), errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    is_whole = len(data) < _SAMPLE_BYTES
    return text if is_whole else text[: text.rfind("\n") + 1]


def _by_name(name: str, text: str) -> str:
    """Derive the delimiter from the file name; without a known suffix a tab in the first line decides."""
    ending = strip_compression_suffix(name).lower()
    if ending.endswith((".csv", ".tsv", ".tab")):
        return "," if ending.endswith(".csv") else "\t"
    first = text.partition("\n")[0]
    return "," if "," in first and "\t" not in first else "\t"


def _delimiter(text: str, expected: str) -> str:
    shares = {sign: _share(text, sign) for sign in _NAMES}
    shares["\t"] = max(shares["\t"], _plain_share(text))
    if _DECIMAL_COMMAS.fullmatch(text):
        shares[","] = 0.0  # all of them are in numbers
    best = max(shares, key=lambda sign: (shares[sign], sign == expected))
    return best if shares[best] >= _MIN_SHARE and shares[best] > shares[expected] else expected


def _share(text: str, delimiter: str) -> float:
    """Return the share of lines in rows as wide as the first, of two columns or more, where quotes enclose cells."""
    sign = re.escape(delimiter)
    cell = rf'(?:{_ENCLOSED.pattern}|[^"{sign}\n][^{sign}\n]*+|)'
    whole_row = re.compile(rf"^{cell}(?:{sign}{cell})*+$", re.MULTILINE)
    enclosed = re.compile(rf"(^|{sign}){_ENCLOSED.pattern}")
    rows = [row[0] for row in whole_row.finditer(text) if row[0].strip()]
    widths = [enclosed.sub(r"\1", row).count(delimiter) for row in rows]
    fitting = sum(len(_lines(row)) for row, width in zip(rows, widths, strict=True) if width == widths[0] > 0)
    return fitting / max(1, len(_lines(text)))


def _plain_share(text: str) -> float:
    """Return the share of lines as wide as the first where quotes between tabs are ordinary characters."""
    widths = [line.count("\t") for line in _lines(text)]
    return sum(width == widths[0] > 0 for width in widths) / max(1, len(widths))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _encloses(text: str) -> bool:
    """Whether quotes between tabs enclose cells."""
    if '"' not in text:
        return False
    if _share(text, "\t") > _plain_share(text):
        return True
    rows = [line.split("\t") for line in _lines(text)]
    width = len(rows[0])
    columns = list(zip(*(row for row in rows if len(row) == width), strict=True))
    if any(_is_enclosed(column) for column in columns):
        return True
    marked = [cell for row in rows for cell in row if '"' in cell]
    return all(map(_ENCLOSED.fullmatch, marked)) and any('""' in cell[1:-1] for cell in marked)


def _is_enclosed(column: tuple[str, ...]) -> bool:
    """Whether nearly all cells are in quotes; the first may be a header without them."""
    cells = column[1:] or column
    return sum(bool(_ENCLOSED.fullmatch(cell)) for cell in cells) >= max(1, _NEARLY_ALL * len(cells))


_USUAL_COLUMNS = {
    *ID_FIELDS,
    *LABEL_FIELDS,
    *TEXT_FIELDS,
    "title",
    "abstract",
    "index",
    "score",
    "sentence1",
    "sentence2",
}
_WIDEST_COLUMN = 2**31 - 1
# Clinical notes in one field run to a few thousand lines; beyond that a quote was lost.
_LONGEST_FIELD = 10_000


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the rows of a table as documents."""
    rows = TableRows(source)
    names: list[str] = []
    number = 0
    for row in rows.read():
        if isinstance(row, SetAside):
            yield row
            continue
        if not names:
            names = _names(row, options)
            rows.width = len(names)
            _check(names, options)
            if _is_header(row, options):
                continue
        if len(row) != len(names):
            yield source.set_aside(f"the row has {len(row)} columns where the first has {len(names)}")
            continue
        number += 1
        yield from build_record_items(dict(zip(names, row, strict=True)), source, options, number)


class TableRows:
    """Reads rows of cells, and the lines that are set aside; holds the lines of one row."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.dialect = detect_table_dialect(source)
        self.width: int | None = None
        self._bad: list[SetAside] = []
        self._source_lines = source.lines()
        self._pushed_back: deque[SourceLine] = deque()
        self._row_lines: list[SourceLine] = []

    def read(self) -> Iterator[list[str] | SetAside]:
        csv.field_size_limit(min(self.source.options.max_record, _WIDEST_COLUMN))
        rows = self.dialect.parse(self._lines())
        while True:
            try:
                row = self._row(rows)
            except csv.Error as error:
                yield from self._give_up(str(error))
                rows = self.dialect.parse(self._lines())
                continue
            yield from self._flush_bad()
            if row is None:
                return
            if row:
                yield row

    def _row(self, rows: Iterator[list[str]]) -> list[str] | None:
        self._row_lines = []
        row = next(rows, None)
        if row and len(self._row_lines) > 1 and self.width not in (None, len(row)):
            raise csv.Error(f"it has {len(row)} columns where the first row has {self.width}")
        if self._row_lines:
            self.source.position = f"line {self._row_lines[0].number}"
        return row

    def _give_up(self, reason: str) -> Iterator[SetAside]:
        """Set the first line of the row aside, and read the others again."""
        yield from self._flush_bad()
        first, *others = self._row_lines
        self._pushed_back.extendleft(reversed(others))
        self.source.position = f"line {first.number}"
        yield self.source.set_aside(f"the row that begins here cannot be parsed: {reason}")

    def _flush_bad(self) -> Iterator[SetAside]:
        yield from self._bad
        self._bad = []

    def _lines(self) -> Iterator[str]:
        while (
            line := self._pushed_back.popleft() if self._pushed_back else next(self._source_lines, None)
        ) is not None:
            if isinstance(line, SetAside):
                self._bad.append(line)
                continue
            self._row_lines.append(line)
            if len(self._row_lines) > _LONGEST_FIELD:
                raise csv.Error(f"a quoted field goes on for more than {_LONGEST_FIELD} lines")
            yield line.text + "\n"


def _is_header(row: list[str], options: ReadOptions) -> bool:
    if options.header is not None:
        return options.header
    requested = {*options.text, options.id, options.title, options.label}
    names = [name.strip().lower() for name in row]
    return any(name in _USUAL_COLUMNS or name in requested for name in names) or any(name in requested for name in row)


def _names(row: list[str], options: ReadOptions) -> list[str]:
    """Name the columns by the header; without one, or if the options have numbers, by number."""
    numbers = [str(number) for number in range(1, len(row) + 1)]
    requested = {*options.text, options.id, options.title, options.label}
    if not _is_header(row, options) or (requested & set(numbers) and not requested & set(row)):
        return numbers
    names = [name.strip() for name in row]
    if len(set(names)) < len(names):
        raise DamagedFile("the header names a column twice; pick columns by number: " + describe_option("text"))
    return [name.lower() if name.lower() in _USUAL_COLUMNS and name not in requested else name for name in names]


def _check(names: list[str], options: ReadOptions) -> None:
    has = ", ".join(names[:20])
    missing = [name for name in options.text if name not in names]
    if missing:
        raise DamagedFile(f"there is no column {missing[0]}; the table has {has}; {describe_option('text')}")
    if not options.text and not {*TEXT_FIELDS, "title", "abstract"} & set(names):
        raise DamagedFile(f"no column is known to hold text; the table has {has}; {describe_option('text')}")
