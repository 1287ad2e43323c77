"""The plot of a comparison: score against speed; the area of a circle is the size of the model.

In: a comparison. Out: a chart, or its PNG where matplotlib is installed. Where speed was not measured, multiplications take
its place. Labels are placed greedily, by the least cost, so that none covers another: eight points near each other
can be told apart; there is no promise for dozens.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from alembert.charts import (
    LEFT,
    Chart,
    CircleMark,
    LineMark,
    PlotMark,
    Point,
    TextMark,
    choose_ticks,
    has_glyphs,
    render_png,
)
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.reports import format_count

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

    def position(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def render_comparison_png(comparison: ComparisonReport) -> bytes | None:
    """Draw the plot as a picture, with numbers for names that its font cannot write; None without matplotlib."""
    names = [
        model.name if has_glyphs(model.name) else f"model {number}" for number, model in enumerate(comparison.models, 1)
    ]
    return render_png([build_comparison_chart(comparison, names)])


def build_comparison_chart(comparison: ComparisonReport, names: Sequence[str] | None = None) -> Chart:
    """Lay out the plot, with other names of the models if there are any."""
    names = names or [model.name for model in comparison.models]
    across = _x_scale([_x_value(model) for model in comparison.models])
    up = _y_scale(comparison)
    points = [(across.position(_x_value(model)), up.position(model.score)) for model in comparison.models]
    radii = [_radius(comparison, model) for model in comparison.models]
    # Layer by layer, so that no model hides the dot of another.
    discs, bars, dots = zip(
        *(_model_marks(comparison, *model, up) for model in zip(comparison.models, points, radii, strict=True)),
        strict=True,
    )
    labels = _label_marks(comparison, names, points, radii, up)
    return Chart(_title(comparison), (*_frame_marks(comparison, across, up), *discs, *bars, *dots, *labels), _HEIGHT)


def _x_value(model: ModelSummary) -> float:
    return model.size.multiplications / 1e6 if model.speed is None else model.speed.texts_per_second


def _radius(comparison: ComparisonReport, model: ModelSummary) -> float:
    largest = max(other.size.parameters for other in comparison.models)
    return max(_MIN_RADIUS, _MAX_RADIUS * math.sqrt(model.size.parameters / largest))


def _title(comparison: ComparisonReport) -> str:
    what = "multiplications" if comparison.machine is None else "speed"
    return f"{comparison.measure} against {what}; the area of a circle is the number of parameters"


def _x_scale(values: Sequence[float]) -> AxisScale:
    """Leave room on both sides: a factor of at least 1.6, and a sixth of the range."""
    low, high = min(values), max(values)
    room = max(1.6, (high / low) ** (1 / 6))
    return AxisScale(low / room, high * room, LEFT, _RIGHT, log=True)


def _y_scale(comparison: ComparisonReport) -> AxisScale:
    low = min(min(model.interval.low, model.score) for model in comparison.models)
    high = max(max(model.interval.high, model.score) for model in comparison.models)
    room = max((high - low) / 8, 0.005)
    return AxisScale(low - room, high + room, _BOTTOM, _TOP)


def _frame_marks(comparison: ComparisonReport, across: AxisScale, up: AxisScale) -> Iterator[PlotMark]:
    yield TextMark((LEFT, 18), _title(comparison), colour="ink")
    yield TextMark((LEFT, 34), f"{comparison.measure}, 95 % interval")
    values = choose_ticks(up.low, up.high)
    digits = max(len(f"{value:g}".partition(".")[2]) for value in values)
    for value in values:
        y = up.position(value)
        yield LineMark([(LEFT, y), (_RIGHT, y)])
        yield TextMark((LEFT - 6, y + 4), f"{value:.{digits}f}", "end")
    for value in choose_log_ticks(across.low, across.high):
        x = across.position(value)
        yield LineMark([(x, _TOP), (x, _BOTTOM)])
        yield TextMark((x, _BOTTOM + 18), f"{value:,.10g}", "middle")
    costs = "million multiplications of the encoder for a token"
    unit = costs if comparison.machine is None else "texts a second on this machine"
    yield TextMark(((LEFT + _RIGHT) / 2, _HEIGHT - 12), f"{unit}, logarithmic", "middle")


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


def _model_marks(
    comparison: ComparisonReport, model: ModelSummary, point: Point, radius: float, up: AxisScale
) -> tuple[CircleMark, LineMark, CircleMark]:
    """Draw the size, the interval and the score."""
    (x, _), colour = point, _colour(comparison, model)
    tooltip = f"{model.name}: {comparison.measure} {model.score:.4f}, {_detail(comparison, model)}"
    bar = LineMark([(x, up.position(model.interval.low)), (x, up.position(model.interval.high))], colour, 1.5)
    return CircleMark(point, radius, colour, 0.3, tooltip), bar, CircleMark(point, 3.0, colour, tooltip=tooltip)


def _colour(comparison: ComparisonReport, model: ModelSummary) -> str:
    return "b" if model is comparison.reference and len(comparison.models) > 1 else "a"


def _detail(comparison: ComparisonReport, model: ModelSummary) -> str:
    """Write what stands under the name."""
    size = f"{format_count(model.size.parameters)} parameters"
    speed_up = comparison.speed_up(model)
    return size if speed_up is None or model is comparison.reference else f"{size}, {speed_up:.1f}x as fast"


def _label_marks(
    comparison: ComparisonReport,
    names: Sequence[str],
    points: Sequence[Point],
    radii: Sequence[float],
    up: AxisScale,
) -> Iterator[PlotMark]:
    texts = [
        (_shorten_name(name), _detail(comparison, model)) for name, model in zip(names, comparison.models, strict=True)
    ]
    bars = [
        Box(x - 2, up.position(model.interval.high), x + 2, up.position(model.interval.low))
        for model, (x, _) in zip(comparison.models, points, strict=True)
    ]
    sizes = [max(map(text_width, lines)) for lines in texts]
    frame = Box(LEFT, _TOP, _RIGHT, _BOTTOM)
    boxes = place_labels(points, radii, sizes, bars, frame)
    for text, point, radius, box in zip(texts, points, radii, boxes, strict=True):
        yield from _name_marks(text, point, radius, box)


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
