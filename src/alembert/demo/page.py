"""The page of the demo: the abstracts with their entities, then what came out of the chain.

In: what the steps left in their folders, and what they printed. Out: the page. What a shipped model found stands first;
the abstracts have no right answers, so the lines below entities show how sure the model is. Then come annotated text of
the chain, its models in one table and one plot, how they learnt, what was done, and where to go next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from alembert import sample
from alembert.charts import build_bar_chart, render_figure
from alembert.demo import DemoFolders, DemoStep
from alembert.demo.text_steps import entity_marks, read_annotated
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
    render_page,
    render_runs,
    render_score_legend,
    render_table,
    render_text,
    render_tiles,
    split_runs,
)
from alembert.inspect.report_pages import build_comparison_chart
from alembert.inspect.reports import comparison_sentences, model_table
from alembert.inspect.tables import Cell, Table, render_excerpts
from alembert.train.curves import Panel, build_panels, render_panels
from alembert.train.runlog import RunLog

if TYPE_CHECKING:
    from alembert.corpus.document import Document
    from alembert.demo.abstracts import AbstractsReport
    from alembert.inspect.comparison import ComparisonReport


LANGUAGES: Final = {"en": "English", "zh": "Chinese"}
SHOWN_DOCUMENTS: Final = 2
"""Annotated documents of each language."""
GUIDES: Final = {
    "docs/index.md": "all pages",
    "docs/models.md": "the models that ship with alembert",
    "docs/corpus.md": "your own files",
    "docs/pretrain.md": "adapt a model to your text",
    "docs/finetune.md": "your own labels, seven tasks",
    "docs/distill.md": "smaller models",
    "docs/export.md": "int8, without torch",
    "docs/annotate.md": "millions of documents",
}
_HIDDEN_PANELS: Final = ("Learning rate", "Norm of the gradient", "Tokens a second")
"""Panels that the page of each run has, and that say little here."""


def render_demo_page(folders: DemoFolders, steps: Sequence[DemoStep], next_commands: Sequence[str]) -> str:
    comparison = next(step.comparison for step in steps if step.comparison)
    abstracts = next((step.abstracts for step in steps if step.abstracts), None)
    lead = [f"<p>{escape(paragraph)}</p>" for paragraph in _summary(steps, abstracts)]
    chain = {
        "The chain: annotated text": _annotated_texts(folders),
        "The models of the chain": _models(comparison),
        "How they learnt": _curves(folders),
        "What was done": _steps(steps),
        "Where to go next": _next_steps(next_commands),
    }
    sections = [
        *(render_abstracts(abstracts) if abstracts else ()),
        *(PageSection(title, "\n".join(parts)) for title, parts in chain.items()),
    ]
    heading = (
        "Annotated abstracts, and a model made from raw text" if abstracts else "From raw text to an annotating model"
    )
    return render_page("alembert demo", heading, "\n".join(lead), sections)


def _summary(steps: Sequence[DemoStep], abstracts: AbstractsReport | None) -> Iterator[str]:
    minutes, seconds = divmod(round(sum(step.seconds for step in steps)), 60)
    if abstracts:
        yield (
            f"First, the model {abstracts.model} annotated {len(abstracts.documents)} abstracts. It ships with alembert, "
            "trained and ready to use."
        )
    yield (
        f"{'Then' if abstracts else 'Here,'} alembert ran its whole chain on the embedded sample, "
        f"{len(sample.load_passages())} short made-up passages. The models of the chain are tiny and have read little, so "
        "their scores are low: the chain shows how a model is made, and the steps are the same for your documents. "
        f"Everything together took {minutes}\u00a0min {seconds}\u00a0s on this machine."
    )


def _annotated_texts(folders: DemoFolders) -> Iterator[str]:
    yield (
        "<p>What the last model of the chain found in texts of the test part: pre-training has read them as plain text, "
        "but no training knew their labels. A line above: found by the model; a line below: right. Both lines: a hit.</p>"
    )
    yield render_legend({label: number for number, label in enumerate(sample.LABELS)})
    colour = colour_by_label(sample.LABELS)
    documents = sorted(read_annotated(folders.annotated), key=_language)
    for language, group in groupby(documents, key=_language):
        for document in islice(group, SHOWN_DOCUMENTS):
            yield f"<h3>{escape(document.id)}, {LANGUAGES[language]}</h3>"
            yield render_text(render_excerpts(document.text, entity_marks(document), colour), language)


def _language(document: Document) -> str:
    return document.id.split("-")[0]


def _models(comparison: ComparisonReport) -> Iterator[str]:
    caption = f"{comparison.measure} with its 95 % interval, size and speed"
    yield render_figure(build_comparison_chart(comparison), caption, whole=True)
    yield model_table(comparison).html()
    yield from (f"<p>{escape(sentence)}</p>" for sentence in comparison_sentences(comparison, brief=True))


def _curves(folders: DemoFolders) -> Iterator[str]:
    runs = {
        "Pre-training": folders.pretrained,
        "The tagger": folders.tagger,
        "The classifier": folders.classifier,
        "The student": folders.student,
    }
    for name, folder in runs.items():
        yield f"<h3>{name}</h3>\n{render_panels(_shown_panels(folder))}"


def _shown_panels(folder: Path) -> list[Panel]:
    return [panel for panel in build_panels(RunLog(folder / "run")) if panel.title not in _HIDDEN_PANELS]


def _steps(steps: Sequence[DemoStep]) -> Iterator[str]:
    yield "<p>Each command does its step again, from the folder in which the demo was started.</p>"
    for step in steps:
        yield f"<h3>{escape(step.title)} <small>({step.seconds:.0f} s)</small></h3>"
        if step.comparison is None and step.abstracts is None:  # their tables are above
            yield render_list(step.lines)
        yield _shell(step.commands)


def _shell(commands: Sequence[str]) -> str:
    lines = escape("\n".join(commands), quote=False)
    return f"<pre>{lines}</pre>" if commands else ""


def _next_steps(commands: Sequence[str]) -> Iterator[str]:
    yield _shell(commands)
    yield render_table(("page", "what it is about"), GUIDES.items(), {0, 1})


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
