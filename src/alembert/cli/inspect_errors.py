"""`alembert inspect errors`: what kinds of errors a fine-tuned model makes, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.models import MODEL, find_model
from alembert.cli.options import LABELLED, Delimiter, LabelColumn, Types, one_label

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from alembert.inspect.errors import ErrorCase, ErrorReport
    from alembert.inspect.marked import EntityMark, MarkState

_STYLES: Final[dict[MarkState, str]] = {
    "plain": "",
    "agreed": "green",
    "other": "magenta",
    "gold": "red",
    "guess": "yellow",
}
_LEGEND: Final = "[right]Type  {guessed}Type  [{both]}Type"


def errors(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL)],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=LABELLED)],
    *,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Which task of a model that has several.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Examples to show, the worst first.")] = 20,
    part: Annotated[
        str | None, typer.Option(help="Only this part of a file that finetune split: train, dev or test.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Column with the text; twice for pairs.")] = None,
    label: LabelColumn = None,
    delimiter: Delimiter = None,
    types: Types = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of all files, if it is not to be recognised.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Sort the errors of a model by their kind and by what they have in common, and show the worst examples."""
    from alembert.cli.pages import check_page, write_page
    from alembert.corpus.fetch import fetch_to_temporary_folder
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.task_model import TaskModel
    from alembert.inspect.errors import find_errors as find
    from alembert.inspect.errors import render_errors_page
    from alembert.terminal.output import print_json

    check_page(html)
    options = ReadOptions(
        text=tuple(text or ()),
        label=one_label(label),
        delimiter=delimiter,
        encoding=encoding,
        types=tuple(types or ()),
    )
    opened = TaskModel.open(find_model(model), task=task)
    atlas = find(opened, fetch_to_temporary_folder(files), options, part=part, top=top)
    if html is not None:
        write_page(html, render_errors_page(atlas))
    if as_json:
        print_json(atlas.as_json())
    else:
        _print(atlas)
    if atlas.set_aside:
        _name_set_aside(atlas)
        raise typer.Exit(SET_ASIDE)


def _name_set_aside(atlas: ErrorReport) -> None:
    from alembert.terminal.output import note

    for item in atlas.set_aside:
        note(item.in_words())


def _print(atlas: ErrorReport) -> None:
    from alembert.inspect.errors import errors_headline
    from alembert.terminal.output import console as stdout_console
    from alembert.terminal.output import visible

    console = stdout_console()
    for line in (errors_headline(atlas), *atlas.notes):
        console.print(visible(line), soft_wrap=True)
    for table in atlas.tables:
        console.print(f"\n{table.title}", style="bold", soft_wrap=True)
        for line in table.lines():
            console.print(visible(line), soft_wrap=True)
    if atlas.worst:
        console.print("\nThe worst examples", style="bold", soft_wrap=True)
    if any(case.marks for case in atlas.worst):
        console.print(_LEGEND, soft_wrap=True)
    for number, case in enumerate(atlas.worst, 1):
        _print_case(console, number, case)


def _print_case(console: Console, number: int, case: ErrorCase) -> None:
    from alembert.inspect.marked import MAX_WHOLE_CHARACTERS
    from alembert.terminal.output import visible

    console.print()
    console.print(visible(f"{number}. {case.where or case.id}: {case.told}"), soft_wrap=True)
    console.print(_marked(case.texts[0], case.marks), soft_wrap=True)
    for text in case.texts[1:]:
        console.print(_lines(text[:MAX_WHOLE_CHARACTERS]), soft_wrap=True)


def _marked(text: str, marks: tuple[EntityMark, ...]) -> Text:
    """Write a text with brackets, which a terminal shows in colour as well."""
    from rich.text import Text

    from alembert.inspect.marked import choose_excerpts, format_run, split_runs

    shown = Text()
    parts = choose_excerpts(text, marks)
    for low, high in parts:
        shown.append("… " if low else "")
        for run in split_runs(text, marks, low, high):
            shown.append(_lines(format_run(run)), style=_STYLES[run.state])
        shown.append(" …" if (low, high) == parts[-1] and high < len(text) else "")
    return shown


def _lines(text: str) -> str:
    """Escape what a terminal would obey, but for the ends of lines."""
    from alembert.terminal.output import visible

    return "\n".join(map(visible, text.split("\n")))
