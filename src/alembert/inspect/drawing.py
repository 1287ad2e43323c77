"""A plot as marks, drawn twice alike: as SVG for a page, and as PNG where matplotlib is installed.

In: lines, discs and words at places of a canvas whose y grows downwards. Out: an `<svg>` element, or the bytes of a
picture. Colours are names of the page's style; the picture has those of a light page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from alembert.html import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 640, 400
_FONT: Final = 12
"""Height of letters, as in the page's style."""
_PNG_SCALE: Final = 1.6
_DPI: Final = 100
_POINTS_PER_PIXEL: Final = _PNG_SCALE * 72 / _DPI
# The first of two colours of a name is that of a light page.
_LIGHT_COLOURS: Final = dict(reversed(re.findall(r"--(\w+): (#\w+)", STYLE)))


@dataclass(frozen=True)
class LineMark:
    """A straight line."""

    start: tuple[float, float]
    end: tuple[float, float]
    colour: str = "line"
    width: float = 1.0

    def svg(self) -> str:
        (x1, y1), (x2, y2) = self.start, self.end
        return (
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="var(--{self.colour})" '
            f'stroke-width="{self.width:g}"/>'
        )

    def draw(self, axes: Axes) -> None:
        look: dict[str, Any] = {"color": _LIGHT_COLOURS[self.colour], "linewidth": self.width * _POINTS_PER_PIXEL}
        axes.plot(*zip(self.start, self.end, strict=True), **look, solid_capstyle="butt")


@dataclass(frozen=True)
class CircleMark:
    """A circle that lets through what is behind it, or a dot."""

    at: tuple[float, float]
    radius: float
    colour: str
    opacity: float
    tooltip: str = ""

    def svg(self) -> str:
        x, y = self.at
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{self.radius:.1f}" fill="var(--{self.colour})" '
            f'fill-opacity="{self.opacity:g}"><title>{escape(self.tooltip)}</title></circle>'
        )

    def draw(self, axes: Axes) -> None:
        from matplotlib.patches import Circle

        look: dict[str, Any] = {"color": _LIGHT_COLOURS[self.colour], "alpha": self.opacity, "linewidth": 0}
        axes.add_patch(Circle(self.at, self.radius, **look, zorder=2))


@dataclass(frozen=True)
class TextMark:
    """A line of text that stands on a point, with a rim that keeps grid lines off its letters."""

    at: tuple[float, float]
    text: str
    anchor: str = "start"
    colour: str = "dim"

    def svg(self) -> str:
        x, y = self.at
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{self.anchor}" style="fill:var(--{self.colour});'
            f'stroke:var(--paper);stroke-width:3px;paint-order:stroke">{escape(self.text)}</text>'
        )

    def draw(self, axes: Axes) -> None:
        from matplotlib.patheffects import withStroke

        rim = [withStroke(linewidth=3 * _POINTS_PER_PIXEL, foreground=_LIGHT_COLOURS["paper"])]
        side = {"start": "left", "middle": "center", "end": "right"}[self.anchor]
        # A dollar sign would begin a formula.
        look: dict[str, Any] = {
            "color": _LIGHT_COLOURS[self.colour],
            "fontsize": _FONT * _POINTS_PER_PIXEL,
            "zorder": 4,
        }
        axes.text(*self.at, self.text, ha=side, va="baseline", parse_math=False, path_effects=rim, **look)


PlotMark = LineMark | CircleMark | TextMark


def render_svg(title: str, marks: Iterable[PlotMark]) -> str:
    """Draw marks for a page."""
    body = "\n".join(mark.svg() for mark in marks)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def render_png(marks: Iterable[PlotMark]) -> bytes | None:
    """Draw marks as a picture, the same marks as the same bytes; none: matplotlib is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    content = BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style must not change the picture
        picture = Figure(figsize=(WIDTH * _PNG_SCALE / _DPI, HEIGHT * _PNG_SCALE / _DPI))
        FigureCanvasAgg(picture)
        axes = picture.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.set_axis_off()
        for mark in marks:
            mark.draw(axes)
        picture.savefig(content, format="png", dpi=_DPI, metadata={"Software": None})
    return content.getvalue()


def has_glyphs(text: str) -> bool:
    """Tell whether the font of pictures has all letters of a text; pages have the fonts of their reader."""
    try:
        from matplotlib.font_manager import findfont, get_font
    except ImportError:
        return False
    known = get_font(findfont("DejaVu Sans")).get_charmap()
    return all(ord(letter) in known for letter in text)
