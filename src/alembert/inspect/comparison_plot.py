"""The plot of a comparison: score against speed; the area of a circle is the size of the model.

In: a comparison. Out: a chart, or its PNG where matplotlib is installed. Where speed was not measured, multiplications take
its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from alembert.charts import Chart, has_glyphs, render_png
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.reports import format_count
from alembert.inspect.scatter import ScatterPlot, ScatterPoint

_MAX_RADIUS, _MIN_RADIUS = 20.0, 5.0
"""Radius of the largest model, and the least that can be seen."""
_LEAST_MARGIN: Final = 0.005


def render_comparison_png(comparison: ComparisonReport) -> bytes | None:
    """Draw the plot as a picture, with numbers for names that its font cannot write; None without matplotlib."""
    names = [
        model.name if has_glyphs(model.name) else f"model {number}" for number, model in enumerate(comparison.models, 1)
    ]
    return render_png([build_comparison_chart(comparison, names)])


def build_comparison_chart(comparison: ComparisonReport, names: Sequence[str] | None = None) -> Chart:
    """Lay out the plot, with other names of the models if there are any."""
    names = names or [model.name for model in comparison.models]
    what = "multiplications" if comparison.machine is None else "speed"
    costs = "million multiplications of the encoder for a token"
    plot = ScatterPlot(
        title=f"{comparison.measure} against {what}; the area of a circle is the number of parameters",
        y_name=f"{comparison.measure}, 95 % interval",
        x_name=costs if comparison.machine is None else "texts a second on this machine",
        points=[_point(comparison, *pair) for pair in zip(comparison.models, names, strict=True)],
        least_margin=_LEAST_MARGIN,
    )
    return plot.chart()


def _point(comparison: ComparisonReport, model: ModelSummary, name: str) -> ScatterPoint:
    detail = _detail(comparison, model)
    return ScatterPoint(
        name=name,
        detail=detail,
        x=model.size.multiplications / 1e6 if model.speed is None else model.speed.texts_per_second,
        y=model.score,
        low=model.interval.low,
        high=model.interval.high,
        radius=_radius(comparison, model),
        tooltip=f"{model.name}: {comparison.measure} {model.score:.4f}, {detail}",
        colour="b" if model is comparison.reference and len(comparison.models) > 1 else "a",
    )


def _radius(comparison: ComparisonReport, model: ModelSummary) -> float:
    largest = max(other.size.parameters for other in comparison.models)
    return max(_MIN_RADIUS, _MAX_RADIUS * math.sqrt(model.size.parameters / largest))


def _detail(comparison: ComparisonReport, model: ModelSummary) -> str:
    """Write what stands under the name."""
    size = f"{format_count(model.size.parameters)} parameters"
    speed_up = comparison.speed_up(model)
    return size if speed_up is None or model is comparison.reference else f"{size}, {speed_up:.1f}x as fast"
