"""Tables of names and numbers, which the terminal, a page and JSON show each in its own form.

Groups, such as ranges of a number, sort what stands in their rows.

Right and guessed entities in a text: the excerpts worth showing, and brackets for terminals.

Right answers stand in [brackets], guesses in {braces}, each followed by its label; where both end together with the same
label it is written once. So they can be told apart without colours.

>>> marks = [EntityMark(0, 13, "Disease", "gold", "boundary"), EntityMark(7, 13, "Disease", "guess", "boundary")]
>>> "".join(format_run(run) for run in split_runs("breast cancer again", marks))
'[breast {cancer]}Disease again'
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from alembert.html import (
    ColourFunction,
    EntityMark,
    Html,
    TextRun,
    render_runs,
    render_table,
    split_runs,
)
from alembert.tasks.metrics import Tally

if TYPE_CHECKING:
    from alembert.infer.evaluate import ConfusionMatrix

SCORE_HEADER: Final = ("gold", "recall", "guessed", "precision", "f1")
SCORE_SHARES: Final = {"recall": "gold", "precision": "guessed"}
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
    shares: Mapping[str, str] = field(default_factory=dict)
    """Columns of shares or mean scores that a page draws, each with the column that counts what it is a share of, if any."""
    stacked: tuple[str, ...] = ()
    """Columns of counts that a page draws as the parts of a bar."""
    undrawn: tuple[str, ...] = ()
    """Rows that stand in the table alone, since they would dwarf the others."""

    def records(self) -> list[dict[str, Cell]]:
        """Return each row with the names of its columns."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]

    @property
    def text_columns(self) -> tuple[bool, ...]:
        """Whether each column holds text, which is aligned left, or numbers."""
        columns = range(len(self.header))
        return tuple(column == 0 or all(isinstance(row[column], str) for row in self.rows) for column in columns)

    def lines(self) -> list[str]:
        """Write header and rows in columns."""
        from rich.cells import cell_len

        cells = [self.header, *(tuple(map(format_cell, row)) for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        return ["  ".join(map(_pad_cell, row, widths, self.text_columns)).rstrip() for row in cells]

    def html(self, *, with_note: bool = True) -> str:
        """Return the table for a page, without its title."""
        columns = {number for number, is_text in enumerate(self.text_columns) if is_text}
        note = f"<p>{escape(self.note)}</p>\n" if self.note and with_note else ""
        rows = [tuple(map(format_cell, row)) for row in self.rows]
        return note + render_table(self.header, rows, columns, self.title)


def short_name(model: str) -> str:
    """Return what a page calls a model: the name of its folder, unless that is a number or nothing.

    >>> short_name("work/ner"), short_name("work/ner/seeds/2")
    ('ner', 'work/ner/seeds/2')
    """
    name = Path(model).name
    return model if not name or name.isdecimal() else name


def shorten_paths(text: str, files: Sequence[str]) -> str:
    """Leave out the folders of files, unless two files have the same name.

    >>> shorten_paths("data/test.tsv, document 3", ["data/test.tsv"])
    'test.tsv, document 3'
    """
    names = [Path(file).name for file in files]
    for file, name in zip(files, names, strict=True):
        text = text.replace(file, name) if names.count(name) == 1 else text
    return text


def describe_source(model: str, task: str, files: Sequence[str]) -> str:
    """Return a sentence on what a page is about."""
    return f"Model {model}, task {task}, on {', '.join(files)}." if files else f"Model {model}, task {task}."


def format_cell(cell: Cell) -> str:
    """Write a cell: whole numbers with commas, others with four digits.

    >>> format_cell(1234), format_cell(0.5), format_cell(None), format_cell("Disease")
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


_MAX_LABELS: Final = 40
"""Labels up to which a confusion matrix can be read."""


def render_confusion(confusion: ConfusionMatrix) -> str:
    """Return a confusion matrix for a page; the shade of a cell is its share of the row."""
    if len(confusion.labels) > _MAX_LABELS:
        return f"<p>{len(confusion.labels)} labels are too many for a table; --json has the counts.</p>"
    rows = [
        (label, *map(partial(_shaded_cell, sum(counts) or 1), counts))
        for label, counts in zip(confusion.labels, confusion.counts, strict=True)
    ]
    return render_table(("gold", *confusion.labels), rows, label="confusion matrix")


def _shaded_cell(total: int, count: int) -> Html:
    share = round(100 * count / total)
    # A full shade would leave too little contrast with the number.
    return Html(f'<span class="share" style="--share:{share / 2:g}%" title="{share} %">{count:,}</span>')


def _pad_cell(cell: str, width: int, is_text: bool) -> str:
    from rich.cells import cell_len  # a Chinese character is two cells wide

    space = " " * (width - cell_len(cell))
    return f"{cell}{space}" if is_text else f"{space}{cell}"


T = TypeVar("T")


@dataclass(frozen=True)
class Grouping(Generic[T]):
    """What things are sorted by, and the groups in their order."""

    name: str
    title: str
    unit: str
    """What the names of the groups are: a unit, or a noun."""
    groups: Sequence[str]
    group: Callable[[T], str]

    @classmethod
    def by_range(
        cls, name: str, title: str, unit: str, starts: Sequence[int], value: Callable[[T], int]
    ) -> Grouping[T]:
        """Sort by a number; `starts` are where ranges begin."""
        return cls(name, title, unit, range_names(starts), lambda thing: range_name(value(thing), starts))


def range_name(value: int, starts: Sequence[int]) -> str:
    """Name the range that a number falls into; `starts` are where ranges begin, rising.

    >>> [range_name(value, (1, 2, 3, 5)) for value in (1, 4, 99)]
    ['1', '3-4', '5+']
    """
    return range_names(starts)[max(0, bisect_right(starts, value) - 1)]


def range_names(starts: Sequence[int]) -> list[str]:
    """Name all ranges, in order.

    >>> range_names((1, 2, 3, 5))
    ['1', '2', '3-4', '5+']
    """
    closed = [str(low) if high - low == 1 else f"{low}-{high - 1}" for low, high in pairwise(starts)]
    return [*closed, f"{starts[-1]}+"]


MAX_WHOLE_CHARACTERS: Final = 1500
"""Characters up to which a text is shown whole; of longer ones what is around the errors."""
CONTEXT_CHARACTERS: Final = 120


def choose_excerpts(text: str, marks: Sequence[EntityMark]) -> list[tuple[int, int]]:
    """Choose what to show: all of a short text, and what is around the errors of a long one."""
    if len(text) <= MAX_WHOLE_CHARACTERS:
        return [(0, len(text))]
    chosen: list[tuple[int, int]] = []
    for mark in sorted((mark for mark in marks if mark.kind != "right"), key=lambda mark: mark.start):
        low, high = _with_whole_marks(
            max(0, mark.start - CONTEXT_CHARACTERS), min(len(text), mark.end + CONTEXT_CHARACTERS), marks
        )
        if chosen and low <= chosen[-1][1]:
            chosen[-1] = (min(low, chosen[-1][0]), max(high, chosen[-1][1]))
        else:
            chosen.append((low, high))
    return chosen or [(0, MAX_WHOLE_CHARACTERS)]


def _with_whole_marks(low: int, high: int, marks: Sequence[EntityMark]) -> tuple[int, int]:
    touched = [mark for mark in marks if mark.start < high and mark.end > low]
    return min([low, *(mark.start for mark in touched)]), max([high, *(mark.end for mark in touched)])


def format_run(run: TextRun) -> str:
    """Write a run with the brackets of the marks that begin and end at it."""
    opening, closing = run_brackets(run)
    return f"{opening}{run.text}{closing}"


def run_brackets(run: TextRun) -> tuple[str, str]:
    """Return what stands before and after a run."""
    opening = "".join("[" if mark.side == "gold" else "{" for mark in _sorted(run.opens))
    guessed = [mark.label for mark in run.closes if mark.side == "guess"]
    closing = []
    for mark in run.closes:
        if mark.side == "gold" and mark.label in guessed:
            guessed.remove(mark.label)
            closing.append(f"]}}{mark.label}")
        elif mark.side == "gold":
            closing.append(f"]{mark.label}")
    return opening, "".join([*closing, *(f"}}{label}" for label in guessed)])


def _sorted(marks: Sequence[EntityMark]) -> list[EntityMark]:
    return sorted(marks, key=lambda mark: (mark.side, -mark.end))


def render_excerpts(text: str, marks: Sequence[EntityMark], colour: ColourFunction) -> Html:
    """Return a text with its marks for a page; of a long one, what is around the errors."""
    excerpts = choose_excerpts(text, marks)
    shown = [render_runs(split_runs(text, marks, low, high), colour) for low, high in excerpts]
    before = "… " if excerpts[0][0] else ""
    after = " …" if excerpts[-1][1] < len(text) else ""
    return Html(f"{before}{' … '.join(shown)}{after}")
