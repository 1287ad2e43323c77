"""The curves of a run: `loss.html`, a page that needs nothing else, and `loss.png` where matplotlib is installed.

In: a run log. Out: the files. Both show the same panels: each objective's loss in training (each row of the log
thin, and smoothed) and on held-out documents, held-out accuracy or the scores of tasks, rate, gradient norm and speed.
Long runs are thinned so that the drawn lines stay the same and the page stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Final

from alembert.artifact import atomic_write
from alembert.charts import (
    LEFT,
    WIDTH,
    Chart,
    CircleMark,
    Curve,
    NumberFormat,
    PlotMark,
    Points,
    TextMark,
    build_curve_chart,
    format_percent,
    render_figure,
    render_png,
    thin_points,
)
from alembert.html import COLOURS, PageSection, colour_name, render_legend, render_page, render_table
from alembert.train.runlog import RunLog, iterate_scalars

_MOST_POINTS: Final = 600
_LEGEND_COLUMNS, _LEGEND_LINE = 3, 16
"""The legend of a picture: names in a line, and its height."""
_LOWER_IS_BETTER: Final = ("mse", "mae")
"""Measures that are the better the lower they are."""

Series = Mapping[str, Points]
BestOf = Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Panel:
    """One plot: curves over the step on a common scale."""

    title: str
    curves: tuple[Curve, ...]
    form: NumberFormat
    best: BestOf | None = None
    """`min` or `max`; none: there is no better or worse."""

    @property
    def named_curves(self) -> list[Curve]:
        """The curves that have a name in the legend."""
        return [curve for curve in self.curves if not curve.faint]

    def chart(self) -> Chart:
        return build_curve_chart(self.title, self.curves, self.form)


def write_curves(log: RunLog, folder: Path, title: str) -> list[Path]:
    """Draw the log into a folder; without matplotlib, `loss.png` is not among the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    panels = build_panels(log)
    page = render_curves_page(panels, title, _summary(log)).encode()
    files = {"loss.html": page, "loss.png": render_panels_png(panels, title)}
    written = []
    for name, content in files.items():
        if content is not None:
            atomic_write(folder / name, content)
            written.append(folder / name)
    return written


def build_panels(log: RunLog) -> list[Panel]:
    """Lay out what is to be drawn; a panel without a point is left out."""
    steps, held_out = _series(log.rows("step")), _series(log.rows("held_out"))
    panels = [
        *_losses(steps, held_out),
        Panel("Held-out accuracy", tuple(_objective_scores(held_out, "accuracy")), format_percent, max),
        Panel("Held-out F1", tuple(_objective_scores(held_out, "f1")), format_percent, max),
        *_task_panels(held_out),
        Panel("Learning rate", _raw_curves(steps, "rate"), "{:.3g}".format),
        Panel("Norm of the gradient", tuple(_smoothed_curves(steps, "norm")), "{:.3g}".format),
        Panel("Tokens a second", tuple(_smoothed_curves(steps, "tokens_per_second")), "{:,.0f}".format),
    ]
    return [panel for panel in panels if panel.curves]


