"""Charts of named rows: estimates with their intervals, counts as stacked bars, and the scores of an explanation.

In: names and numbers, or a `Table` that says which of its columns are drawn. Out: charts whose rows stand one below the
other, so that long names have room on a phone too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Final

from alembert.charts import (
    WIDTH,
    BarMark,
    Chart,
    CircleMark,
    LineMark,
    PlotMark,
    TextMark,
    choose_ticks,
    format_short_count,
    render_figure,
)
from alembert.html import colour_name, render_beside, render_legend
from alembert.infer.explain.result import Explanation
from alembert.inspect.tables import Cell, Table

_NAME_WIDTH, _RIGHT = 170, WIDTH - 90
_TOP, _BOTTOM = 6, 26
_GAP, _LINE = 12, 14
"""Height between two rows, and of each series of a row."""
_MAX_NAME_LETTERS: Final = 17
_Z: Final = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the ends of its interval, which are the value itself if there is none."""

    value: float
    low: float
    high: float

    @classmethod
    def of_share(cls, share: float, count: float) -> Estimate:
        """Return a share of a count with its 95 % interval (Wilson 1927), which holds for small counts too.

        >>> round(Estimate.of_share(1.0, 3).low, 4)
        0.4385
        """
        middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
        half = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
        return cls(share, max(0.0, middle - half), min(1.0, middle + half))


EstimateRow = tuple[str, Sequence[Estimate | None]]
"""A name, and an estimate for each series."""


def build_estimate_chart(
    title: str, series: Sequence[str], rows: Sequence[EstimateRow], extent: tuple[float, float] | None = None
) -> Chart:
    """Draw each estimate as a point on the line of its interval, the series of a row one below the other."""
    low, high = extent or _find_extent(rows)
    pitch = _GAP + _LINE * len(series)
    height = _TOP + pitch * len(rows) + _BOTTOM
    marks: list[PlotMark] = []
    for tick in choose_ticks(low, high):
        x = _x_position(tick, low, high)
        marks += [LineMark([(x, _TOP), (x, height - _BOTTOM)]), TextMark((x, height - 6), f"{tick:g}", "middle")]
    for number, (name, estimates) in enumerate(rows):
        top = _TOP + pitch * number
        marks.append(_name_mark(name, top + pitch / 2))
        for line, (label, estimate) in enumerate(zip(series, estimates, strict=True)):
            if estimate:
                y = top + _GAP / 2 + _LINE * (line + 0.5)
                tooltip = f"{name}, {label}" if len(series) > 1 else name
                marks += _estimate_marks(tooltip, estimate, y, colour_name(line), (low, high))
    return Chart(title, tuple(marks), height)


