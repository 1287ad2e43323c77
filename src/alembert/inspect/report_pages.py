"""An evaluation as one HTML page that opens anywhere: inline style, inline SVG, no script, nothing fetched.

A comparison as files: JSON, one HTML page that opens anywhere, and the plot as a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from alembert.artifact import atomic_write
from alembert.artifact.json_files import to_json_bytes
from alembert.html import (
    Curve,
    choose_ticks,
    draw_curve_chart,
    format_percent,
    render_figure,
    render_legend,
)
from alembert.html import render_page as framed
from alembert.infer.evaluate import ConfusionMatrix, Evaluation
from alembert.inspect.comparison import ComparisonReport
from alembert.inspect.comparison_plot import draw_comparison_png, draw_comparison_svg
from alembert.inspect.reports import (
    comparison_sentences,
    comparison_table,
    evaluation_headline,
    evaluation_sentences,
    evaluation_tables,
)
from alembert.tasks.confidence import ConfidenceCurve


def write_comparison(found: ComparisonReport, folder: str | Path) -> list[Path]:
    """Write `comparison.json`, `.html` and, where matplotlib is installed, `.png`; say which were written."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    contents = {
        "json": to_json_bytes(found.to_table()),
        "html": render_comparison_page(found).encode(),
        "png": draw_comparison_png(found),
    }
    written = []
    for ending, content in contents.items():
        if content is not None:
            path = place / f"comparison.{ending}"
            atomic_write(path, content)
            written.append(path)
    return written


def render_comparison_page(found: ComparisonReport) -> str:
    """Return the page."""
    title = f"Comparison of {len(found.models)} models"
    about = f"<p>Task {escape(found.task)}, {escape(', '.join(found.files))}: {found.examples:,} examples.</p>"
    return framed(title, title, "\n".join([about, *render_comparison_section(found)]))


def render_comparison_section(found: ComparisonReport) -> Iterator[str]:
    """Give plot, table and sentences, to stand in any page."""
    drawn = comparison_table(found)
    yield render_figure(
        draw_comparison_svg(found), f"{found.measure} with its 95 % interval, size and speed of {_list_files(found)}"
    )
    yield f"<h2>{escape(drawn.title)}</h2>\n{drawn.html()}"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in comparison_sentences(found))


def _list_files(found: ComparisonReport) -> str:
    return ", ".join(model.name for model in found.models)


IntervalLine = tuple[str, float, float, float]
"""A name, a score, and the ends of its interval."""
_WIDTH, _LEFT, _ROW = 640, 180, 26
_MAX_LABELS: Final = 40
"""Labels up to which a confusion matrix can be read."""


def render_evaluation_page(found: Evaluation, comparison: ComparisonReport | None = None) -> str:
    """Return the page, with a comparison of the model with others if there is one."""
    title = f"Evaluation of {found.model}"
    return framed(title, title, "\n".join(_body(found, comparison)))


def _body(found: Evaluation, comparison: ComparisonReport | None) -> Iterator[str]:
    yield f"<p>Task {escape(found.task)}, {escape(', '.join(found.files))}: {found.examples:,} examples.</p>"
    yield f"<p><strong>{escape(evaluation_headline(found))}</strong></p>"
    if comparison:
        yield from render_comparison_section(comparison)
    if found.spread or not comparison:  # the plot of a comparison has all intervals, but no seeds
        yield render_figure(
            draw_interval_chart(found.scores.main, list(_lines(found))),
            f"{found.scores.main} with its 95 % interval; of seeds, the value alone",
        )
    yield from (f"<p>{escape(sentence)}</p>" for sentence in evaluation_sentences(found))
    for table in evaluation_tables(found):
        yield f"<h2>{escape(table.title)}</h2>\n{table.html()}"
    if found.confusion:
        yield from _confusion(found.confusion)
    if found.trust:
        yield from _confidence_section(found.trust)
    if found.set_aside:
        yield "<h2>Set aside</h2>"
        items = (f"{item.source}, {item.position}: {item.reason}" for item in found.set_aside)
        yield f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def _lines(found: Evaluation) -> Iterator[IntervalLine]:
    yield found.model, found.scores.value, found.interval.low, found.interval.high
    for seed in found.spread.seeds if found.spread else ():
        yield f"seed {seed.name}", seed.value, seed.value, seed.value
    if found.against:
        other = found.against
        yield other.model, other.scores.value, other.interval.low, other.interval.high


