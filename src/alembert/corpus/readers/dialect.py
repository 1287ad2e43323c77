"""Which sign separates the columns of a table, and whether double quotes enclose its cells.

In: the head of a file, its name, and what the options say. Out: a `Dialect`, and a remark about what the name does not
tell. A name such as `.csv` is believed unless its sign does not explain the lines and another one does: European
spreadsheets write semicolons, because the comma is in their numbers. The evidence is the share of lines that belong to
rows as wide as the first, of two columns or more.

Quotes enclose cells wherever commas, semicolons or bars separate them. Between tabs both habits exist: the GLUE files
have quotes as ordinary characters, often a single one, and spreadsheets enclose cells that hold tabs, line breaks or
quotes. There quotes enclose if that makes more lines fit, if all of a column is enclosed, or if no quote is left over
and those inside of cells are doubled.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from alembert.corpus.readers.contract import DELIMITERS, how_to_set
from alembert.corpus.readers.source import Source, plain_name

_HEAD: Final = 1 << 18
_ENOUGH: Final = 0.5
"""Share of the lines that another delimiter than the name's must explain; the head may end inside of a long cell."""
_NEARLY_ALL: Final = 0.9
"""Share of the cells of a column that is enclosed in quotes."""
_ENCLOSED: Final = re.compile(r'"(?:[^"]|"")*+"')
_DECIMAL_COMMAS: Final = re.compile(r"(?:[^,]|(?<=\d),(?=\d))*+")
_NAMES: Final = {sign: f"{name}s" for name, sign in DELIMITERS.items()}


@dataclass(frozen=True)
class Dialect:
    """How the rows of a table are written."""

    delimiter: str
    quotes: bool
    """Whether double quotes enclose cells; otherwise they are ordinary characters."""

    def parse(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Read rows of cells from lines with their line ends; raise `csv.Error` for what cannot be read."""
        if self.quotes:
            return csv.reader(lines, delimiter=self.delimiter, strict=True)
        return csv.reader(lines, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)


def dialect_of(source: Source) -> Dialect:
    """Tell how a table is written, and remark what was told against its name."""
    asked, text = source.options, _head(source)
    usual = _by_name(source.name, text)
    delimiter = asked.delimiter or _delimiter(text, usual)
    if not asked.delimiter and delimiter != usual:
        source.tally[f"the columns are separated by {_NAMES[delimiter]}, as the lines show"] += 1
    if asked.quotes is not None or delimiter != "\t":
        return Dialect(delimiter, asked.quotes is not False)
    quotes = _encloses(text)
    if quotes:
        source.tally["double quotes enclose cells, as in CSV"] += 1
    elif re.search(r'(?:^|\t)"', text, re.MULTILINE):
        source.tally[f"double quotes are ordinary characters; if they enclose cells, {how_to_set('quotes')}"] += 1
    return Dialect(delimiter, quotes)


def _head(source: Source) -> str:
    """Return whole lines from the beginning of the file."""
    data = source.head(_HEAD)
    text = data.decode(source.encoding(), errors="replace").removeprefix("\ufeff").replace("\r\n", "\n")
    is_whole = len(data) < _HEAD
    return text if is_whole else text[: text.rfind("\n") + 1]


def _by_name(name: str, text: str) -> str:
    """Tell the delimiter by the file's name; else a tab in the first line decides, since texts have commas too."""
    ending = plain_name(name).lower()
    if ending.endswith((".csv", ".tsv", ".tab")):
        return "," if ending.endswith(".csv") else "\t"
    first = text.partition("\n")[0]
    return "," if "," in first and "\t" not in first else "\t"


def _delimiter(text: str, usual: str) -> str:
    shares = {sign: _share(text, sign) for sign in _NAMES}
    shares["\t"] = max(shares["\t"], _plain_share(text))
    if _DECIMAL_COMMAS.fullmatch(text):
        shares[","] = 0.0  # all of them are in numbers
    best = max(shares, key=lambda sign: (shares[sign], sign == usual))
    return best if shares[best] >= _ENOUGH and shares[best] > shares[usual] else usual


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
    """Tell whether quotes between tabs enclose cells."""
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
    """Tell whether nearly all cells are in quotes; the first may be a header without them."""
    cells = column[1:] or column
    return sum(bool(_ENCLOSED.fullmatch(cell)) for cell in cells) >= max(1, _NEARLY_ALL * len(cells))
