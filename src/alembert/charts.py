"""Charts as marks: the same as SVG for a page, and as PNG where matplotlib is installed.

In: names and numbers. Out: a `Chart`: lines, bars, circles and words on a canvas whose y grows downwards. Colours
are names of the page's style, which follows the reader's light or dark setting; pictures have those of a light page.
Bars and points have a `<title>`, which browsers show under the pointer; the chart has a name that screen readers speak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Protocol

from alembert.html import LIGHT, SVG_STYLE, colour_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
Points = Sequence[Point]
NumberFormat = Callable[[float], str]

WIDTH: Final = 640
_HEIGHT: Final = 260
LEFT: Final = 72
_RIGHT, _TOP, _BOTTOM = WIDTH - 12, 14, _HEIGHT - 34
_MAX_DOTS: Final = 60
_MAX_NAMES: Final = 9
"""Names below bars; of more, every second or third is written."""
_LEAST: Final = 1e-300
_FONT: Final = 12
"""Height of letters, as in the page's style."""
_PNG_SCALE: Final = 1.6
_DPI: Final = 100
_POINTS_PER_PIXEL: Final = _PNG_SCALE * 72 / _DPI


@dataclass(frozen=True)
class LineMark:
    """Straight lines through points."""

    points: Points
    colour: str = "line"
    width: float = 1.0
    opacity: float = 1.0
    tooltip: str = ""

    def svg(self) -> str:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)
        faint = f' opacity="{self.opacity:g}"' if self.opacity < 1 else ""
        look = f'fill="none" stroke="var(--{self.colour})" stroke-width="{self.width:g}" stroke-linejoin="round"{faint}'
        return f'<polyline points="{path}" {look}>{_title(self.tooltip)}</polyline>'

    def draw(self, axes: Axes) -> None:
        look: dict[str, Any] = {"linewidth": self.width * _POINTS_PER_PIXEL, "alpha": self.opacity}
        axes.plot(*zip(*self.points, strict=True), color=LIGHT[self.colour], **look, solid_capstyle="butt")


@dataclass(frozen=True)
class CircleMark:
    """A circle that lets through what is behind it, or a dot."""

    at: Point
    radius: float
    colour: str
    opacity: float = 1.0
    tooltip: str = ""

    def svg(self) -> str:
        x, y = self.at
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{self.radius:.1f}" fill="var(--{self.colour})" '
            f'fill-opacity="{self.opacity:g}">{_title(self.tooltip)}</circle>'
        )

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import Circle

        look: dict[str, Any] = {"color": LIGHT[self.colour], "alpha": self.opacity, "linewidth": 0}
        axes.add_patch(Circle(self.at, self.radius, **look, zorder=2))


@dataclass(frozen=True)
class BarMark:
    """An upright bar, given by its upper left corner."""

    at: Point
    width: float
    height: float
    colour: str
    tooltip: str = ""

    def svg(self) -> str:
        x, y = self.at
        return (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}" '
            f'fill="var(--{self.colour})">{_title(self.tooltip)}</rect>'
        )

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle(self.at, self.width, self.height, color=LIGHT[self.colour], linewidth=0, zorder=2))


@dataclass(frozen=True)
class TextMark:
    """A line of text that stands on a point, with a rim that keeps grid lines off its letters."""

    at: Point
    text: str
    anchor: str = "start"
    colour: str = "dim"

    def svg(self) -> str:
        x, y = self.at
        kind = f' class="{self.colour}"' if self.colour != "dim" else ""
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{self.anchor}"{kind}>{escape(self.text)}</text>'

    def draw(self, axes: Axes) -> None:
        from matplotlib.patheffects import withStroke

        rim = [withStroke(linewidth=3 * _POINTS_PER_PIXEL, foreground=LIGHT["paper"])]
        side = {"start": "left", "middle": "center", "end": "right"}[self.anchor]
        look: dict[str, Any] = {"color": LIGHT[self.colour], "fontsize": _FONT * _POINTS_PER_PIXEL, "zorder": 4}
        # A dollar sign would begin a formula.
        axes.text(*self.at, self.text, ha=side, va="baseline", parse_math=False, path_effects=rim, **look)


class PlotMark(Protocol):
    """Something on a canvas, which a page shows as SVG and a picture draws with matplotlib."""

    def svg(self) -> str: ...
    def draw(self, axes: Axes) -> None: ...


