"""The plot of a comparison: score against speed, the area of a circle being the size of the model.

In: a comparison. Out: SVG for a page, or PNG where matplotlib is installed. Both are drawn from the same marks, so what
can be read on the one can be read on the other. Where speed was not measured, multiplications take its place.

Where the labels of points in a plot stand so that none covers another: greedy, by the least cost.

In: points, the width of each label (two lines high), what should stay visible, and the frame. Out: a box for each label.
Eight points in one place can be told apart; there is no promise for dozens.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from alembert.html import choose_ticks
from alembert.inspect import drawing
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.drawing import HEIGHT, CircleMark, LineMark, PlotMark, TextMark
from alembert.inspect.reports import format_count

LINE_HEIGHT: Final = 14
"""Height of a line of text."""
_LETTER_WIDTH, _WIDE_LETTER_WIDTH = 6.8, 12.5
"""Width of a letter, on the safe side, and of a Chinese character."""
_X_OFFSETS: Final = (5, 30, 90, 180)
_MAX_Y_LINES: Final = 22
"""How far a label may be from its point: to the side, in pixels, and up or down, in lines."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """Give the area that two boxes have in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)

    def nearest(self, point: Point) -> Point:
        """Give the point of the box that is nearest to another.

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
        taken = [([frame], -1000.0), (list(placed.values()), 1000.0), (dots, 20.0), (bars, 2.0), (discs, 0.5)]
        choices = _candidate_boxes(points[number], radii[number], widths[number])
        placed[number] = min(choices, key=partial(_placement_cost, points[number], points, taken))
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
    point: Point, points: Sequence[Point], taken: Sequence[tuple[Sequence[Box], float]], box: Box
) -> float:
    hidden = sum(weight * box.shared(other) for others, weight in taken for other in others)
    away = math.dist(box.nearest(point), point)
    # A label that is nearer to another point would be read as the name of that one.
    astray = away - min(math.dist(box.nearest(other), other) for other in points)
    return hidden + away + 5 * astray


_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 620, 44, 346
_MAX_RADIUS, _MIN_RADIUS = 20.0, 5.0
"""Radius of the largest model, and the least that can be seen."""
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

    def place(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def draw_comparison_svg(found: ComparisonReport) -> str:
    """Draw the plot for a page."""
    return drawing.render_svg(_title(found), build_marks(found, [model.name for model in found.models]))


def draw_comparison_png(found: ComparisonReport) -> bytes | None:
    """Draw the plot as a picture, with numbers for names that cannot be written; none: matplotlib is not installed."""
    names = [
        model.name if drawing.has_glyphs(model.name) else f"model {number}"
        for number, model in enumerate(found.models, 1)
    ]
    return drawing.render_png(build_marks(found, names))


def build_marks(found: ComparisonReport, names: Sequence[str]) -> list[PlotMark]:
    """Lay out the plot with these names of the models."""
    across = _x_scale([_x_value(model) for model in found.models])
    up = _y_scale(found)
    points = [(across.place(_x_value(model)), up.place(model.score)) for model in found.models]
    radii = [_radius(found, model) for model in found.models]
    # Layer by layer, so that no model hides the dot of another.
    discs, bars, dots = zip(
        *(_model_marks(found, *each, up) for each in zip(found.models, points, radii, strict=True)), strict=True
    )
    return [*_frame_marks(found, across, up), *discs, *bars, *dots, *_label_marks(found, names, points, radii, up)]


def _x_value(model: ModelSummary) -> float:
    return model.size.multiplications / 1e6 if model.speed is None else model.speed.texts_per_second


def _radius(found: ComparisonReport, model: ModelSummary) -> float:
    largest = max(each.size.parameters for each in found.models)
    return max(_MIN_RADIUS, _MAX_RADIUS * math.sqrt(model.size.parameters / largest))


def _title(found: ComparisonReport) -> str:
    what = "multiplications" if found.machine is None else "speed"
    return f"{found.measure} against {what}; the area of a circle is the number of parameters"


def _x_scale(values: Sequence[float]) -> AxisScale:
    """Leave room on both sides: a factor of at least 1.6, and a sixth of the range."""
    low, high = min(values), max(values)
    room = max(1.6, (high / low) ** (1 / 6))
    return AxisScale(low / room, high * room, _LEFT, _RIGHT, log=True)


def _y_scale(found: ComparisonReport) -> AxisScale:
    low = min(min(model.interval.low, model.score) for model in found.models)
    high = max(max(model.interval.high, model.score) for model in found.models)
    room = max((high - low) / 8, 0.005)
    return AxisScale(low - room, high + room, _BOTTOM, _TOP)


def _frame_marks(found: ComparisonReport, across: AxisScale, up: AxisScale) -> Iterator[PlotMark]:
    yield TextMark((_LEFT, 18), _title(found), colour="ink")
    yield TextMark((_LEFT, 34), f"{found.measure}, 95 % interval")
    values = choose_ticks(up.low, up.high)
    digits = max(len(f"{value:g}".partition(".")[2]) for value in values)
    for value in values:
        y = up.place(value)
        yield LineMark((_LEFT, y), (_RIGHT, y))
        yield TextMark((_LEFT - 6, y + 4), f"{value:.{digits}f}", "end")
    for value in choose_log_ticks(across.low, across.high):
        x = across.place(value)
        yield LineMark((x, _TOP), (x, _BOTTOM))
        yield TextMark((x, _BOTTOM + 18), f"{value:,.10g}", "middle")
    costs = "million multiplications of the encoder for a token"
    unit = costs if found.machine is None else "texts a second on this machine"
    yield TextMark(((_LEFT + _RIGHT) / 2, HEIGHT - 12), f"{unit}, logarithmic", "middle")


def choose_log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis, a handful at least.

    >>> choose_log_ticks(15, 480), choose_log_ticks(90, 210)
    ([20, 50, 100, 200], [100, 150, 200])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        values = [float(f"{step * 10.0**decade:.10g}") for decade in decades for step in steps]
        found = [int(value) if value.is_integer() else value for value in values if low <= value <= high]
        if len(found) > 2:
            break
    return found


def _model_marks(
    found: ComparisonReport, model: ModelSummary, point: tuple[float, float], radius: float, up: AxisScale
) -> tuple[CircleMark, LineMark, CircleMark]:
    """Draw the size, the interval and the score."""
    (x, _), colour = point, _colour(found, model)
    told = f"{model.name}: {found.measure} {model.score:.4f}, {_detail(found, model)}"
    bar = LineMark((x, up.place(model.interval.low)), (x, up.place(model.interval.high)), colour, 1.5)
    return CircleMark(point, radius, colour, 0.3, told), bar, CircleMark(point, 3.0, colour, 1.0, told)


def _colour(found: ComparisonReport, model: ModelSummary) -> str:
    return "b" if model is found.reference and len(found.models) > 1 else "a"


def _detail(found: ComparisonReport, model: ModelSummary) -> str:
    """Write what stands under the name."""
    size = f"{format_count(model.size.parameters)} parameters"
    speed_up = found.speed_up(model)
    return size if speed_up is None or model is found.reference else f"{size}, {speed_up:.1f}x as fast"


def _label_marks(
    found: ComparisonReport,
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    radii: Sequence[float],
    up: AxisScale,
) -> Iterator[PlotMark]:
    texts = [(_shorten_name(name), _detail(found, model)) for name, model in zip(names, found.models, strict=True)]
    bars = [
        Box(x - 2, up.place(model.interval.high), x + 2, up.place(model.interval.low))
        for model, (x, _) in zip(found.models, points, strict=True)
    ]
    sizes = [max(map(text_width, each)) for each in texts]
    frame = Box(_LEFT, _TOP, _RIGHT, _BOTTOM)
    boxes = place_labels(points, radii, sizes, bars, frame)
    for text, point, radius, box in zip(texts, points, radii, boxes, strict=True):
        yield from _name_marks(text, point, radius, box)


def _shorten_name(name: str) -> str:
    """Keep the end of a long name, which is what differs between folders."""
    return name if len(name) <= _MAX_NAME_LETTERS else f"…{name[1 - _MAX_NAME_LETTERS :]}"


def _name_marks(text: tuple[str, str], point: tuple[float, float], radius: float, box: Box) -> Iterator[PlotMark]:
    """Write two lines that begin or end towards their point, with a line to it if it is far."""
    end = box.nearest(point)
    if math.dist(end, point) > radius + 8:
        yield LineMark(point, end, "dim", 0.7)
    left = box.right < point[0]
    x, anchor = (box.right, "end") if left else (box.left, "start")
    for number, (line, colour) in enumerate(zip(text, ("ink", "dim"), strict=True), 1):
        yield TextMark((x, box.top + number * LINE_HEIGHT - 3), line, anchor, colour)
