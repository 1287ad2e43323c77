"""`alembert inspect`: look inside a tokenizer, a model, training data or runs.

Its largest command, `errors`, sorts what a fine-tuned model gets wrong. `attention`, `neighbours`, `why` and `masks`
have modules of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from alembert.cli import SET_ASIDE, VerbCommand
from alembert.cli.inspect_masks import masks
from alembert.cli.inspect_models import attention, neighbours, why
from alembert.cli.options import (
    LABELLED_HELP,
    MODEL_HELP,
    AsJson,
    LabelColumn,
    PictureFile,
    ReadTable,
    SplitPart,
    TaskName,
    TextColumn,
    assignments_option,
    check_page,
    check_picture,
    find_model,
    note_items,
    output_option,
    read_options,
    write_page,
    write_picture,
)
from alembert.corpus.document import Document
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers import ReadOptions, Remark, SetAside
from alembert.html import EntityMark, MarkState, split_runs
from alembert.infer.stream import StreamPosition, open_input_stream
from alembert.infer.task_model import TaskModel
from alembert.inspect.errors import ErrorCase, ErrorReport, errors_headline, render_errors_page
from alembert.inspect.errors import find_errors as find
from alembert.inspect.tables import MAX_WHOLE_CHARACTERS, Table, choose_excerpts, format_run
from alembert.inspect.tokens import TokenizedWord, TokenReport, TokenSummary, inspect_tokens
from alembert.settings import read_layers
from alembert.terminal import escape_controls, note, print_json, read_stdin, stdout_console
from alembert.text.abbreviations import find_abbreviations
from alembert.text.tokenizer import Tokenizer
from alembert.train.runs import (
    RUNS_HEADER,
    RunOverview,
    build_run_charts,
    list_run_rows,
    list_runs,
    list_setting_rows,
    render_runs_page,
)

_STYLES: Final[dict[MarkState, str]] = {
    "plain": "",
    "agreed": "green",
    "other": "magenta",
    "gold": "red",
    "guess": "yellow",
}
_LEGEND: Final = "[right]Type  {guessed}Type  [{both]}Type"


def errors(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=LABELLED_HELP)],
    *,
    task: TaskName = None,
    part: SplitPart = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    top: Annotated[int, typer.Option(min=0, help="Examples to show, the worst first.")] = 20,
    why: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Worst examples to explain by occlusion; 0: none. Default: as many as half the work of predicting allows.",
        ),
    ] = None,
    html: Annotated[Path | None, output_option(metavar="FILE", help="Also write an HTML page.")] = None,
    as_json: AsJson = False,
    assignments: Annotated[list[str] | None, assignments_option(ReadTable())] = None,
) -> None:
    """Sort the errors of a model by kind and by what they have in common, and show the worst examples."""
    check_page(html)
    options = read_options(read_layers(None, assignments, {}), text, label)
    opened = TaskModel.open(find_model(model), task=task)
    report = find(opened, fetch_to_temporary_folder(files), options, part=part, top=top, explain=why)
    if html is not None:
        write_page(html, render_errors_page(report))
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    note_items((), report.set_aside)
    if report.set_aside:
        raise typer.Exit(SET_ASIDE)


def _print(report: ErrorReport) -> None:
    console = stdout_console()
    for line in (errors_headline(report), *report.notes):
        console.print(escape_controls(line), soft_wrap=True)
    for table in report.tables:
        console.print(f"\n{table.title}", style="bold", soft_wrap=True)
        for line in table.lines():
            console.print(escape_controls(line), soft_wrap=True)
    if report.worst:
        console.print("\nThe worst examples", style="bold", soft_wrap=True)
    if any(case.marks for case in report.worst):
        console.print(_LEGEND, soft_wrap=True)
    for number, case in enumerate(report.worst, 1):
        _print_case(console, number, case)


def _print_case(console: Console, number: int, case: ErrorCase) -> None:
    console.print()
    console.print(escape_controls(f"{number}. {case.where or case.id}: {case.problem}"), soft_wrap=True)
    console.print(_format_marked(case.texts[0], case.marks), soft_wrap=True)
    for text in case.texts[1:]:
        console.print(_escape_lines(text[:MAX_WHOLE_CHARACTERS]), soft_wrap=True)
    if case.why is not None:
        console.print(escape_controls(case.why.summary()), soft_wrap=True)


def _format_marked(text: str, marks: tuple[EntityMark, ...]) -> Text:
    """Write a text with brackets, which a terminal shows in colour as well."""
    shown = Text()
    parts = choose_excerpts(text, marks)
    for low, high in parts:
        shown.append("… " if low else "")
        for run in split_runs(text, marks, low, high):
            shown.append(_escape_lines(format_run(run)), style=_STYLES[run.state])
        shown.append(" …" if (low, high) == parts[-1] and high < len(text) else "")
    return shown


def _escape_lines(text: str) -> str:
    """Escape what a terminal would obey, but for the ends of lines."""
    return "\n".join(map(escape_controls, text.split("\n")))


_MAX_VALUE: Final = 40
"""Letters of a cell on a terminal."""


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder with results of training anywhere below it.")
    ],
    *,
    out: PictureFile = None,
    as_json: AsJson = False,
) -> None:
    """List the training runs below a folder, with their scores, curves and differing settings."""
    check_picture(out)
    overview = list_runs(folder)
    if out is not None:
        write_picture(out, lambda: render_runs_page(overview), lambda: build_run_charts(overview))
    if as_json:
        print_json(overview.to_dict())
    else:
        _print_runs(overview)
    for reason in overview.unreadable:
        note(f"not readable: {reason}")


def _print_runs(overview: RunOverview) -> None:
    _print_table(RUNS_HEADER, list_run_rows(overview))
    for kind in overview.kinds:
        header, rows = list_setting_rows(overview, kind)
        if rows:
            print()
            _print_table(header, rows)
    finished = sum(run.finished for run in overview.runs)
    print(
        f"\n{len(overview.runs)} runs, {finished} of them finished; {overview.others} other results, {len(overview.unreadable)} folders not readable"
    )


def _print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    short = tuple(tuple(_shorten_cell(cell) for cell in row) for row in rows)
    for line in Table(name="runs", title="", header=header, rows=short).lines():
        print(escape_controls(line))


def _shorten_cell(cell: str) -> str:
    return cell if len(cell) <= _MAX_VALUE else f"{cell[: _MAX_VALUE - 1]}…"


app = typer.Typer(help="Look inside a model, a text, a tokenizer, training data or runs.", rich_markup_mode=None)
app.command("attention", cls=VerbCommand)(attention)
app.command("masks", cls=VerbCommand)(masks)
app.command("neighbours", cls=VerbCommand)(neighbours)
app.command("runs", cls=VerbCommand)(runs)
app.command("errors", cls=VerbCommand)(errors)
app.command("why", cls=VerbCommand)(why)

_COLOURS = ("cyan", "magenta", "green", "blue")
_MAX_WORD_CHARACTERS = 60
"""Characters of a word that are shown; its offsets tell the rest."""


@app.command("tokens", cls=VerbCommand)
def tokens(
    model: str = typer.Argument(help="A checkpoint folder, hub:organisation/name, a vocab.txt or a tokenizer.json."),
    text: str = typer.Argument(help="Text to tokenize; - reads it from stdin."),
    lowercase: bool | None = typer.Option(None, "--lowercase/--cased", help="Override the model's files."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of lines."),
) -> None:
    """Show the pieces of a text, with ids and character offsets."""
    tokenizer = Tokenizer.open(model, lowercase=lowercase)
    report = inspect_tokens(tokenizer, read_stdin() if text == "-" else text)
    if as_json:
        print_json(report.as_json(), indent=2)
    else:
        _print_lines(report)


def _print_lines(report: TokenReport) -> None:
    console = stdout_console()
    for word in report.words:
        console.print(_line(word), soft_wrap=True)
    console.print(_sentence(report.summary), soft_wrap=True, style="bold", markup=False)


def _line(word: TokenizedWord) -> Text:
    surface = escape_controls(_shorten(word.surface))
    # Chinese characters are two cells wide, so str.ljust would not align them.
    line = Text(f"{word.start:>6}-{word.end:<6} {surface} ")
    line.append(" " * (20 - cell_len(surface)))
    for number, piece in enumerate(word.pieces):
        colour = "red" if word.unknown else _COLOURS[number % len(_COLOURS)]
        line.append(escape_controls(piece.text), style=colour)
        line.append(f"({piece.id}, {piece.start}-{piece.end}) ", style="dim")
    mark = "unknown" if word.unknown else f"split in {len(word.pieces)}" if word.split else ""
    line.append(mark, style="red" if word.unknown else "yellow")
    line.rstrip()
    return line


def _shorten(surface: str) -> str:
    return surface if len(surface) <= _MAX_WORD_CHARACTERS else f"{surface[: _MAX_WORD_CHARACTERS - 1]}…"


def _sentence(summary: TokenSummary) -> str:
    parts = [
        f"{summary.characters} characters",
        f"{summary.words} words",
        f"{summary.pieces} pieces",
        f"{summary.pieces_per_word:.2f} pieces per word",
        f"{summary.split_words} split",
        f"{summary.unknown_words} unknown",
        f"coverage {summary.coverage:.1%} ({summary.uncovered_characters} characters in no known piece)",
    ]
    if summary.replaced_surrogates:
        parts.append(f"{summary.replaced_surrogates} unpaired surrogates read as U+FFFD")
    return ", ".join(parts)


@app.command("abbreviations", cls=VerbCommand)
def abbreviations(
    source: Annotated[
        str, typer.Argument(metavar="FILE_OR_TEXT", help="A text, documents in a file or folder, or - for stdin.")
    ],
    as_json: AsJson = False,
) -> None:
    """List the abbreviations that a text or documents define, with character offsets."""
    set_aside = 0
    for item in _read_items(source):
        if not isinstance(item, Document):
            note(item.describe())
            set_aside += isinstance(item, SetAside)
        elif as_json:
            print_json(_abbreviation_record(item))
        else:
            for line in _abbreviation_lines(item):
                print(escape_controls(line))
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def _read_items(source: str) -> Iterator[Document | SetAside | Remark]:
    if source == "-" or not os.path.exists(source):  # noqa: PTH110 (Path.exists raises for a text too long for a name)
        yield Document("text", read_stdin() if source == "-" else source)
        return
    stream = open_input_stream(list_input_files([Path(source)]), ReadOptions(), None)
    for entry in stream.read_from(StreamPosition()):
        if isinstance(entry.item, Document | SetAside | Remark):
            yield entry.item


def _abbreviation_record(document: Document) -> dict[str, Any]:
    forms = [
        {
            name: {"start": start, "end": end, "text": document.text[start:end]}
            for name, (start, end) in found._asdict().items()
        }
        for found in find_abbreviations(document.text)
    ]
    return {"id": document.id, "abbreviations": forms}


def _abbreviation_lines(document: Document) -> Iterator[str]:
    for short, long in find_abbreviations(document.text):
        forms = (f"{start}-{end}  {document.text[start:end]}" for start, end in (short, long))
        yield "  ".join((document.id, *forms))
