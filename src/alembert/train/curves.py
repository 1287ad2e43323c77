"""The curves of a run: `loss.html`, a page that needs nothing else, and `loss.png` where matplotlib is installed.

In: a run log. Out: the files. Both show the same panels: each objective's loss in training (each row of the log thin,
and smoothed) and on held-out documents, held-out accuracy or the scores of tasks, rate, gradient norm and speed. Long runs are thinned so that
the drawn lines stay the same and the page stays small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.artifact import atomic_write
from alembert.html import (
    Curve,
    Points,
    draw_curve_chart,
    format_percent,
    render_figure,
    render_legend,
    render_page,
    thin_points,
    value_range,
)
from alembert.train.runlog import RunLog, iterate_scalars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS: Final = 600
_LOWER_IS_BETTER: Final = ("mse", "mae")
"""Measures that are the better the lower they are."""
_COLOURS: Final = ("#2f6fb4", "#d9822b", "#2c8a5b", "#8a55b8", "#b5465a")

Series = Mapping[str, Points]
NumberFormat = Callable[[float], str]
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
    def clear(self) -> list[Curve]:
        """The curves that have a name in the legend."""
        return [curve for curve in self.curves if not curve.faint]


def write_curves(log: RunLog, folder: Path, title: str) -> list[Path]:
    """Draw the log into a folder; without matplotlib, `loss.png` is not among the files that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = build_panels(log)
    files = {"loss.html": render_html(drawn, title, _summary(log)).encode(), "loss.png": _png(drawn, title)}
    written = []
    for name, content in files.items():
        if content is not None:
            atomic_write(folder / name, content)
            written.append(folder / name)
    return written


def build_panels(log: RunLog) -> list[Panel]:
    """Lay out what is to be drawn; a panel without a point is left out."""
    steps, held_out = _series(log.rows("step")), _series(log.rows("held_out"))
    found = [
        *_losses(steps, held_out),
        Panel("Held-out accuracy", tuple(_accuracies(held_out)), format_percent, max),
        *_task_panels(held_out),
        Panel("Learning rate", _raw_curves(steps, "rate"), "{:.3g}".format),
        Panel("Norm of the gradient", tuple(_smoothed_curves(steps, "norm")), "{:.3g}".format),
        Panel("Tokens a second", tuple(_smoothed_curves(steps, "tokens_per_second")), "{:,.0f}".format),
    ]
    return [panel for panel in found if panel.curves]


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
    found = [name for name in held_out if name.endswith(ending)]
    for colour, name in enumerate(found):
        short = name.removeprefix("scores/").removesuffix(ending)
        yield Curve(short, thin_points(held_out[name], _MOST_POINTS), colour)


def _accuracies(held_out: Series) -> Iterator[Curve]:
    """Draw the accuracy of each objective; tasks, which are judged by their scores and have no loss, come apart."""
    objectives = {curve.name for curve in _scores(held_out, "loss")}
    return (curve for curve in _scores(held_out, "accuracy") if curve.name in objectives)


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
            for colour, name in enumerate(drawn[: len(_COLOURS)])
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
    """Say in a sentence how far the run is."""
    last: Mapping[str, Any] = {}
    for row in log.rows("step"):
        last = row
    if not last:
        return "No step has been logged yet."
    resumed = sum(row.get("what") == "resumed" for row in log.rows("event"))
    again = f", resumed {resumed} time{'s' * (resumed > 1)}" if resumed else ""
    return f"Step {last['step']:,}, {last.get('tokens') or 0:,} tokens, {(last.get('seconds') or 0) / 3600:.2f} hours{again}."


def render_html(drawn: list[Panel], title: str, summary: str) -> str:
    """Write the page."""
    body = f"<p>{escape(summary)}</p>\n{_table(drawn)}\n{render_plots(drawn)}"
    return render_page(f"Training: {title}", title, body)


def render_plots(drawn: Iterable[Panel]) -> str:
    """Draw panels beside each other, to stand in any page."""
    each = [
        f"<div>{render_figure(draw_curve_chart(panel.title, panel.curves, panel.form), f'{panel.title}, by step')}"
        f"{render_legend({curve.name: curve.colour for curve in panel.clear})}</div>\n"
        for panel in drawn
    ]
    return f'<div class="several">\n{"".join(each)}\n</div>'


def _table(drawn: list[Panel]) -> str:
    head = "".join(f"<th>{cell}</th>" for cell in ("", "first", "last", "best", "at step"))
    rows = [
        "".join(f"<td>{escape(cell)}</td>" for cell in _numbers(panel, curve))
        for panel in drawn
        for curve in panel.clear
    ]
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{lines}\n</table></div>' if rows else ""


def _numbers(panel: Panel, curve: Curve) -> Iterator[str]:
    yield f"{panel.title}, {curve.name}" if len(panel.clear) > 1 else panel.title
    yield panel.form(curve.points[0][1])
    yield panel.form(curve.points[-1][1])
    if panel.best is None:
        yield from ("", "")
    else:
        value = panel.best(y for _, y in curve.points)
        yield panel.form(value)
        yield f"{next(x for x, y in curve.points if y == value):,.0f}"


def _png(drawn: list[Panel], title: str) -> bytes | None:
    """Draw the panels two in a row; the same log gives the same bytes."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    from io import BytesIO

    rows = max(1, -(-len(drawn) // 2))
    content = BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # a user's own style must not change the picture
        picture = Figure(figsize=(12, 3.4 * rows), layout="constrained")
        FigureCanvasAgg(picture)
        for number, panel in enumerate(drawn, 1):
            _draw(picture.add_subplot(rows, 2, number), panel)
        # The name is not drawn: it may need letters that the font does not have.
        picture.savefig(content, format="png", dpi=100, metadata={"Title": title, "Software": None})
    return content.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    for curve in panel.curves:
        (line,) = axes.plot(*zip(*curve.points, strict=True), color=_COLOURS[curve.colour % len(_COLOURS)])
        line.set(linewidth=0.8 if curve.faint else 1.8, alpha=0.4 if curve.faint else 1.0)
        line.set(marker="o" if curve.dotted else "", markersize=3.5)
        # A name that begins with _ stays out of the legend.
        line.set_label("_" if curve.faint else curve.name)
    low, high = value_range(panel.curves)
    axes.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
    axes.set_title(panel.title, fontsize=11)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: panel.form(value))
    axes.grid(alpha=0.3)
    if len(panel.clear) > 1:
        axes.legend(frameon=False, fontsize=9)
