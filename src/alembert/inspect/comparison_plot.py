"""The plot of a comparison: score against speed, the area of a circle being the size of the model.

In: a comparison. Out: SVG for a page, or PNG where matplotlib is installed. Both are drawn from the same marks, so what
can be read on the one can be read on the other. Where speed was not measured, multiplications take its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from alembert.inspect import drawing
from alembert.inspect.comparison import Comparison, Standing
from alembert.inspect.comparison_report import counted
from alembert.inspect.drawing import HEIGHT, Disc, Mark, Stroke, Words
from alembert.inspect.label_places import LINE, Box, place_labels, text_width
from alembert.plots import ticks

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 620, 44, 346
_LARGEST, _SMALLEST = 20.0, 5.0
"""Radius of the largest model, and the least that can be seen."""
_LONGEST: Final = 32
"""Letters of a name."""


@dataclass(frozen=True)
class Scale:
    """Where a number stands on an axis; the axis may be logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def svg(found: Comparison) -> str:
    """Draw the plot for a page."""
    return drawing.svg(_title(found), marks(found, [model.name for model in found.models]))


def png(found: Comparison) -> bytes | None:
    """Draw the plot as a picture, with numbers for names that cannot be written; none: matplotlib is not installed."""
    names = [
        model.name if drawing.can_be_written(model.name) else f"model {number}"
        for number, model in enumerate(found.models, 1)
    ]
    return drawing.png(marks(found, names))


def marks(found: Comparison, names: Sequence[str]) -> list[Mark]:
    """Lay out the plot with these names of the models."""
    across = _across([_cost(model) for model in found.models])
    up = _up(found)
    points = [(across.place(_cost(model)), up.place(model.score)) for model in found.models]
    radii = [_radius(found, model) for model in found.models]
    # Layer by layer, so that no model hides the dot of another.
    discs, bars, dots = zip(
        *(_model(found, *each, up) for each in zip(found.models, points, radii, strict=True)), strict=True
    )
    return [*_frame(found, across, up), *discs, *bars, *dots, *_labels(found, names, points, radii, up)]


def _cost(model: Standing) -> float:
    return model.size.multiplications / 1e6 if model.speed is None else model.speed.texts_per_second


def _radius(found: Comparison, model: Standing) -> float:
    largest = max(each.size.parameters for each in found.models)
    return max(_SMALLEST, _LARGEST * math.sqrt(model.size.parameters / largest))


def _title(found: Comparison) -> str:
    what = "multiplications" if found.machine is None else "speed"
    return f"{found.measure} against {what}; the area of a circle is the number of parameters"


def _across(values: Sequence[float]) -> Scale:
    """Leave room on both sides: a factor of at least 1.6, and a sixth of the range."""
    low, high = min(values), max(values)
    room = max(1.6, (high / low) ** (1 / 6))
    return Scale(low / room, high * room, _LEFT, _RIGHT, log=True)


def _up(found: Comparison) -> Scale:
    low = min(min(model.interval.low, model.score) for model in found.models)
    high = max(max(model.interval.high, model.score) for model in found.models)
    room = max((high - low) / 8, 0.005)
    return Scale(low - room, high + room, _BOTTOM, _TOP)


def _frame(found: Comparison, across: Scale, up: Scale) -> Iterator[Mark]:
    yield Words((_LEFT, 18), _title(found), colour="ink")
    yield Words((_LEFT, 34), f"{found.measure}, 95 % interval")
    values = ticks(up.low, up.high)
    digits = max(len(f"{value:g}".partition(".")[2]) for value in values)
    for value in values:
        y = up.place(value)
        yield Stroke((_LEFT, y), (_RIGHT, y))
        yield Words((_LEFT - 6, y + 4), f"{value:.{digits}f}", "end")
    for value in log_ticks(across.low, across.high):
        x = across.place(value)
        yield Stroke((x, _TOP), (x, _BOTTOM))
        yield Words((x, _BOTTOM + 18), f"{value:,.10g}", "middle")
    costs = "million multiplications of the encoder for a token"
    unit = costs if found.machine is None else "texts a second on this machine"
    yield Words(((_LEFT + _RIGHT) / 2, HEIGHT - 12), f"{unit}, logarithmic", "middle")


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis, a handful at least.

    >>> log_ticks(15, 480), log_ticks(90, 210)
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


def _model(
    found: Comparison, model: Standing, point: tuple[float, float], radius: float, up: Scale
) -> tuple[Disc, Stroke, Disc]:
    """Draw the size, the interval and the score."""
    (x, _), colour = point, _colour(found, model)
    told = f"{model.name}: {found.measure} {model.score:.4f}, {_detail(found, model)}"
    bar = Stroke((x, up.place(model.interval.low)), (x, up.place(model.interval.high)), colour, 1.5)
    return Disc(point, radius, colour, 0.3, told), bar, Disc(point, 3.0, colour, 1.0, told)


def _colour(found: Comparison, model: Standing) -> str:
    return "b" if model is found.reference and len(found.models) > 1 else "a"


def _detail(found: Comparison, model: Standing) -> str:
    """Write what stands under the name."""
    size = f"{counted(model.size.parameters)} parameters"
    speed_up = found.speed_up(model)
    return size if speed_up is None or model is found.reference else f"{size}, {speed_up:.1f}x as fast"


def _labels(
    found: Comparison,
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    radii: Sequence[float],
    up: Scale,
) -> Iterator[Mark]:
    texts = [(_short(name), _detail(found, model)) for name, model in zip(names, found.models, strict=True)]
    bars = [
        Box(x - 2, up.place(model.interval.high), x + 2, up.place(model.interval.low))
        for model, (x, _) in zip(found.models, points, strict=True)
    ]
    sizes = [max(map(text_width, each)) for each in texts]
    frame = Box(_LEFT, _TOP, _RIGHT, _BOTTOM)
    boxes = place_labels(points, radii, sizes, bars, frame)
    for text, point, radius, box in zip(texts, points, radii, boxes, strict=True):
        yield from _label(text, point, radius, box)


def _short(name: str) -> str:
    """Keep the end of a long name, which is what differs between folders."""
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"


def _label(text: tuple[str, str], point: tuple[float, float], radius: float, box: Box) -> Iterator[Mark]:
    """Write two lines that begin or end towards their point, with a line to it if it is far."""
    end = box.nearest(point)
    if math.dist(end, point) > radius + 8:
        yield Stroke(point, end, "dim", 0.7)
    left = box.right < point[0]
    x, anchor = (box.right, "end") if left else (box.left, "start")
    for number, (line, colour) in enumerate(zip(text, ("ink", "dim"), strict=True), 1):
        yield Words((x, box.top + number * LINE - 3), line, anchor, colour)
