"""The page of an evaluation, and a comparison as files: JSON, a page, and the plot as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.artifact.disk import to_json_bytes
from alembert.charts import (
    WIDTH,
    Chart,
    CircleMark,
    Curve,
    LineMark,
    PlotMark,
    TextMark,
    build_curve_chart,
    choose_ticks,
    format_percent,
    render_figure,
)
from alembert.html import Html, render_legend, render_list, render_page, render_table
from alembert.infer.evaluate import ConfusionMatrix, Evaluation
from alembert.inspect.comparison import ComparisonReport
from alembert.inspect.comparison_plot import build_comparison_chart, render_comparison_png
from alembert.inspect.reports import (
    comparison_sentences,
    comparison_table,
    evaluation_headline,
    evaluation_sentences,
    evaluation_tables,
)
from alembert.tasks.metrics.calibration import ConfidenceCurve


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
    return render_page(title, title, "\n".join([about, *render_comparison_section(comparison)]))


def render_comparison_section(comparison: ComparisonReport) -> Iterator[str]:
    """Yield plot, table and sentences, to stand in any page."""
    names = ", ".join(model.name for model in comparison.models)
    caption = f"{comparison.measure} with its 95 % interval, size and speed of {names}"
    yield render_figure(build_comparison_chart(comparison), caption, whole=True)
    table = comparison_table(comparison)
    yield f"<h2>{escape(table.title)}</h2>\n{table.html()}"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in comparison_sentences(comparison))


IntervalLine = tuple[str, float, float, float]
"""A name, a score, and the ends of its interval."""
_NAME_WIDTH, _ROW_HEIGHT = 180, 26
_MAX_LABELS: Final = 40
"""Labels up to which a confusion matrix can be read."""


def render_evaluation_page(evaluation: Evaluation, comparison: ComparisonReport | None = None) -> str:
    """Return the page, with a comparison of the model with others if there is one."""
    title = f"Evaluation of {evaluation.model}"
    return render_page(title, title, "\n".join(_body(evaluation, comparison)))


def _body(evaluation: Evaluation, comparison: ComparisonReport | None) -> Iterator[str]:
    files = escape(", ".join(evaluation.files))
    yield f"<p>Task {escape(evaluation.task)}, {files}: {evaluation.examples:,} examples.</p>"
    yield f"<p><strong>{escape(evaluation_headline(evaluation))}</strong></p>"
    if comparison:
        yield from render_comparison_section(comparison)
    if evaluation.spread or not comparison:  # the plot of a comparison has all intervals, but no seeds
        measure = evaluation.scores.main
        caption = f"{measure} with its 95 % interval; of seeds, the value alone"
        yield render_figure(build_interval_chart(measure, list(_interval_lines(evaluation))), caption, whole=True)
    yield from (f"<p>{escape(sentence)}</p>" for sentence in evaluation_sentences(evaluation))
    for table in evaluation_tables(evaluation):
        yield f"<h2>{escape(table.title)}</h2>\n{table.html()}"
    if evaluation.confusion:
        yield from _confusion_section(evaluation.confusion)
    if evaluation.trust:
        yield from _confidence_section(evaluation.trust)
    if evaluation.set_aside:
        items = (f"{item.source}, {item.position}: {item.reason}" for item in evaluation.set_aside)
        yield f"<h2>Set aside</h2>\n{render_list(items)}"


def _interval_lines(evaluation: Evaluation) -> Iterator[IntervalLine]:
    yield evaluation.model, evaluation.scores.value, evaluation.interval.low, evaluation.interval.high
    for seed in evaluation.spread.seeds if evaluation.spread else ():
        yield f"seed {seed.name}", seed.value, seed.value, seed.value
    if evaluation.against:
        other = evaluation.against
        yield other.model, other.scores.value, other.interval.low, other.interval.high


def _confidence_section(trust: ConfidenceCurve) -> Iterator[str]:
    yield "<h2>Confidence</h2>"
    ideal = Curve("as sure as right", [(0.0, 0.0), (100.0, 1.0)], colour=1, faint=True)
    points = [(100 * part.confidence, part.accuracy) for part in trust.bins]
    curves = [ideal, Curve(trust.what, points)]
    yield render_figure(
        build_curve_chart("Reliability", curves, format_percent),
        f"Share of {trust.what} that is right, by confidence in percent",
    )
    yield render_legend({curve.name: curve.colour for curve in curves})
    kept = [(100 * point.coverage, point.accuracy) for point in trust.curve]
    yield render_figure(
        build_curve_chart("Abstaining", [Curve(trust.what, kept)], format_percent),
        f"Share of {trust.what} that is right, by the percentage that is kept when the least sure are withheld",
    )


def _confusion_section(confusion: ConfusionMatrix) -> Iterator[str]:
    yield "<h2>Confusion</h2>\n<p>Rows are right labels, columns are guesses; the shade is the share of the row.</p>"
    if len(confusion.labels) > _MAX_LABELS:
        yield f"<p>{len(confusion.labels)} labels are too many for a table; see --json.</p>"
        return
    rows = [
        (label, *map(partial(_shaded_cell, sum(counts) or 1), counts))
        for label, counts in zip(confusion.labels, confusion.counts, strict=True)
    ]
    yield render_table(("", *confusion.labels), rows)


def _shaded_cell(total: int, count: int) -> Html:
    share = round(100 * count / total)
    # A full shade would leave too little contrast with the number.
    return Html(f'<span class="share" style="--share:{share / 2:g}%" title="{share} %">{count:,}</span>')


def build_interval_chart(title: str, lines: Sequence[IntervalLine]) -> Chart:
    """Draw scores one below the other, each a point on the line of its interval."""
    low, high = min(line[2] for line in lines), max(line[3] for line in lines)
    margin = max((high - low) / 10, 0.005)
    low, high = low - margin, high + margin
    height = _ROW_HEIGHT * (len(lines) + 1) + 10
    marks: list[PlotMark] = []
    for tick in choose_ticks(low, high):
        x = _x_position(tick, low, high)
        marks += [LineMark([(x, 6), (x, height - 26)]), TextMark((x, height - 8), f"{tick:g}", "middle")]
    for number, line in enumerate(lines):
        marks += _interval_marks(line, _ROW_HEIGHT * (number + 0.7), low, high)
    return Chart(title, tuple(marks), height)


def _interval_marks(line: IntervalLine, y: float, low: float, high: float) -> Iterator[PlotMark]:
    name, value, start, end = line
    tooltip = f"{name}: {value:.4f}" + (f", {start:.4f} to {end:.4f}" if start < end else "")
    x, left, right = (_x_position(number, low, high) for number in (value, start, end))
    yield TextMark((_NAME_WIDTH - 12, y + 4), name if len(name) <= 24 else f"…{name[-23:]}", "end")
    yield LineMark([(left, y), (right, y)], "a", 3.0)
    yield CircleMark((x, y), 5.0, "a", tooltip=tooltip)


def _x_position(value: float, low: float, high: float) -> float:
    return _NAME_WIDTH + (value - low) / (high - low) * (WIDTH - _NAME_WIDTH - 20)
