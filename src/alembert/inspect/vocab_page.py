"""The vocabulary report as one HTML page that opens anywhere: inline style, inline SVG, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from alembert.plots import bar_chart, line_chart
from alembert.inspect.vocab_report import BARS, Report, Table
from alembert.text.fit import Fit

_STYLE = """
:root { --ink: #1c2430; --dim: #5c6675; --line: #d9dee6; --paper: #fff; --a: #2f6fb4; --b: #d9822b; color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --dim: #9aa5b4; --line: #333c48; --paper: #14181e; --a: #6aa5e3; --b: #eda65a }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-size: .92rem } .wide { overflow-x: auto }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child, .prose td:last-child, .prose th:last-child { text-align: left }
th { color: var(--dim); font-weight: 600 } p, .legend { color: var(--dim) }
figure { margin: 1rem 0 } .several { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem } svg { width: 100%; max-width: 42rem; height: auto } figcaption { color: var(--dim); font-size: .92rem }
svg text { font-size: 12px; fill: var(--dim) } .several svg text { font-size: 17px } .grid { stroke: var(--line) }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem }
"""


def page(report: Report) -> str:
    """Return the page."""
    title = " and ".join(report.names)
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Vocabulary report: {escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>How well {escape(title)} fit{'s' if len(report.names) == 1 else ''} this corpus</h1>\n{body}\n</body>\n</html>\n"
    )


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
            _figure(bar_chart("Pieces per word", BARS, words), "Share of words by number of pieces"),
        ]
    }
    labels = list(report.fits[0].entities)
    if labels:
        plots["Pieces per entity"] = [_legend(report), *_entity_plots(report, labels)]
    points = [(float(saving.terms), saving.share) for saving in report.fits[0].savings]
    curve = line_chart("What adding terms would save", points)
    plots["What adding terms"] = [_figure(curve, "Share of all pieces saved, by number of terms added")]
    return plots


def _entity_plots(report: Report, labels: list[str]) -> Iterator[str]:
    split = {
        name: [fit.entities[label].split / fit.entities[label].mentions for label in labels]
        for name, fit in _named(report)
    }
    yield _figure(bar_chart("Entities split", labels, split), "Share of entities with a split word, by kind")
    yield '<div class="several">'
    for label in labels:
        shares = {
            name: [n / fit.entities[label].mentions for n in fit.entities[label].histogram]
            for name, fit in _named(report)
        }
        caption = f"{label}: share of entities by number of pieces"
        yield _figure(bar_chart(caption, BARS, shares), caption)
    yield "</div>"


def _named(report: Report) -> Iterator[tuple[str, Fit]]:
    return zip(report.names, report.fits, strict=True)


def _legend(report: Report) -> str:
    if len(report.names) == 1:
        return ""
    keys = (
        f'<i style="background:var(--{colour})"></i>{escape(name)}'
        for colour, name in zip("ab", report.names, strict=True)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def _figure(plot: str, caption: str) -> str:
    return f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    # The bars of the terminal are drawn as a plot here.
    rows = ("".join(f"<td>{escape(cell.strip('█'))}</td>" for cell in row) for row in table.rows)
    lines = "\n".join(f"<tr>{row}</tr>" for row in rows)
    kind = ' class="prose"' if table.prose else ""
    return f'<div class="wide"><table{kind}>\n<tr>{head}</tr>\n{lines}\n</table></div>'