def _confidence_section(trust: ConfidenceCurve) -> Iterator[str]:
    yield "<h2>Confidence</h2>"
    ideal = Curve("as sure as right", [(0.0, 0.0), (100.0, 1.0)], colour=1, faint=True)
    points = [(100 * part.confidence, part.accuracy) for part in trust.bins]
    curves = [ideal, Curve(trust.what, points)]
    yield render_figure(
        draw_curve_chart("Reliability", curves, format_percent),
        f"Share of {trust.what} that is right, by confidence in percent",
    )
    yield render_legend({curve.name: curve.colour for curve in curves})
    kept = [(100 * point.coverage, point.accuracy) for point in trust.curve]
    yield render_figure(
        draw_curve_chart("Abstaining", [Curve(trust.what, kept)], format_percent),
        f"Share of {trust.what} that is right, by the percentage that is kept when the least sure are withheld",
    )


def _confusion(found: ConfusionMatrix) -> Iterator[str]:
    yield "<h2>Confusion</h2>\n<p>Rows are right labels, columns are guesses; the shade is the share of the row.</p>"
    if len(found.labels) > _MAX_LABELS:
        yield f"<p>{len(found.labels)} labels are too many for a table; see --json.</p>"
        return
    head = "".join(f"<th>{escape(label)}</th>" for label in ("", *found.labels))
    rows = "\n".join(
        f"<tr><th>{escape(label)}</th>{_shaded_row(counts)}</tr>"
        for label, counts in zip(found.labels, found.counts, strict=True)
    )
    yield f'<div class="wide"><table>\n<tr>{head}</tr>\n{rows}\n</table></div>'


def _shaded_row(counts: Sequence[int]) -> str:
    total = sum(counts) or 1
    cells = []
    for count in counts:
        share = round(100 * count / total)
        style = f"background:color-mix(in srgb, var(--a) {round(0.7 * share)}%, transparent)"
        cells.append(f'<td style="{style}" title="{share} %">{count:,}</td>')
    return "".join(cells)


def draw_interval_chart(title: str, lines: Sequence[IntervalLine]) -> str:
    """Draw scores one below the other, each a point on the line of its interval."""
    low, high = min(line[2] for line in lines), max(line[3] for line in lines)
    margin = max((high - low) / 10, 0.005)
    low, high = low - margin, high + margin
    height = _ROW * (len(lines) + 1) + 10
    marks = []
    for tick in choose_ticks(low, high):
        x = _x_position(tick, low, high)
        marks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{height - 26}" class="grid"/>')
        marks.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}</text>')
    for number, line in enumerate(lines):
        marks += _interval(line, _ROW * (number + 0.7), low, high)
    body = "\n".join(marks)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">\n{body}\n</svg>'


def _interval(line: IntervalLine, y: float, low: float, high: float) -> Iterator[str]:
    name, value, start, end = line
    told = f"{name}: {value:.4f}" + (f", {start:.4f} to {end:.4f}" if start < end else "")
    x, left, right = (_x_position(number, low, high) for number in (value, start, end))
    short = name if len(name) <= 24 else f"…{name[-23:]}"
    yield f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(short)}</text>'
    yield f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--a)" stroke-width="3"/>'
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="var(--a)"><title>{escape(told)}</title></circle>'


def _x_position(value: float, low: float, high: float) -> float:
    return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - 20)
