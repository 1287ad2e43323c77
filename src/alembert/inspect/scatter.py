"""Scatter plots of a score against a cost on a logarithmic axis, with the interval and the name of each point.

In: points with names. Out: a chart. Labels are placed greedily, by the least cost, so that none covers another: eight points
near each other can be told apart; there is no promise for dozens.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from alembert.charts import (
    LEFT,
    WIDTH,
    BarMark,
    Chart,
    CircleMark,
    LineMark,
    PlotMark,
    Point,
    TextMark,
    choose_ticks,
)

LINE_HEIGHT: Final = 14
"""Height of a line of text."""
_LETTER_WIDTH, _WIDE_LETTER_WIDTH = 6.8, 12.5
"""Width of a letter, on the safe side, and of a Chinese character."""
_X_OFFSETS: Final = (5, 30, 90, 180)
_MAX_Y_LINES: Final = 22
"""How far a label may be from its point: to the side, in pixels, and up or down, in lines."""


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Return the area that two boxes have in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)

    def nearest(self, point: Point) -> Point:
        """Return the point of the box that is nearest to another.

        >>> Box(0, 0, 10, 10).nearest((15, 4))
        (10, 4)
        """
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


def text_width(text: str) -> float:
    """Guess how wide a line is when it is drawn."""
    return sum(_WIDE_LETTER_WIDTH if unicodedata.east_asian_width(letter) in "WF" else _LETTER_WIDTH for letter in text)


def place_labels(
    points: Sequence[Point],
    radii: Sequence[float],
    widths: Sequence[float],
    bars: Sequence[Box],
    frame: Box,
) -> list[Box]:
    """Choose a box for the label of each point, the highest points first; `bars` should stay visible."""
    discs = [Box(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    dots = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    placed: dict[int, Box] = {}
    for number in sorted(range(len(points)), key=lambda n: points[n][1]):
        obstacles = [([frame], -1000.0), (list(placed.values()), 1000.0), (dots, 20.0), (bars, 2.0), (discs, 0.5)]
        choices = _candidate_boxes(points[number], radii[number], widths[number])
        placed[number] = min(choices, key=partial(_placement_cost, points[number], points, obstacles))
    return [placed[number] for number in range(len(points))]


def _candidate_boxes(point: Point, radius: float, width: float) -> Iterator[Box]:
    """Offer boxes to the right, to the left, above and below, near ones first."""
    (x, y), height = point, 2 * LINE_HEIGHT
    for step in sorted(range(-_MAX_Y_LINES, _MAX_Y_LINES + 1), key=abs):
        top = y - LINE_HEIGHT + step * LINE_HEIGHT
        for aside in _X_OFFSETS:
            for left in (x + radius + aside, x - radius - aside - width):
                yield Box(left, top, left + width, top + height)
    for top in (y - radius - 4 - height, y + radius + 4):
        yield Box(x - width / 2, top, x + width / 2, top + height)


def _placement_cost(
    point: Point, points: Sequence[Point], obstacles: Sequence[tuple[Sequence[Box], float]], box: Box
) -> float:
    hidden = sum(weight * box.overlap(other) for others, weight in obstacles for other in others)
    away = math.dist(box.nearest(point), point)
    # A label that is nearer to another point would be read as the name of that one.
    astray = away - min(math.dist(box.nearest(other), other) for other in points)
    return hidden + away + 5 * astray


_HEIGHT: Final = 400
_RIGHT, _TOP, _BOTTOM = 620, 44, 346
_DOT_RADIUS: Final = 3.0
_MAX_NAME_LETTERS: Final = 32
"""Letters of a name."""


@dataclass(frozen=True)
class AxisScale:
    """Where a number stands on an axis; the axis may be logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def position(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class ScatterPoint:
    """A point with its interval, and what is written beside it."""

    name: str
    detail: str
    """What stands under the name."""
    x: float
    y: float
    low: float
    high: float
    radius: float
    tooltip: str
    colour: str = "a"
    is_square: bool = False

    def disc(self, at: Point) -> PlotMark:
        """Draw the size: a square, or a circle that lets through what is behind it."""
        if not self.is_square:
            return CircleMark(at, self.radius, self.colour, 0.3, self.tooltip)
        return BarMark(
            (at[0] - self.radius, at[1] - self.radius), 2 * self.radius, 2 * self.radius, self.colour, self.tooltip
        )


@dataclass(frozen=True, kw_only=True)
class ScatterPlot:
    """What a scatter plot shows."""

    title: str
    y_name: str
    x_name: str
    points: Sequence[ScatterPoint]
    least_margin: float
    """Room above and below the intervals, at least."""
    line: Sequence[ScatterPoint] = ()
    """Points that a line connects, from left to right."""

    def chart(self) -> Chart:
        """Lay out the plot, layer by layer, so that no point hides the dot of another."""
        across, up = self._scales()
        at = [(across.position(point.x), up.position(point.y)) for point in self.points]
        placed = list(zip(self.points, at, strict=True))
        along = sorted((across.position(point.x), up.position(point.y)) for point in self.line)
        bars = [Box(x - 2, up.position(point.high), x + 2, up.position(point.low)) for point, (x, _) in placed]
        marks: list[PlotMark] = [
            *self._frame_marks(across, up),
            *([LineMark(along, "a", 2.0)] if len(along) > 1 else []),
        ]
        marks += [point.disc(place) for point, place in placed]
        marks += [_interval_mark(point, box) for (point, _), box in zip(placed, bars, strict=True)]
        marks += [CircleMark(place, _DOT_RADIUS, point.colour, tooltip=point.tooltip) for point, place in placed]
        return Chart(self.title, (*marks, *_label_marks(placed, [*bars, *_cover_line(along)])), _HEIGHT)

    def _scales(self) -> tuple[AxisScale, AxisScale]:
        """Leave room on both sides: a factor of at least 1.6, and a sixth of the range."""
        left, right = min(point.x for point in self.points), max(point.x for point in self.points)
        factor = max(1.6, (right / left) ** (1 / 6))
        low = min(min(point.low, point.y) for point in self.points)
        high = max(max(point.high, point.y) for point in self.points)
        margin = max((high - low) / 8, self.least_margin)
        across = AxisScale(left / factor, right * factor, LEFT, _RIGHT, log=True)
        return across, AxisScale(low - margin, high + margin, _BOTTOM, _TOP)

    def _frame_marks(self, across: AxisScale, up: AxisScale) -> Iterator[PlotMark]:
        yield TextMark((LEFT, 18), self.title, colour="ink")
        yield TextMark((LEFT, 34), self.y_name)
        values = choose_ticks(up.low, up.high)
        digits = max(len(f"{value:g}".partition(".")[2]) for value in values)
        for value in values:
            y = up.position(value)
            yield LineMark([(LEFT, y), (_RIGHT, y)])
            yield TextMark((LEFT - 6, y + 4), f"{value:.{digits}f}", "end")
        for value in choose_log_ticks(across.low, across.high):
            x = across.position(value)
            yield LineMark([(x, _TOP), (x, _BOTTOM)])
            name = f"{value:,.10g}"
            is_cut = x + text_width(name) / 2 > WIDTH
            yield TextMark((WIDTH if is_cut else x, _BOTTOM + 18), name, "end" if is_cut else "middle")
        yield TextMark(((LEFT + _RIGHT) / 2, _HEIGHT - 12), f"{self.x_name}, logarithmic", "middle")


def choose_log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis, a handful at least.

    >>> choose_log_ticks(15, 480), choose_log_ticks(90, 210)
    ([20, 50, 100, 200], [100, 150, 200])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        values = [float(f"{step * 10.0**decade:.10g}") for decade in decades for step in steps]
        ticks = [int(value) if value.is_integer() else value for value in values if low <= value <= high]
        if len(ticks) > 2:
            break
    return ticks


def _interval_mark(point: ScatterPoint, box: Box) -> LineMark:
    x = (box.left + box.right) / 2
    return LineMark([(x, box.bottom), (x, box.top)], point.colour, 1.5)


def _cover_line(line: Sequence[Point]) -> Iterator[Box]:
    """Cover a line with small boxes, which labels should keep off."""
    size = 5.0
    for (x, y), (to_x, to_y) in pairwise(line):
        steps = max(1, int(math.dist((x, y), (to_x, to_y)) / size))
        for step in range(steps):
            at_x, at_y = (a + (b - a) * step / steps for a, b in ((x, to_x), (y, to_y)))
            yield Box(at_x - size, at_y - size, at_x + size, at_y + size)


def _label_marks(placed: Sequence[tuple[ScatterPoint, Point]], bars: Sequence[Box]) -> Iterator[PlotMark]:
    texts = [(_shorten_name(point.name), point.detail) for point, _ in placed]
    widths = [max(map(text_width, lines)) for lines in texts]
    radii = [point.radius for point, _ in placed]
    boxes = place_labels([at for _, at in placed], radii, widths, bars, Box(LEFT, _TOP, _RIGHT, _BOTTOM))
    for text, (point, at), box in zip(texts, placed, boxes, strict=True):
        yield from _name_marks(text, at, point.radius, box)


def _shorten_name(name: str) -> str:
    """Keep the end of a long name, which is what differs between folders."""
    return name if len(name) <= _MAX_NAME_LETTERS else f"…{name[1 - _MAX_NAME_LETTERS :]}"


def _name_marks(text: tuple[str, str], point: Point, radius: float, box: Box) -> Iterator[PlotMark]:
    """Write two lines that begin or end towards their point, with a line to it if it is far."""
    end = box.nearest(point)
    if math.dist(end, point) > radius + 8:
        yield LineMark([point, end], "dim", 0.7)
    left = box.right < point[0]
    x, anchor = (box.right, "end") if left else (box.left, "start")
    for number, (line, colour) in enumerate(zip(text, ("ink", "dim"), strict=True), 1):
        yield TextMark((x, box.top + number * LINE_HEIGHT - 3), line, anchor, colour)