def smooth(points: Points) -> list[tuple[float, float]]:
    """Average with weights that fall off by age, over about a fiftieth of the run; the first point is itself.

    >>> smooth([(1, 4.0), (2, 2.0)])
    [(1, 4.0), (2, 2.0)]
    """
    keep = 1 - 1 / max(1, len(points) // 50)
    total = weight = 0.0
    result = []
    for x, y in points:
        total, weight = keep * total + y, keep * weight + 1
        result.append((x, total / weight))
    return result


def _series(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Collect the points of every number, by the way to it in its row."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in iterate_scalars(row):
            series.setdefault(name, []).append((row["step"], value))
    return series


def _losses(steps: Series, held_out: Series) -> Iterator[Panel]:
    trained = [name.removeprefix("losses/") for name in steps if name.startswith("losses/")]
    # `masked_lm, entities` is a part of what `masked_lm` scores.
    scored = [curve.name.split(",")[0] for curve in _scores(held_out, "loss")]
    objectives = list(dict.fromkeys([*trained, *scored]))
    if len(trained) != 1:
        yield Panel("Training loss", tuple(_smoothed_curves(steps, "loss")), "{:.4g}".format, min)
    for objective in objectives:
        held = [c for c in _scores(held_out, "loss") if c.name.split(",")[0] == objective]
        named = [
            Curve(f"held out{curve.name.removeprefix(objective)}", curve.points, number)
            for number, curve in enumerate(held, 1)
        ]
        curves = (*_smoothed_curves(steps, f"losses/{objective}"), *named)
        yield Panel(f"Loss of {objective}", curves, "{:.4g}".format, min)


def _scores(held_out: Series, measure: str) -> Iterator[Curve]:
    """Draw one measure of everything that is scored."""
    ending = f"/{measure}"
    for colour, name in enumerate(name for name in held_out if name.endswith(ending)):
        short = name.removeprefix("scores/").removesuffix(ending)
        yield Curve(short, thin_points(held_out[name], _MOST_POINTS), colour)


def _objective_scores(held_out: Series, measure: str) -> Iterator[Curve]:
    """Draw a score of each objective; tasks, which are judged by their scores and have no loss, come apart."""
    objectives = {curve.name for curve in _scores(held_out, "loss")}
    return (curve for curve in _scores(held_out, measure) if curve.name in objectives)


def _task_panels(held_out: Series) -> Iterator[Panel]:
    """Draw the scores of each task on development data, those that are shares or correlations."""
    objectives = {curve.name for curve in _scores(held_out, "loss")}
    judged = dict.fromkeys(name.split("/")[1] for name in held_out if name.startswith("scores/"))
    for task in judged:
        inside = [
            name for name in held_out if name.startswith(f"scores/{task}/") and not name.endswith(_LOWER_IS_BETTER)
        ]
        drawn = [name for name in inside if all(-1 <= value <= 1 for _, value in held_out[name])]
        curves = tuple(
            Curve(name.rpartition("/")[2], thin_points(held_out[name], _MOST_POINTS), colour)
            for colour, name in enumerate(drawn[: len(COLOURS)])
        )
        if task not in objectives:
            yield Panel(f"Scores on {task}", curves, "{:.4g}".format, max)


def _raw_curves(steps: Series, name: str) -> tuple[Curve, ...]:
    return (Curve(name, thin_points(steps[name], _MOST_POINTS)),) if name in steps else ()


def _smoothed_curves(steps: Series, name: str) -> Iterator[Curve]:
    if name in steps:
        yield Curve("each", thin_points(steps[name], _MOST_POINTS), faint=True)
        yield Curve("training", thin_points(smooth(steps[name]), _MOST_POINTS))


def _summary(log: RunLog) -> str:
    """Return a sentence on how far the run is."""
    last: Mapping[str, Any] = {}
    for row in log.rows("step"):
        last = row
    if not last:
        return "No step has been logged yet."
    resumed = sum(row.get("what") == "resumed" for row in log.rows("event"))
    again = f", resumed {resumed} time{'s' * (resumed > 1)}" if resumed else ""
    return f"Step {last['step']:,}, {last.get('tokens') or 0:,} tokens, {(last.get('seconds') or 0) / 3600:.2f} hours{again}."


def render_curves_page(panels: Sequence[Panel], title: str, summary: str) -> str:
    sections = (
        [PageSection("Curves", render_panels(panels)), PageSection("In numbers", _table(panels))] if panels else []
    )
    return render_page(f"Training: {title}", title, f"<p>{escape(summary)}</p>", sections)


def render_panels(panels: Iterable[Panel]) -> str:
    """Return the panels beside each other, to stand in any page."""
    parts = [
        f"<div>{render_figure(panel.chart(), f'{panel.title}, by step')}"
        f"{render_legend({curve.name: curve.colour for curve in panel.named_curves})}</div>\n"
        for panel in panels
    ]
    return f'<div class="several">\n{"".join(parts)}\n</div>'


def _table(panels: Sequence[Panel]) -> str:
    rows = [tuple(_numbers(panel, curve)) for panel in panels for curve in panel.named_curves]
    return render_table(("", "first", "last", "best", "at step"), rows) if rows else ""


def _numbers(panel: Panel, curve: Curve) -> Iterator[str]:
    yield f"{panel.title}, {curve.name}" if len(panel.named_curves) > 1 else panel.title
    yield panel.form(curve.points[0][1])
    yield panel.form(curve.points[-1][1])
    if panel.best is None:
        yield from ("", "")
    else:
        value = panel.best(y for _, y in curve.points)
        yield panel.form(value)
        yield f"{next(x for x, y in curve.points if y == value):,.0f}"


def render_panels_png(panels: Sequence[Panel], title: str) -> bytes | None:
    """Draw the panels with their titles and legends, which a page writes around them."""
    names = max((len(_legend_curves(panel)) for panel in panels), default=0)
    top = -24.0 - _LEGEND_LINE * -(-names // _LEGEND_COLUMNS)
    charts = [replace(panel.chart(), marks=(*panel.chart().marks, *_heading_marks(panel)), top=top) for panel in panels]
    # The title of the run is not drawn: it may need letters that the font does not have.
    return render_png(charts, columns=2, title=title)


def _legend_curves(panel: Panel) -> list[Curve]:
    return panel.named_curves if len(panel.named_curves) > 1 else []


def _heading_marks(panel: Panel) -> Iterator[PlotMark]:
    curves = _legend_curves(panel)
    top = -4.0 - _LEGEND_LINE * -(-len(curves) // _LEGEND_COLUMNS)
    yield TextMark((LEFT, top), panel.title, colour="ink")
    for number, curve in enumerate(curves):
        row, column = divmod(number, _LEGEND_COLUMNS)
        x, y = LEFT + column * (WIDTH - LEFT) / _LEGEND_COLUMNS, top + _LEGEND_LINE * (row + 1)
        yield CircleMark((x + 4, y - 4), 4.0, colour_name(curve.colour))
        yield TextMark((x + 12, y), curve.name)