@dataclass(frozen=True)
class Chart:
    """Marks on a canvas of 640 pixels width."""

    title: str
    marks: tuple[PlotMark, ...]
    height: float = _HEIGHT
    top: float = 0.0
    """Where the canvas begins; below zero there is room for a heading."""

    def svg(self) -> str:
        return self._render("")

    def svg_file(self) -> bytes:
        """Return the chart as a file of its own, which follows the reader's light or dark setting."""
        return self._render(f"<style>{SVG_STYLE}</style>", ' xmlns="http://www.w3.org/2000/svg"').encode()

    def _render(self, style: str, names: str = "") -> str:
        box = f'viewBox="0 {self.top:g} {WIDTH} {self.height - self.top:g}"'
        body = "\n".join(mark.svg() for mark in self.marks)
        return f'<svg{names} {box} role="img" aria-label="{escape(self.title)}">{style}\n{body}\n</svg>'


@dataclass(frozen=True)
class Curve:
    """A named line through points, from left to right."""

    name: str
    points: Points
    colour: int = 0
    """Number of its colour."""
    faint: bool = False
    """A noisy ground for another curve: thin, and its rare peaks may leave the plot."""

    @property
    def dotted(self) -> bool:
        """Few enough measurements to mark each."""
        return not self.faint and len(self.points) <= _MAX_DOTS


def render_figure(chart: Chart, caption: str, *, whole: bool = False) -> str:
    """Return a chart with a caption; a `whole` one scrolls where there is little room, since its labels cannot grow."""
    if not whole:
        return f"<figure>{chart.svg()}<figcaption>{escape(caption)}</figcaption></figure>"
    box = f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">{chart.svg()}</div>'
    return f'<figure class="whole">{box}<figcaption>{escape(caption)}</figcaption></figure>'


