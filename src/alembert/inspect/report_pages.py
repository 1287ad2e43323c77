"""The page of an evaluation, and a comparison as files: JSON, a page, and a plot as a picture.

The plot shows score against speed; the area of a circle is the size of the model. Where speed was not measured,
multiplications take its place. A PNG needs matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.artifact.disk import to_json_bytes
from alembert.charts import Chart, Curve, build_curve_chart, format_percent, has_glyphs, render_figure, render_png
from alembert.html import (
    PageSection,
    render_beside,
    render_columns,
    render_legend,
    render_list,
    render_page,
    render_tiles,
)
from alembert.infer.evaluate import Evaluation
from alembert.inspect.comparison import ComparisonReport, ModelSummary
from alembert.inspect.reports import (
    comparison_sentences,
    comparison_table,
    evaluation_sentences,
    evaluation_tables,
    format_count,
    format_interval,
)
from alembert.inspect.row_charts import Estimate, EstimateRow, build_estimate_chart, render_drawn_table
from alembert.inspect.scatter import ScatterPlot, ScatterPoint
from alembert.inspect.tables import Table, describe_source, render_confusion, short_name, shorten_paths
from alembert.tasks.metrics.calibration import ConfidenceCurve

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


def write_comparison(comparison: ComparisonReport, folder: str | Path) -> list[Path]:
    """Write `comparison.json`, `.html` and, where matplotlib is installed, `.png`; return the paths of what was written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "json": to_json_bytes(comparison.to_table()),
        "html": render_comparison_page(comparison).encode(),
        "png": render_comparison_png(comparison),
    }
    written = []
    for suffix, content in contents.items():
        if content is not None:
            path = folder / f"comparison.{suffix}"
            atomic_write(path, content)
            written.append(path)
    return written


def render_comparison_page(comparison: ComparisonReport) -> str:
    title = f"Comparison of {len(comparison.models)} models"
    files = escape(", ".join(comparison.files))
    about = f"<p>Task {escape(comparison.task)}, {files}: {comparison.examples:,} examples.</p>"
    return render_page(title, title, "\n".join([about, *_render_comparison(comparison)]))


def _render_comparison(comparison: ComparisonReport) -> Iterator[str]:
    names = ", ".join(model.name for model in comparison.models)
    caption = f"{comparison.measure} with its 95 % interval, size and speed of {names}"
    yield render_figure(build_comparison_chart(comparison), caption, whole=True)
    yield comparison_table(comparison).html()
    yield from (f"<p>{escape(sentence)}</p>" for sentence in comparison_sentences(comparison))


_PLAIN_MEASURES: Final = ("mse", "mae")
"""Measures that are no shares or correlations, which one axis cannot show beside the others."""


def render_evaluation_page(evaluation: Evaluation, comparison: ComparisonReport | None = None) -> str:
    """Return the page, with a comparison of the model with others if there is one."""
    title = f"Evaluation of {short_name(evaluation.model)}"
    lead = [
        f"<p>{escape(describe_source(evaluation.model, evaluation.task, evaluation.files))}</p>",
        render_tiles(
            {
                evaluation.scores.main: f"{evaluation.scores.value:.4f}",
                f"95 % interval, {evaluation.rounds:,} samples": format_interval(evaluation.interval),
                "examples": f"{evaluation.examples:,}",
            }
        ),
    ]
    return render_page(title, title, "\n".join(lead), list(_sections(evaluation, comparison)))


def _sections(evaluation: Evaluation, comparison: ComparisonReport | None) -> Iterator[PageSection]:
    if comparison:
        yield PageSection("Score, size and speed", "\n".join(_render_comparison(comparison)))
    tables = {table.name: table for table in evaluation_tables(evaluation)}
    yield PageSection("Scores", _render_scores(evaluation, tables["measures"]))
    if evaluation.against:
        names = short_name(evaluation.model), short_name(evaluation.against.model)
        yield PageSection(f"Against {names[1]}", _render_against(tables["against"], names), "Against the other")
    if len(evaluation.scores.by_label) > 1:
        yield PageSection("By label", render_drawn_table(tables["by_label"]))
    if evaluation.confusion:
        text = "<p>Rows are right labels, columns are guesses; the shade is the share of the row.</p>"
        yield PageSection("Confusion", f"{text}\n{render_confusion(evaluation.confusion)}")
    if evaluation.trust:
        yield PageSection("Confidence", _render_confidence(evaluation.trust, tables.get("abstaining")))
    sentences = [shorten_paths(line, evaluation.files) for line in evaluation_sentences(evaluation)]
    yield PageSection("What stands behind the scores", render_list(sentences), "Notes")
    if evaluation.set_aside:
        items = (f"{item.source}, {item.position}: {item.reason}" for item in evaluation.set_aside)
        yield PageSection("Set aside", render_list(items))


def _render_scores(evaluation: Evaluation, measures: Table) -> str:
    main, interval = evaluation.scores.main, evaluation.interval
    rows: list[EstimateRow] = []
    for name, value in evaluation.scores.measures.items():
        if name == main:
            rows.append((name, [Estimate(value, interval.low, interval.high)]))
        elif name not in _PLAIN_MEASURES:
            rows.append((name, [Estimate(value, value, value)]))
    seeds = evaluation.spread.seeds if evaluation.spread else ()
    rows += [(f"{main}, seed {seed.name}", [Estimate(seed.value, seed.value, seed.value)]) for seed in seeds]
    caption = f"{main} with its 95 % interval; of other measures{' and of seeds' * bool(seeds)}, the value alone"
    figure = render_figure(build_estimate_chart("Scores", [main], rows), caption)
    return render_beside(figure, measures.html())


def _render_against(table: Table, names: tuple[str, str]) -> str:
    """Draw each measure of both models, if one axis can show them."""
    rows: list[EstimateRow] = [
        (str(name), [Estimate(value, value, value) for value in (mine, theirs) if isinstance(value, float)])
        for name, mine, theirs, _ in table.rows
        if name not in _PLAIN_MEASURES
    ]
    figure = render_figure(build_estimate_chart(table.title, names, rows), "Each measure of the two models")
    sides = {
        f"{side}: {name}": number for number, (side, name) in enumerate(zip(table.header[1:3], names, strict=True))
    }
    legend = render_legend(sides)
    return render_beside(figure + legend, table.html())


def _render_confidence(trust: ConfidenceCurve, thresholds: Table | None) -> str:
    ideal = Curve("as sure as right", [(0.0, 0.0), (100.0, 1.0)], colour=1, faint=True)
    points = [(100 * part.confidence, part.accuracy) for part in trust.bins]
    curves = [ideal, Curve(trust.what, points)]
    reliability = render_figure(
        build_curve_chart("Reliability", curves, format_percent),
        f"Share of {trust.what} that is right, by confidence in percent",
    ) + render_legend({curve.name: curve.colour for curve in curves})
    kept = [(100 * point.coverage, point.accuracy) for point in trust.curve]
    abstaining = render_figure(
        build_curve_chart("Abstaining", [Curve(trust.what, kept)], format_percent),
        f"Share of {trust.what} that is right, by the percentage that is kept when the least sure are withheld",
    )
    table = f"<h3>{escape(thresholds.title)}</h3>\n{thresholds.html()}" if thresholds else ""
    return render_columns((reliability, abstaining)) + table
