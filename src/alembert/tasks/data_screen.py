"""The data report as plain text: one screen of at most 45 lines, whatever the number of labels and problems.

What has no room is counted; `DataReport.to_table` has all labels and decisions, and more of the problems. Where the
report is all that was asked for, every decision is shown, whatever room they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final

from rich.cells import cell_len, set_cell_size

from alembert.tasks.data_report import TRUNCATION_LENGTHS, DataIssues, DataReport, SplitReport

_MAX_LINES: Final = 45
"""The most lines in all, unless every decision is to be shown."""
_MAX_LABELS, _MAX_PROBLEMS = 5, 2
"""The most lines for each of these."""
_MIN_DECISION_LINES: Final = 7
"""Lines that decisions have in any case; they take what room there is."""
_NAME_WIDTH, _MAX_COLUMN_WIDTH = 34, 22
"""Width of the names of rows and, at most, of a column of numbers."""


def format_data_report(report: DataReport, width: int = 100, *, whole: bool = False) -> list[str]:
    """Show a report in lines of at most `width` columns; `whole` shows all decisions."""
    names = [part.name for part in report.parts]
    shown = [
        *_table(f"Data for {report.task}", names, list(_statistics_rows(report.parts)), width),
        *_label_distribution(report, width),
        *_highlights(report),
        *_problems("Malformed tags", report.tag_problems),
        *_problems("Set aside", report.set_aside),
    ]
    room = max(_MIN_DECISION_LINES, _MAX_LINES - len(shown) - 2)  # one for the title, one to count what has no room
    shown += _decision_lines(report, width, None if whole else room)
    return [_clip(line, width) for line in shown]


def _length(part: SplitReport) -> str:
    found = part.lengths
    return f"{found.median:,} / {found.ninetieth:,} / {found.longest:,}"


def _with_share(count: int, whole: int) -> str:
    """Write a number with its share: 12 (1.3 %)."""
    if not count or not whole:
        return f"{count:,}"
    share = 100 * count / whole
    return f"{count:,} ({share:.1f} %)" if share >= 0.1 else f"{count:,} (<0.1 %)"


_Cell = Callable[[SplitReport], str]
_SIZES: Final[Mapping[str, _Cell]] = {
    "examples": lambda part: f"{part.examples:,}",
    "characters": lambda part: f"{part.characters:,}",
    "tokens": lambda part: f"{part.tokens:,}",
    "pieces per word": lambda part: f"{part.pieces_per_word:.2f}",
    "unknown tokens": lambda part: _with_share(part.unknown, part.tokens),
    "length: median / 90 % / longest": _length,
    "examples that need windows": lambda part: _with_share(part.windowed, part.examples),
}
_ANSWERS: Final[Mapping[str, _Cell]] = {
    "examples without answers": lambda part: _with_share(part.without_answers, part.examples),
    "answers out of reach": lambda part: _with_share(part.unreachable, part.gold),
    "texts that came before": lambda part: _with_share(part.repeated, part.examples),
    "texts with different answers": lambda part: f"{part.contradictions:,}",
}


def _statistics_rows(parts: Sequence[SplitReport]) -> Iterator[tuple[str, ...]]:
    yield from ((name, *map(cell, parts)) for name, cell in _SIZES.items())
    for place, limit in enumerate(TRUNCATION_LENGTHS):
        lost = (_with_share(part.cuts[place].tokens, part.tokens) for part in parts)
        yield (f"tokens lost if cut at {limit}", *lost)
    yield from ((name, *map(cell, parts)) for name, cell in _ANSWERS.items())


def _label_distribution(report: DataReport, width: int) -> Iterator[str]:
    names = list(dict.fromkeys(name for part in report.parts for name in part.answers))
    if not names:
        return
    rows = [(name, *(_answer_share(part, name) for part in report.parts)) for name in names[:_MAX_LABELS]]
    totals = [f"{sum(part.answers.values()):,}" for part in report.parts]
    yield from _table("Answers", totals, rows, width)
    if len(names) > _MAX_LABELS:
        yield f"  and {len(names) - _MAX_LABELS:,} more, less frequent"


def _answer_share(part: SplitReport, name: str) -> str:
    return _with_share(part.answers.get(name, 0), sum(part.answers.values()))


def _highlights(report: DataReport) -> Iterator[str]:
    if report.single:
        yield f"Once in {report.parts[0].name}: {_shortlist(report.single)}"
    for part, names in report.unseen.items():
        if names:
            yield f"In {part} and never in {report.parts[0].name}: {_shortlist(names)}"
    for one in report.shared:
        if one.examples:
            other = f", {one.contradictions:,} with other answers" if one.contradictions else ""
            yield f"Texts of {one.second} that are in {one.first} too: {one.examples:,}{other}"


def _shortlist(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return f"{len(names):,} ({shown}{', ...' if len(names) > 6 else ''})"


def _problems(title: str, findings: DataIssues) -> Iterator[str]:
    if not findings.count:
        return
    yield f"{title}: {findings.count:,}"
    for finding in findings.first[:_MAX_PROBLEMS]:
        yield f"  {finding.where}: {finding.reason}"
    if findings.count > _MAX_PROBLEMS:
        yield f"  and {findings.count - _MAX_PROBLEMS:,} more"


def _decision_lines(report: DataReport, width: int, room: int | None) -> Iterator[str]:
    """List whole sentences as long as there is room; a single long one may take all of it."""
    if report.decided:
        yield "Decided"
    shown = 0
    for place, sentence in enumerate(report.decided):
        wrapped = [f"  {line}" for line in wrap(sentence, width - 2, max_lines=room, placeholder=" ...")]
        shown += len(wrapped)
        if room is not None and shown > room:
            yield f"  and {len(report.decided) - place:,} more; without --out, all are shown"
            return
        yield from wrapped


def _table(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    """Lay out rows: names on the left, numbers in columns on the right."""
    column = min(_MAX_COLUMN_WIDTH, (width - _NAME_WIDTH) // len(header))
    for name, *cells in [(title, *header), *((f"  {row[0]}", *row[1:]) for row in rows)]:
        yield set_cell_size(name, _NAME_WIDTH) + "".join(f" {cell}".rjust(column) for cell in cells)


def _clip(line: str, width: int) -> str:
    """Keep a line to one row of the screen."""
    flat = " ".join(line.splitlines())
    return flat if cell_len(flat) <= width else set_cell_size(flat, width - 1) + "…"