def render_png(charts: Sequence[Chart], columns: int = 1, title: str | None = None) -> bytes | None:
    """Return charts of the same size as one picture, the same bytes each time; None without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    content, rows = BytesIO(), max(1, -(-len(charts) // columns))
    height = max((chart.height - chart.top for chart in charts), default=_HEIGHT)
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style must not change the picture
        picture = Figure(figsize=(columns * WIDTH * _PNG_SCALE / _DPI, rows * height * _PNG_SCALE / _DPI))
        FigureCanvasAgg(picture)
        for number, chart in enumerate(charts):
            row, column = divmod(number, columns)
            area = (column / columns, 1 - (row + 1) / rows, 1 / columns, 1 / rows)
            axes = picture.add_axes(area, xlim=(0, WIDTH), ylim=(chart.height, chart.top))
            axes.set_axis_off()
            for mark in chart.marks:
                mark.draw(axes)
        picture.savefig(content, format="png", dpi=_DPI, metadata={"Title": title, "Software": None})
    return content.getvalue()


def has_glyphs(text: str) -> bool:
    """Return whether the font of pictures has all letters of a text; pages have the fonts of their reader."""
    try:
        from matplotlib.font_manager import findfont, get_font
    except ImportError:
        return False
    glyphs = get_font(findfont("DejaVu Sans")).get_charmap()
    return all(ord(letter) in glyphs for letter in text)


def build_bar_chart(
    title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], *, counts: bool = False
) -> Chart:
    """Draw shares (0 to 1), or counts, as bars, the series side by side."""
    high = max((value for values in series.values() for value in values), default=0.0) or 1.0
    form = format_short_count if counts else format_percent
    marks = [mark for tick in choose_ticks(0.0, high, whole=counts) for mark in _grid_marks(tick / high, form(tick))]
    slot = (_RIGHT - LEFT) / max(1, len(names))
    width = slot * 0.8 / max(1, len(series))
    for number, (label, values) in enumerate(series.items()):
        for bar, (name, value) in enumerate(zip(names, values, strict=True)):
            x, y = LEFT + (bar + 0.1) * slot + number * width, _y_position(value / high)
            tooltip = f"{label}, {name}: {f'{value:,.0f}' if counts else f'{value:.2%}'}"
            marks.append(BarMark((x, y), width, _BOTTOM - y, colour_name(number), tooltip))
    every = max(1, -(-len(names) // _MAX_NAMES))
    for bar, name in list(enumerate(names))[::every]:
        # Of many ranges there is room for their beginnings.
        short = name if every == 1 else name.partition("-")[0]
        marks.append(TextMark((LEFT + (bar + 0.5) * slot, _HEIGHT - 14), short, "middle"))
    return Chart(title, tuple(marks))


def build_curve_chart(title: str, curves: Sequence[Curve], form: NumberFormat) -> Chart:
    """Draw curves over a common x from 0, such as the step; `form` writes a value of the y axis."""
    start, end = _extent([0.0, *(x for curve in curves for x, _ in curve.points)])
    low, high = value_range(curves)
    marks = [
        mark for value in choose_ticks(low, high) for mark in _grid_marks((value - low) / (high - low), form(value))
    ]
    for tick in choose_ticks(start, end, whole=True):
        share = (tick - start) / (end - start)
        # A number in the middle of the last pixels would leave the picture.
        anchor = "middle" if share < 0.95 else "end"
        marks.append(TextMark((_x_position(share), _HEIGHT - 14), f"{tick:,.0f}", anchor))
    for curve in curves:
        drawn = [
            (_x_position((x - start) / (end - start)), _y_position(min(1.0, max(0.0, (y - low) / (high - low)))))
            for x, y in curve.points
        ]
        marks += _curve_marks(curve, drawn, form)
    return Chart(title, tuple(marks))


def _curve_marks(curve: Curve, drawn: Points, form: NumberFormat) -> Iterator[PlotMark]:
    colour, (width, opacity) = colour_name(curve.colour), (1.0, 0.4) if curve.faint else (2.0, 1.0)
    if drawn:
        yield LineMark(drawn, colour, width, opacity, curve.name)
    if curve.dotted:
        for (x, y), point in zip(curve.points, drawn, strict=True):
            yield CircleMark(point, 3.0, colour, tooltip=f"{curve.name}, {x:,.0f}: {form(y)}")


def value_range(curves: Iterable[Curve]) -> tuple[float, float]:
    """Return the lowest and highest y to show; of a faint curve without its rarest peaks."""
    values = []
    for curve in curves:
        ordered = sorted(y for _, y in curve.points)
        rare = len(ordered) // 100 if curve.faint else 0
        values += ordered[rare : len(ordered) - rare]
    return _extent(values)


def _extent(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and highest value, never so near that what lies between cannot be divided."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low > _LEAST:
        return low, high
    margin = abs(low) / 2 if abs(low) > _LEAST else 1.0
    return low - margin, high + margin


def choose_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return a handful of round numbers from `low` to `high`.

    >>> choose_ticks(0.13, 1.04)
    [0.2, 0.4, 0.6, 0.8, 1.0]
    >>> choose_ticks(0, 3, whole=True)
    [0.0, 1.0, 2.0, 3.0]
    """
    scale = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(scale * n for n in (5, 2, 1) if n == 1 or (high - low) / (scale * n) >= 3)
    step = max(1.0, step) if whole else step
    # Counted, not added up: 0.1 + 0.2 is not 0.3.
    return [float(f"{n * step:.10g}") for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def thin_points(points: Points, most: int) -> list[Point]:
    """Keep about `most` points, so that the drawn line stays the same: both ends, and the extremes of each stretch.

    >>> thin_points([(0, 1.0), (1, 9.0), (2, 2.0), (3, 3.0), (4, 2.5), (5, 4.0)], 4)
    [(0, 1.0), (1, 9.0), (4, 2.5), (5, 4.0)]
    """
    if len(points) <= most:
        return list(points)
    size = -(-2 * len(points) // most)
    kept = {points[0], points[-1]}
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept |= {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
    return sorted(kept)


def format_percent(share: float) -> str:
    """Write a share for an axis or a table.

    >>> format_percent(0.1349), format_percent(0.8)
    ('13.5 %', '80 %')
    """
    return f"{100 * share:.3g} %"


def format_short_count(number: float) -> str:
    """Write a round count for an axis.

    >>> format_short_count(500), format_short_count(12_000), format_short_count(2_500_000)
    ('500', '12k', '2.5M')
    """
    size, unit = next(((size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if number >= size), (1, ""))
    return f"{number / size:g}{unit}"


def _title(tooltip: str) -> str:
    return f"<title>{escape(tooltip)}</title>" if tooltip else ""


def _grid_marks(share: float, label: str) -> Iterator[PlotMark]:
    y = _y_position(share)
    yield LineMark([(LEFT, y), (_RIGHT, y)])
    yield TextMark((LEFT - 6, y + 4), label, "end")


def _x_position(share: float) -> float:
    return LEFT + share * (_RIGHT - LEFT)


def _y_position(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - _TOP)
