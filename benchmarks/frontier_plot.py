"""The plot of `frontier.py`: F1 against words a second on one core, as SVG and, with matplotlib, as PNG."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alembert.charts import WIDTH, Chart, render_png
from alembert.html import LIGHT
from alembert.inspect.scatter import ScatterPlot, ScatterPoint

_RADIUS = 5.0
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
    drawn = {point: _scatter_point(point) for point in points}
    plot = ScatterPlot(
        title=f"F1 against speed: {what}",
        y_name="strict F1 of entities in percent, 95 % interval; ours: circles, peers: squares",
        x_name="words a second on one core",
        points=list(drawn.values()),
        least_margin=0.5,
        line=[mark for point, mark in drawn.items() if point.is_ours],
    )
    return plot.chart()


def _scatter_point(point: PlotPoint) -> ScatterPoint:
    return ScatterPoint(
        name=point.name,
        detail=f"{point.f1:.1f}, {point.speed:,.0f} words/s",
        x=point.speed,
        y=point.f1,
        low=point.low,
        high=point.high,
        radius=_RADIUS,
        tooltip=f"{point.name}: F1 {point.f1:.2f}, {point.speed:,.0f} words/s",
        colour="a" if point.is_ours else "b",
        is_square=not point.is_ours,
    )
