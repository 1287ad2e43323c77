"""The first part of the demo's page: the abstracts with their entities, and what was found in numbers.

In: the report of the first step. Out: HTML. The abstracts have no right answers, so the lines below entities show how sure
the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Final

from alembert.charts import build_bar_chart, render_figure
from alembert.html import (
    LIKELY,
    SURE,
    ColourFunction,
    EntityMark,
    PageSection,
    ScoreRange,
    colour_by_label,
    name_score_range,
    render_columns,
    render_details,
    render_legend,
    render_list,
    render_runs,
    render_score_legend,
    render_text,
    render_tiles,
    split_runs,
)
from alembert.inspect.tables import Cell, Table

if TYPE_CHECKING:
    from alembert.corpus.document import Document
    from alembert.demo.abstracts import AbstractsReport

OPEN_ABSTRACTS: Final = 3
"""Abstracts that the page shows at once; the others open at a click."""
_TOP: Final = 12
"""Names of a type in the list."""
_RANGES: Final[Mapping[ScoreRange, str]] = {
    "unsure": f"below {LIKELY:g}",
    "likely": f"{LIKELY:g} to {SURE:g}",
    "sure": f"{SURE:g} and above",
}


def render_abstracts(report: AbstractsReport) -> Iterator[PageSection]:
    """Yield the abstracts, then the counts."""
    title = f"What the model {report.model} finds in abstracts"
    yield PageSection(title, "\n".join(_annotated_abstracts(report)), "Abstracts")
    yield PageSection("What it found, in numbers", "\n".join(_numbers(report)), "In numbers")


def _annotated_abstracts(report: AbstractsReport) -> Iterator[str]:
    yield (
        "<p>The studies are fictional and were written for this project, and training has not seen them. Each entity has its "
        "type behind it. The line below says how sure the model is; the score, from 0 to 1, is under the pointer. Nobody has "
        f"annotated these texts: how often the model is right is on its card, <code>alembert models {escape(report.model)}"
        "</code>.</p>"
    )
    yield render_legend({label: number for number, label in enumerate(report.labels)})
    yield render_score_legend()
    colour = colour_by_label(report.labels)
    for number, document in enumerate(report.documents):
        yield _render_abstract(document, colour, is_open=number < OPEN_ABSTRACTS)


def _render_abstract(document: Document, colour: ColourFunction, *, is_open: bool) -> str:
    title_end = next((section.end for section in document.sections if section.kind == "title"), 0)
    marks = [
        EntityMark(start, end, entity.label, score=entity.score)
        for entity in document.entities
        for start, end in entity.spans
    ]
    body_start = title_end + len(document.text[title_end:]) - len(document.text[title_end:].lstrip())
    title = render_runs(split_runs(document.text, marks, 0, title_end), colour) if title_end else escape(document.id)
    body = render_runs(split_runs(document.text, marks, body_start), colour)
    return render_details(title, render_text(body, "en"), is_open=is_open)


def _numbers(report: AbstractsReport) -> Iterator[str]:
    yield render_tiles(
        {
            "abstracts": f"{len(report.documents):,}",
            "words": f"{report.words:,}",
            "entities": f"{len(report.entities()):,}",
            "words per second, here": f"{report.words_per_second:,.0f}",
        }
    )
    yield render_columns((_mentions_figure(report), _scores_figure(report)))
    yield _types_table(report).html()
    yield render_list(_top_names(report))


def _mentions_figure(report: AbstractsReport) -> str:
    names = {label: report.count_names(label) for label in report.labels}
    bars = {label: (counts.total(), len(counts)) for label, counts in names.items()}
    chart = build_bar_chart("Entities by type", ("mentions", "different names"), bars, counts=True)
    return render_figure(chart, "Entities by type, in the colours of the legend above")


def _scores_figure(report: AbstractsReport) -> str:
    bars = {}
    for label in report.labels:
        ranges = [name_score_range(entity.score) for entity in report.entities(label)]
        bars[label] = [ranges.count(name) for name in _RANGES]
    chart = build_bar_chart("Entities by score", tuple(_RANGES.values()), bars, counts=True)
    return render_figure(chart, "Mentions by score")


def _types_table(report: AbstractsReport) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for label in report.labels:
        names = report.count_names(label)
        scores = [entity.score for entity in report.entities(label) if entity.score is not None]
        rows.append((label, names.total(), len(names), fmean(scores) if scores else None))
    header = ("type", "mentions", "different names", "mean score")
    return Table(name="types", title="Entities by type", header=header, rows=tuple(rows))


def _top_names(report: AbstractsReport) -> Iterator[str]:
    for label in report.labels:
        top = report.count_names(label).most_common(_TOP)
        if top:
            yield f"{label}, most frequent: {', '.join(f'{name} {count}' for name, count in top)}"
