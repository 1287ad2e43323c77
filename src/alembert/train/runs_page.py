"""The page of all runs below a folder: a table of them, curves over each other, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from alembert.charts import Chart, Curve, NumberFormat, Points, build_curve_chart, render_figure
from alembert.html import COLOURS, Html, render_legend, render_list, render_page, render_table, render_tiles
from alembert.train.runs import (
    RUNS_HEADER,
    RunOverview,
    RunRecord,
    list_run_rows,
    list_setting_rows,
)

MAX_CURVES: Final = len(COLOURS)
"""Runs in one plot: as many as there are colours."""
_TEXT_COLUMNS: Final = frozenset({1, 2, 3, 4, 8, 9})

NumberedRun = tuple[int, RunRecord]


def render_runs_page(overview: RunOverview) -> str:
    title = f"Runs below {overview.folder}"
    return render_page(title, title, "\n".join(_body(overview)))


def _body(overview: RunOverview) -> Iterator[str]:
    finished = sum(run.finished for run in overview.runs)
    unfinished = len(overview.runs) - finished
    counts = {"finished": finished, "unfinished": unfinished, "other results": overview.others}
    counts["not readable"] = len(overview.unreadable)
    yield render_tiles({name: str(count) for name, count in counts.items()})
    yield "<p>Runs with the same measure stand together, the best first: the score on development data, or the loss on held-out text.</p>"
    yield render_table(RUNS_HEADER, list_run_rows(overview), _TEXT_COLUMNS)
    yield from render_run_curves(overview)
    for kind in overview.kinds:
        header, rows = list_setting_rows(overview, kind)
        if rows:
            yield f"<h2>Settings in which runs of {escape(kind)} differ</h2>"
            yield render_table(header, rows, frozenset(range(len(header))))
    if overview.unreadable:
        yield f"<h2>Not readable</h2>\n{render_list(overview.unreadable)}"


def render_run_curves(overview: RunOverview) -> Iterator[str]:
    """Yield the curves, with a legend and a sentence on those that have no colour."""
    panels = [(chart, curves, left_out) for chart, curves, left_out in _panels(overview)]
    if panels:
        yield "<h2>Curves</h2>"
    parts = []
    for chart, curves, left_out in panels:
        more = f" The best {MAX_CURVES} of {MAX_CURVES + left_out} runs are drawn." if left_out else ""
        legend = render_legend({curve.name: curve.colour for curve in curves})
        parts.append(f"<div>{render_figure(chart, f'{chart.title}, by step.{more}')}{legend}</div>")
    if parts:
        yield Html(f'<div class="several">{"".join(parts)}</div>')


def build_run_charts(overview: RunOverview) -> list[Chart]:
    """Draw the curves of each measure and of the training losses of each verb."""
    return [chart for chart, _, _ in _panels(overview)]


def _panels(overview: RunOverview) -> Iterator[tuple[Chart, list[Curve], int]]:
    runs = list(enumerate(overview.runs, 1))
    for measure in dict.fromkeys(run.measure for run in overview.runs if run.measure is not None):
        own = [(number, run) for number, run in runs if run.measure == measure]
        yield from _panel(f"{measure} on held-out data", own, [run.scores for _, run in own])
    for kind in overview.kinds:
        own = [(number, run) for number, run in runs if run.kind == kind]
        yield from _panel(f"Training loss of {kind}", own, [run.loss for _, run in own])


def _panel(
    title: str, runs: Sequence[NumberedRun], points: Sequence[Points]
) -> Iterator[tuple[Chart, list[Curve], int]]:
    """Draw the first runs that have points; without any there is no panel."""
    drawn = [(number, run, own) for (number, run), own in zip(runs, points, strict=True) if own]
    curves = [
        Curve(f"{number} {run.name}", own, colour) for colour, (number, run, own) in enumerate(drawn[:MAX_CURVES])
    ]
    if curves:
        form: NumberFormat = "{:.4g}".format
        yield build_curve_chart(title, curves, form), curves, max(0, len(drawn) - MAX_CURVES)
