"""Tables of names and numbers, which the terminal, a page and JSON show each in its own form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Final

from alembert.tasks.metrics.tally import Tally

SCORE_HEADER: Final = ("gold", "recall", "guessed", "precision", "f1")
Cell = str | int | float | None
"""None: there is nothing to compute the number from."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows whose first cell names something."""

    name: str
    """The key in JSON."""
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def records(self) -> list[dict[str, Cell]]:
        """Give each row with the names of its columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]

    @property
    def worded(self) -> tuple[bool, ...]:
        """Say of each column whether it holds words, which stand to the left, or numbers."""
        return tuple(
            not place or all(isinstance(row[place], str) for row in self.rows) for place in range(len(self.header))
        )

    def lines(self) -> list[str]:
        """Write header and rows in columns."""
        from rich.cells import cell_len

        cells = [self.header, *(tuple(map(shown, row)) for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        return ["  ".join(map(_padded, row, widths, self.worded)).rstrip() for row in cells]

    def html(self) -> str:
        """Write the table for a page, without its title."""
        head = "".join(map(partial(_html_cell, "th"), self.header, self.worded))
        rows = ("".join(map(partial(_html_cell, "td"), row, self.worded)) for row in self.rows)
        lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
        note = f"<p>{escape(self.note)}</p>\n" if self.note else ""
        return f'{note}<div class="wide"><table>\n<tr>{head}</tr>\n{lines}\n</table></div>'


def shown(cell: Cell) -> str:
    """Write a cell: whole numbers with commas, others with four digits.

    >>> shown(1234), shown(0.5), shown(None), shown("Disease")
    ('1,234', '0.5000', '-', 'Disease')
    """
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4f}"


def score_cells(tally: Tally) -> tuple[Cell, ...]:
    """Write a tally under `SCORE_HEADER`; a ratio of nothing is left open.

    >>> score_cells(Tally(tp=1, fp=0, fn=1)), score_cells(Tally(tp=0, fp=0, fn=1))
    ((2, 0.5, 1, 1.0, 0.6666666666666666), (1, 0.0, 0, None, 0.0))
    """
    recall = tally.recall if tally.support else None
    precision = tally.precision if tally.guessed else None
    return int(tally.support), recall, int(tally.guessed), precision, tally.f1


def _padded(cell: str, width: int, is_word: bool) -> str:
    from rich.cells import cell_len  # a Chinese character is two cells wide

    space = " " * (width - cell_len(cell))
    return f"{cell}{space}" if is_word else f"{space}{cell}"


def _html_cell(tag: str, cell: Cell, is_word: bool) -> str:
    style = ' style="text-align:left"' if is_word else ""
    return f"<{tag}{style}>{escape(shown(cell))}</{tag}>"
