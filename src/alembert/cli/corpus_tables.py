"""What `alembert corpus show` prints: tables that fit 80 columns, histograms as bars, documents with coloured entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from alembert.terminal.output import console as stdout_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from alembert.corpus.statistics import CorpusStatistics, Histogram
    from alembert.corpus.store import CorpusDocument

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_BAR = 40
_LONGEST_TEXT = 1500
_HELD = ("documents", "sentences", "words", "characters", "gold entities")


def print_survey(survey: CorpusStatistics, entries: Sequence[CorpusDocument]) -> None:
    """Print a survey and a sample of documents."""
    from alembert.corpus.statistics import READ_COUNT_NAMES

    console = stdout_console()
    _print_rows(console, "Read", survey.named(READ_COUNT_NAMES))
    _print_rows(console, "Dropped, documents", survey.starting("dropped: "))
    _print_rows(console, "Set aside, by reason", survey.starting("set aside: "))
    _print_rows(console, "Cleaned", survey.starting("cleaned: "))
    _print_rows(console, "Remarks", survey.starting("remark: "))
    _print_rows(console, "The corpus holds", survey.named(_HELD))
    _print_rows(console, "Languages, documents", survey.languages.most_common(12))
    _print_rows(console, "Sources, documents", list(survey.sources.items())[:40])
    _print_bars(console, "Sentences per document", survey.per_document)
    _print_bars(console, "Characters per sentence", survey.characters)
    _print_bars(console, "Words per sentence", survey.words)
    _print_labels(console, survey)
    for entry in entries:
        _print_entry(console, entry, [label.name for label in survey.labels])


def _print_rows(console: Console, title: str, rows: Iterable[tuple[str, int]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    for name, number in rows:
        table.add_row(name, f"{number:,}")
    if table.row_count:
        console.print(title, style="bold")
        console.print(table)
        console.print()


def _print_bars(console: Console, title: str, histogram: Histogram) -> None:
    bins = histogram.bins()
    highest = max([count for _, count in bins] or [0])
    if not highest:
        return
    console.print(f"{title} (mean {histogram.mean:.1f})", style="bold")
    for name, count in bins:
        console.print(f"{name:>9} {count:>11,} {'█' * round(_BAR * count / highest)}", soft_wrap=True)
    console.print()


def _print_labels(console: Console, survey: CorpusStatistics) -> None:
    from rich.table import Table

    if not survey.labels:
        return
    console.print("Entities", style="bold")
    table = Table("label", "found", "different", "most frequent", box=None, pad_edge=False, header_style="dim")
    for label in survey.labels:
        often = ", ".join(f"{surface} {times:,}" for surface, times in label.top)
        name = f"{label.name} (gold)" if label.gold else label.name
        table.add_row(name, f"{label.count:,}", f"{label.distinct:,}", often)
    console.print(table)
    console.print()


def _print_entry(console: Console, entry: CorpusDocument, labels: Sequence[str]) -> None:
    document = entry.document
    heading = f"{document.id}  {entry.source}  {entry.language}  sentences: {len(entry.sentences)}"
    console.print(heading, style="bold", soft_wrap=True)
    console.print(_coloured(entry, labels), soft_wrap=True)
    if len(document.text) > _LONGEST_TEXT:
        console.print(f"({len(document.text) - _LONGEST_TEXT:,} more characters)", style="dim")
    console.print()


def _coloured(entry: CorpusDocument, labels: Sequence[str]) -> Text:
    """Write the beginning of a text with each entity in the colour of its label."""
    from rich.text import Text

    shown = "".join(char if char.isprintable() or char == "\n" else " " for char in entry.document.text[:_LONGEST_TEXT])
    text = Text(shown)
    for mention in entry.entities:
        colour = _COLOURS[labels.index(mention.label) % len(_COLOURS)] if mention.label in labels else "white"
        text.stylize(f"underline {colour}" if mention.gold else colour, mention.start, mention.end)
    return text
