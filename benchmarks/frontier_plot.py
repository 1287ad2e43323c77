"""The plot of `frontier.py`: F1 against words a second on one core, as SVG and, with matplotlib, as PNG."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

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
    render_png,
)
from alembert.html import LIGHT
from alembert.inspect.comparison_plot import (
    LINE_HEIGHT,
    AxisScale,
    Box,
    choose_log_ticks,
    place_labels,
    text_width,
)

HEIGHT, RIGHT, TOP, BOTTOM = 400, 620, 44, 346
HALF = 5.0
"""Half the width of a mark."""
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:%(dim)s;stroke:%(paper)s;stroke-width:3px;paint-order:stroke}"
    "text.ink{fill:%(ink)s}"
)


@dataclass(frozen=True)
class PlotPoint:
    """A tagger; F1 and its interval in percent."""

    name: str
    f1: float
    low: float
    high: float
    speed: float
    is_ours: bool


def write_plot(points: Sequence[PlotPoint], what: str, target: Path) -> list[Path]:
    """Write the plot next to each other as .svg and .png; return what was written."""
    chart = build_chart(points, what)
    target.parent.mkdir(parents=True, exist_ok=True)
    files = {".svg": standalone_svg(chart).encode(), ".png": render_png([chart])}
    for suffix, content in files.items():
        if content is not None:
            target.with_suffix(suffix).write_bytes(content)
    return [target.with_suffix(suffix) for suffix, content in files.items() if content is not None]


def standalone_svg(chart: Chart) -> str:
    """Return the chart as a file of its own, with the colours of a light page written out."""
    svg = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], chart.svg())
    opening, rest = svg.split("\n", 1)
    size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{chart.height:g}"'
    paper = f'<rect width="{WIDTH}" height="{chart.height:g}" fill="{LIGHT["paper"]}"/>'
    return f"{opening.replace('<svg', f'<svg {size}', 1)}\n<style>{_STYLE % LIGHT}</style>\n{paper}\n{rest}\n"


def build_chart(points: Sequence[PlotPoint], what: str) -> Chart:
    speeds = [point.speed for point in points]
    room = max(1.6, (max(speeds) / min(speeds)) ** (1 / 6))
    across = AxisScale(min(speeds) / room, max(speeds) * room, LEFT, RIGHT, log=True)
    low, high = min(point.low for point in points), max(point.high for point in points)
    margin = max((high - low) / 8, 0.5)
    up = AxisScale(low - margin, high + margin, BOTTOM, TOP)
    at = [(across.position(point.speed), up.position(point.f1)) for point in points]
    own = sorted(place for point, place in zip(points, at, strict=True) if point.is_ours)
    line = [LineMark(own, "a", 2.0)] if len(own) > 1 else []
    marks = [mark for point, place in zip(points, at, strict=True) for mark in _point_marks(point, place, up)]
    title = f"F1 against speed: {what}"
    return Chart(title, (*_frame(title, across, up), *line, *marks, *_labels(points, at, up)), HEIGHT)


def _frame(title: str, across: AxisScale, up: AxisScale) -> Iterator[PlotMark]:
    yield TextMark((LEFT, 18), title, colour="ink")
    yield TextMark((LEFT, 34), "strict F1 of entities in percent, 95 % interval; ours: circles, peers: squares")
    values = choose_ticks(up.low, up.high)
    digits = max(len(f"{value:g}".partition(".")[2]) for value in values)
    for value in values:
        y = up.position(value)
        yield LineMark([(LEFT, y), (RIGHT, y)])
        yield TextMark((LEFT - 6, y + 4), f"{value:.{digits}f}", "end")
    for value in choose_log_ticks(across.low, across.high):
        x = across.position(value)
        yield LineMark([(x, TOP), (x, BOTTOM)])
        yield TextMark((x, BOTTOM + 18), f"{value:,.10g}", "middle")
    yield TextMark(((LEFT + RIGHT) / 2, HEIGHT - 12), "words a second on one core, logarithmic", "middle")


def _point_marks(point: PlotPoint, place: Point, up: AxisScale) -> Iterator[PlotMark]:
    x, y = place
    colour = "a" if point.is_ours else "b"
    tooltip = f"{point.name}: F1 {point.f1:.2f}, {point.speed:,.0f} words/s"
    yield LineMark([(x, up.position(point.low)), (x, up.position(point.high))], colour, 1.5)
    if point.is_ours:
        yield CircleMark(place, HALF, colour, tooltip=tooltip)
    else:
        yield BarMark((x - HALF, y - HALF), 2 * HALF, 2 * HALF, colour, tooltip)


def _labels(points: Sequence[PlotPoint], at: Sequence[Point], up: AxisScale) -> Iterator[PlotMark]:
    lines = [(point.name, f"{point.f1:.1f}, {point.speed:,.0f} words/s") for point in points]
    bars = [
        Box(x - 2, up.position(point.high), x + 2, up.position(point.low))
        for point, (x, _) in zip(points, at, strict=True)
    ]
    widths = [max(map(text_width, each)) for each in lines]
    bars += _along(sorted(place for point, place in zip(points, at, strict=True) if point.is_ours))
    boxes = place_labels(at, [HALF] * len(points), widths, bars, Box(LEFT, TOP, RIGHT, BOTTOM))
    for texts, place, box in zip(lines, at, boxes, strict=True):
        left = box.right < place[0]
        x, anchor = (box.right, "end") if left else (box.left, "start")
        for number, (text, colour) in enumerate(zip(texts, ("ink", "dim"), strict=True), 1):
            yield TextMark((x, box.top + number * LINE_HEIGHT - 3), text, anchor, colour)


def _along(line: Sequence[Point]) -> Iterator[Box]:
    """Cover a line with small boxes, which labels should keep off."""
    for (x, y), (to_x, to_y) in pairwise(line):
        steps = max(1, int(math.dist((x, y), (to_x, to_y)) / HALF))
        for step in range(steps):
            at_x, at_y = (a + (b - a) * step / steps for a, b in ((x, to_x), (y, to_y)))
            yield Box(at_x - HALF, at_y - HALF, at_x + HALF, at_y + HALF)
