"""The page of a corpus: what it holds, what was dropped, and documents with their entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from alembert.charts import build_bar_chart, render_figure
from alembert.corpus.statistics import READ_COUNT_NAMES, CorpusStatistics, Histogram, LabelStatistics
from alembert.corpus.store import CorpusDocument
from alembert.html import (
    ColourFunction,
    EntityMark,
    Html,
    PageSection,
    TextRun,
    colour_by_label,
    render_columns,
    render_details,
    render_legend,
    render_page,
    render_runs,
    render_table,
    render_text,
    render_tiles,
    split_runs,
)
from alembert.inspect.row_charts import build_stack_chart

_MAX_CHARACTERS: Final = 3000
"""Characters of a document that are shown."""
_OPEN_DOCUMENTS: Final = 2
"""Documents that the page shows at once; the others open at a click."""


def render_corpus_page(statistics: CorpusStatistics, documents: Sequence[CorpusDocument]) -> str:
    title = f"Corpus {statistics.name}"
    return render_page(title, title, _tiles(statistics), list(_sections(statistics, documents)))


def _sections(statistics: CorpusStatistics, documents: Sequence[CorpusDocument]) -> Iterator[PageSection]:
    colour = colour_by_label(dict.fromkeys(label.name for label in statistics.labels))
    yield PageSection("Lengths", render_columns(_histogram_figures(statistics)))
    if statistics.labels:
        yield PageSection("Entities", _render_entities(statistics.labels, colour))
    yield PageSection(
        "What was read, and what was dropped", render_columns(_count_tables(statistics)), "Read and dropped"
    )
    if documents:
        legend = "<p>A line below: annotated in the source. Without a line: found by a lexicon.</p>"
        texts = (
            _render_document(document, colour, is_open=number < _OPEN_DOCUMENTS)
            for number, document in enumerate(documents)
        )
        yield PageSection("Documents", "\n".join((legend, *texts)))


def _tiles(statistics: CorpusStatistics) -> str:
    counts = {name: statistics.counts[name] for name in ("documents", "sentences", "words", "characters")}
    counts["entities found"] = sum(label.count for label in statistics.labels if not label.gold)
    return render_tiles({name: f"{count:,}" for name, count in counts.items()})


def _histogram_figures(statistics: CorpusStatistics) -> Iterator[str]:
    yield _histogram_figure("Sentences per document", "documents", statistics.per_document)
    yield _histogram_figure("Characters per sentence", "sentences", statistics.characters)
    yield _histogram_figure("Words per sentence", "sentences", statistics.words)


def _histogram_figure(title: str, counted: str, histogram: Histogram) -> str:
    names, counts = zip(*histogram.bins(), strict=True)
    chart = build_bar_chart(title, names, {counted: counts}, counts=True)
    return render_figure(chart, f"{title}, mean {histogram.mean:.1f}; bars are {counted}")


def _count_tables(statistics: CorpusStatistics) -> Iterator[str]:
    yield _count_table("Read", statistics.get_counts(READ_COUNT_NAMES))
    yield _count_table("Dropped, documents", statistics.get_counts_with_prefix("dropped: "))
    yield _count_table("Set aside, by reason", statistics.get_counts_with_prefix("set aside: "))
    yield _count_table("Cleaned", statistics.get_counts_with_prefix("cleaned: "))
    yield _count_table("Remarks", statistics.get_counts_with_prefix("remark: "))
    yield _count_table("Languages, documents", statistics.languages.most_common(15))
    yield _count_table("Sources, documents", list(statistics.sources.items())[:40])


def _count_table(title: str, counts: Iterable[tuple[str, int]]) -> str:
    rows = [(name, f"{count:,}") for name, count in counts]
    return f"<h3>{title}</h3>\n{render_table((), rows, label=title)}" if rows else ""


def _render_entities(labels: Sequence[LabelStatistics], colour: ColourFunction) -> str:
    names = [f"{label.name}, gold" if label.gold else label.name for label in labels]
    counts = {
        "different names": [label.distinct for label in labels],
        "repeated": [label.count - label.distinct for label in labels],
    }
    figure = render_figure(
        build_stack_chart("Entities", names, counts), "Entities by label: different names, and their repetitions"
    )
    legend = render_legend({name: number for number, name in enumerate(counts)})
    return figure + legend + _entity_table(labels, colour)


def _entity_table(labels: Sequence[LabelStatistics], colour: ColourFunction) -> str:
    rows = [
        (
            _marked_name(label, colour),
            f"{label.count:,}",
            f"{label.distinct:,}",
            ", ".join(f"{surface} {count:,}" for surface, count in label.top),
        )
        for label in labels
    ]
    return render_table(("label", "found", "different", "most frequent"), rows, {0, 3}, "entities")


def _marked_name(label: LabelStatistics, colour: ColourFunction) -> Html:
    mark = EntityMark(0, len(label.name), label.name, "gold" if label.gold else "")
    # It does not end here, so that its label is not written behind it once more.
    return render_runs([TextRun(label.name, inside=(mark,), opens=(mark,), closes=())], colour)


def _render_document(entry: CorpusDocument, colour: ColourFunction, *, is_open: bool) -> str:
    text = entry.document.text
    marks = [
        EntityMark(entity.start, entity.end, entity.label, "gold" if entity.gold else "", " ".join(entity.concepts))
        for entity in entry.entities
    ]
    shown = render_runs(split_runs(text, marks, 0, min(len(text), _MAX_CHARACTERS)), colour)
    rest = f" … ({len(text) - _MAX_CHARACTERS:,} more characters)" if len(text) > _MAX_CHARACTERS else ""
    title = f"{entry.document.id} · {entry.source} · {entry.language} · sentences: {len(entry.sentences)}"
    return render_details(escape(title), render_text(Html(shown + rest), entry.language), is_open=is_open)
