"""CSV and TSV: one row, one document.

`dialect` tells which sign separates columns, and whether quotes enclose fields, which may then hold the sign and line
breaks. The first row is a header when it names a column we look for and no data; columns are then picked by name, or by
number counted from 1. A row with another number of columns than the first is set aside. Where a quoted field of several lines does not end well (never, after too many
lines, or in a row of another width), its first line is set aside and reading resumes with the next one: a lost quote
costs one row. The price is that the lines of a truly broken row are judged one by one.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

from alembert.corpus.readers.contract import Damaged, Item, ReadOptions, SetAside, how_to_set
from alembert.corpus.readers.dialect import dialect_of
from alembert.corpus.readers.records import ID_FIELDS, LABEL_FIELDS, TEXT_FIELDS, items_of
from alembert.corpus.readers.source import Line, Source

_USUAL = {
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


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """Read the rows of a table as documents."""
    rows = Rows(source)
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
            yield source.aside(f"the row has {len(row)} columns where the first has {len(names)}")
            continue
        number += 1
        yield from items_of(dict(zip(names, row, strict=True)), source, options, number)


class Rows:
    """Rows of fields, and the lines that were set aside on the way; holds the lines of one row."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.dialect = dialect_of(source)
        self.width: int | None = None
        self._bad: list[SetAside] = []
        self._all = source.lines()
        self._again: deque[Line] = deque()
        self._taken: list[Line] = []

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
            yield from self._given_bad()
            if row is None:
                return
            if row:
                yield row

    def _row(self, rows: Iterator[list[str]]) -> list[str] | None:
        self._taken = []
        row = next(rows, None)
        if row and len(self._taken) > 1 and self.width not in (None, len(row)):
            raise csv.Error(f"it has {len(row)} columns where the first row has {self.width}")
        if self._taken:
            self.source.position = f"line {self._taken[0].number}"
        return row

    def _give_up(self, reason: str) -> Iterator[SetAside]:
        """Set the first line of the row aside; the others are read again."""
        yield from self._given_bad()
        first, *others = self._taken
        self._again.extendleft(reversed(others))
        self.source.position = f"line {first.number}"
        yield self.source.aside(f"the row that begins here cannot be parsed: {reason}")

    def _given_bad(self) -> Iterator[SetAside]:
        yield from self._bad
        self._bad = []

    def _lines(self) -> Iterator[str]:
        while (line := self._again.popleft() if self._again else next(self._all, None)) is not None:
            if isinstance(line, SetAside):
                self._bad.append(line)
                continue
            self._taken.append(line)
            if len(self._taken) > _LONGEST_FIELD:
                raise csv.Error(f"a quoted field goes on for more than {_LONGEST_FIELD} lines")
            yield line.text + "\n"


def _is_header(row: list[str], options: ReadOptions) -> bool:
    if options.header is not None:
        return options.header
    asked = {*options.text, options.id, options.title, options.label}
    names = [name.strip().lower() for name in row]
    return any(name in _USUAL or name in asked for name in names) or any(name in asked for name in row)


def _names(row: list[str], options: ReadOptions) -> list[str]:
    """Name the columns by the header; without one, or where a number was asked for, by number."""
    numbers = [str(number) for number in range(1, len(row) + 1)]
    asked = {*options.text, options.id, options.title, options.label}
    if not _is_header(row, options) or (asked & set(numbers) and not asked & set(row)):
        return numbers
    names = [name.strip() for name in row]
    if len(set(names)) < len(names):
        raise Damaged("the header names a column twice; pick columns by number: " + how_to_set("text"))
    return [name.lower() if name.lower() in _USUAL and name not in asked else name for name in names]


def _check(names: list[str], options: ReadOptions) -> None:
    has = ", ".join(names[:20])
    missing = [name for name in options.text if name not in names]
    if missing:
        raise Damaged(f"there is no column {missing[0]}; the table has {has}; {how_to_set('text')}")
    if not options.text and not {*TEXT_FIELDS, "title", "abstract"} & set(names):
        raise Damaged(f"no column is known to hold text; the table has {has}; {how_to_set('text')}")
