"""The vocabulary report as one HTML page that opens anywhere: inline style, inline SVG, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from alembert.inspect.vocab_report import BARS, Report, Table
from alembert.plots import bar_chart, figure, legend, line_chart
from alembert.plots import page as framed
from alembert.text.tokenizer_report import TokenizerReport


def page(report: Report) -> str:
    """Return the page."""
    title = " and ".join(report.names)
    heading = f"How well {title} fit{'s' if len(report.names) == 1 else ''} this corpus"
    return framed(f"Vocabulary report: {title}", heading, "\n".join(_body(report)))


def _body(report: Report) -> Iterator[str]:
    tables = {table.title: table for table in report.tables()}
    plots = _plots(report)
    for title, table in tables.items():
        yield f"<h2>{escape(title)}</h2>"
        if table.note:
            yield f"<p>{escape(table.note)}</p>"
        yield from plots.get(title.split(" (")[0].split(" to ")[0], ())
        yield _table(table)


def _plots(report: Report) -> dict[str, list[str]]:
    """Return the plots of each table, by the beginning of its title."""
    words = {name: [n / fit.words for n in fit.histogram] for name, fit in _named(report)}
    plots = {
        "Pieces per word": [
            _legend(report),
            figure(bar_chart("Pieces per word", BARS, words), "Share of words by number of pieces"),
        ]
    }
    labels = list(report.fits[0].entities)
    if labels:
        plots["Pieces per entity"] = [_legend(report), *_entity_plots(report, labels)]
    points = [(float(saving.terms), saving.share) for saving in report.fits[0].savings]
    curve = line_chart("What adding terms would save", points)
    plots["What adding terms"] = [figure(curve, "Share of all pieces saved, by number of terms added")]
    return plots


def _entity_plots(report: Report, labels: list[str]) -> Iterator[str]:
    split = {
        name: [fit.entities[label].split / fit.entities[label].mentions for label in labels]
        for name, fit in _named(report)
    }
    yield figure(bar_chart("Entities split", labels, split), "Share of entities with a split word, by kind")
    yield '<div class="several">'
    for label in labels:
        shares = {
            name: [n / fit.entities[label].mentions for n in fit.entities[label].histogram]
            for name, fit in _named(report)
        }
        caption = f"{label}: share of entities by number of pieces"
        yield figure(bar_chart(caption, BARS, shares), caption)
    yield "</div>"


def _named(report: Report) -> Iterator[tuple[str, TokenizerReport]]:
    return zip(report.names, report.fits, strict=True)


def _legend(report: Report) -> str:
    return legend({name: number for number, name in enumerate(report.names)})


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    # The bars of the terminal are drawn as a plot here.
    rows = ("".join(f"<td>{escape(cell.strip('█'))}</td>" for cell in row) for row in table.rows)
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    kind = ' class="prose"' if table.prose else ""
    return f'<div class="wide"><table{kind}>\n<tr>{head}</tr>\n{lines}\n</table></div>'
