"""`alembert inspect`: look inside a tokenizer, a model or training data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from alembert.cli.inspect_errors import errors
from alembert.cli.inspect_masks import masks

if TYPE_CHECKING:
    from rich.text import Text

    from alembert.inspect.tokens import TokenizedWord, TokenReport, TokenSummary

app = typer.Typer(help="Look inside a tokenizer, a model or training data.", rich_markup_mode=None)
app.command("masks")(masks)
app.command("errors")(errors)

_COLOURS = ("cyan", "magenta", "green", "blue")
_WIDEST = 60
"""Characters of a word that are shown; its offsets tell the rest."""


@app.command("tokens")
def tokens(
    model: str = typer.Argument(help="A checkpoint folder, hub:organisation/name, a vocab.txt or a tokenizer.json."),
    text: str = typer.Argument(help="The text to cut; - reads it from stdin."),
    lowercase: bool | None = typer.Option(
        None, "--lowercase/--cased", help="Overrule what the model's files say about case."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of lines."),
) -> None:
    """Show how a text is cut into pieces, with ids and character offsets."""
    from alembert.inspect.tokens import inspect_tokens
    from alembert.terminal.output import print_json, read_stdin
    from alembert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(model, lowercase=lowercase)
    report = inspect_tokens(tokenizer, read_stdin() if text == "-" else text)
    if as_json:
        print_json(report.as_json(), indent=2)
    else:
        _print_lines(report)


def _print_lines(report: TokenReport) -> None:
    from alembert.terminal.output import console as stdout_console

    console = stdout_console()
    for word in report.words:
        console.print(_line(word), soft_wrap=True)
    console.print(_sentence(report.summary), soft_wrap=True, style="bold", markup=False)


def _line(word: TokenizedWord) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    from alembert.terminal.output import visible

    surface = visible(_shortened(word.surface))
    # Chinese characters are two cells wide, so str.ljust would not align them.
    line = Text(f"{word.start:>6}-{word.end:<6} {surface} ")
    line.append(" " * (20 - cell_len(surface)))
    for number, piece in enumerate(word.pieces):
        colour = "red" if word.unknown else _COLOURS[number % len(_COLOURS)]
        line.append(visible(piece.text), style=colour)
        line.append(f"({piece.id}, {piece.start}-{piece.end}) ", style="dim")
    mark = "unknown" if word.unknown else f"split in {len(word.pieces)}" if word.split else ""
    line.append(mark, style="red" if word.unknown else "yellow")
    line.rstrip()
    return line


def _shortened(surface: str) -> str:
    return surface if len(surface) <= _WIDEST else f"{surface[: _WIDEST - 1]}…"


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