def _find_extent(rows: Sequence[EstimateRow]) -> tuple[float, float]:
    ends = [end for _, row in rows for each in row if each for end in (each.low, each.high)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    margin = max((high - low) / 20, 0.005)
    return low - margin, high + margin


def _estimate_marks(
    name: str, estimate: Estimate, y: float, colour: str, extent: tuple[float, float]
) -> Iterator[PlotMark]:
    x, left, right = (_x_position(value, *extent) for value in (estimate.value, estimate.low, estimate.high))
    tooltip = f"{name}: {estimate.value:.4f}"
    if estimate.low < estimate.high:
        tooltip += f", {estimate.low:.4f} to {estimate.high:.4f}"
        yield LineMark([(left, y), (right, y)], colour, 3.0, 0.45)
    yield CircleMark((x, y), 5.0, colour, tooltip=tooltip)


def build_stack_chart(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> Chart:
    """Draw counts as bars to the right, the series of a row one behind the other, and the sum at the end."""
    totals = [sum(values[row] for values in series.values()) for row in range(len(names))]
    high = max(totals, default=0) or 1
    pitch = 30
    height = _TOP + pitch * len(names) + _BOTTOM
    marks: list[PlotMark] = []
    for tick in choose_ticks(0.0, high, whole=True):
        x = _x_position(tick, 0.0, high)
        marks.append(LineMark([(x, _TOP), (x, height - _BOTTOM)]))
        marks.append(TextMark((x, height - 6), format_short_count(tick), "middle"))
    for row, (name, total) in enumerate(zip(names, totals, strict=True)):
        y, done = _TOP + pitch * row, 0.0
        marks.append(_name_mark(name, y + pitch / 2))
        for number, (label, values) in enumerate(series.items()):
            left, right = (_x_position(value, 0.0, high) for value in (done, done + values[row]))
            tooltip = f"{name}, {label}: {values[row]:,.0f}" if len(series) > 1 else f"{name}: {values[row]:,.0f}"
            if values[row]:
                marks.append(BarMark((left, y + 5), right - left, pitch - 10, colour_name(number), tooltip))
            done += values[row]
        marks.append(TextMark((_x_position(total, 0.0, high) + 6, y + pitch / 2 + 4), f"{total:,.0f}", colour="ink"))
    return Chart(title, tuple(marks), height)


_CHART_WORDS: Final = 12
"""Of an explanation, the strongest."""
_LINE_LETTERS: Final = 90


def build_explanation_chart(explanation: Explanation) -> Chart:
    """Draw the scores of the strongest words as bars to both sides, between what is asked and what the picture is worth."""
    words = explanation.strongest_words(_CHART_WORDS)
    head = wrap(f"{explanation.model}: {explanation.question}; {explanation.describe_margin()}", _LINE_LETTERS)
    foot = [
        line
        for sentence in (*explanation.faithfulness_lines(), *explanation.warnings())
        for line in wrap(sentence, _LINE_LETTERS)
    ]
    ends = [0.0, *(word.score for word in words)]
    low, high = min(ends), max(*ends, min(ends) + 1e-9)
    top, pitch = 18.0 * len(head) + _GAP, 26
    marks: list[PlotMark] = [TextMark((8, 18 * (n + 1)), line, colour="ink") for n, line in enumerate(head)]
    for number, word in enumerate(words):
        y, sides = top + pitch * number, sorted((_x_position(0.0, low, high), _x_position(word.score, low, high)))
        colour, tooltip = colour_name(0 if word.score > 0 else 4), f"{word.text}: {word.score:+.2f}"
        marks.append(_name_mark(word.text, y + pitch / 2))
        marks.append(BarMark((sides[0], y + 5), sides[1] - sides[0], pitch - 10, colour, tooltip))
        marks.append(TextMark((sides[1] + 6, y + pitch / 2 + 4), f"{word.score:+.2f}", colour="ink"))
    bottom = top + pitch * len(words)
    marks.append(LineMark([(_x_position(0.0, low, high), top), (_x_position(0.0, low, high), bottom)]))
    marks += [TextMark((8, bottom + 18 * (n + 1)), line) for n, line in enumerate(foot)]
    return Chart(explanation.question, tuple(marks), bottom + 18 * len(foot) + _GAP)


def _name_mark(name: str, y: float) -> TextMark:
    short = name if len(name) <= _MAX_NAME_LETTERS else f"{name[: _MAX_NAME_LETTERS - 1]}…"
    return TextMark((_NAME_WIDTH - 12, y + 4), short, "end", "ink")


def _x_position(value: float, low: float, high: float) -> float:
    return _NAME_WIDTH + (value - low) / (high - low) * (_RIGHT - _NAME_WIDTH)


def render_drawn_table(table: Table) -> str:
    """Return the picture of a table, if it says what is drawn, and beside it the table."""
    if table.shares:
        figure = render_figure(_share_chart(table), _describe_shares(table))
        legend = render_legend({name: number for number, name in enumerate(table.shares)})
    elif table.stacked:
        figure = render_figure(_stack_chart(table), f"Count by {table.header[0]}")
        legend = render_legend({name: number for number, name in enumerate(table.stacked)})
    else:
        return table.html()
    note = f"<p>{escape(table.note)}</p>\n" if table.note else ""
    return note + render_beside(figure + legend, table.html(with_note=False))


def _share_chart(table: Table) -> Chart:
    rows = [
        (str(record[table.header[0]]), [_estimate(record[name], record.get(of)) for name, of in table.shares.items()])
        for record in table.records()
    ]
    # The same axis for all tables of a page, so that one sees by what the errors gather.
    return build_estimate_chart(table.title, list(table.shares), rows, (0.0, 1.0))


def _estimate(share: Cell, count: Cell) -> Estimate | None:
    if not isinstance(share, float):
        return None
    if not isinstance(count, int):
        return Estimate(share, share, share)
    return Estimate.of_share(share, count) if count else None


def _describe_shares(table: Table) -> str:
    names = " and ".join(table.shares)
    unit = f" by {table.header[0]}" if table.header[0] else ""
    return f"{names[0].upper()}{names[1:]}{unit}" + (" with 95 % intervals" if any(table.shares.values()) else "")


def _stack_chart(table: Table) -> Chart:
    rows = {str(row[0]): row for row in table.rows if row[0] not in table.undrawn}
    columns = {
        name: [float(cell) for row in rows.values() if isinstance(cell := row[table.header.index(name)], int)]
        for name in table.stacked
    }
    return build_stack_chart(table.title, list(rows), columns)
