"""`alembert inspect`: look inside a tokenizer or a model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.text import Text

    from alembert.inspect.tokens import Summary, TokenReport, Word

app = typer.Typer(help="Look inside a tokenizer or a model.", rich_markup_mode=None)

_COLOURS = ("cyan", "magenta", "green", "blue")
_WIDEST = 60
"""Characters of a word that are shown; its offsets tell the rest."""


@app.callback()
def _inspect() -> None:
    # With a callback, typer keeps the name of the command even while it is the only one.
    pass


@app.command("tokens")
def tokens(
    model: str = typer.Argument(help="A checkpoint folder, a vocab.txt or a tokenizer.json."),
    text: str = typer.Argument(help="The text to cut; - reads it from stdin."),
    lowercase: bool | None = typer.Option(
        None, "--lowercase/--cased", help="Overrule what the model's files say about case."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object instead of lines."),
) -> None:
    """Show how a text is cut into pieces, with ids and character offsets."""
    from alembert.inspect.tokens import tokens as inspect_tokens
    from alembert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.open(model, lowercase=lowercase)
    report = inspect_tokens(tokenizer, _stdin() if text == "-" else text)
    if as_json:
        _print_json(report)
    else:
        _print_lines(report)


def _stdin() -> str:
    from alembert.errors import BadInput

    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise BadInput(
            f"The text on stdin is not UTF-8 (byte 0x{data[problem.start]:02x} at {problem.start}). Convert it first."
        ) from None


def _print_json(report: TokenReport) -> None:
    import json

    # A surrogate, or a terminal without UTF-8, can only take escapes.
    readable = report.replaced_surrogates == 0 and (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    typer.echo(json.dumps(report.as_json(), ensure_ascii=not readable, indent=2))


def _print_lines(report: TokenReport) -> None:
    from alembert.cli.output import console as stdout_console

    console = stdout_console()
    for word in report.words:
        console.print(_line(word), soft_wrap=True)
    console.print(_sentence(report.summary), soft_wrap=True, style="bold", markup=False)


def _line(word: Word) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    surface = _visible(_shortened(word.surface))
    # Chinese characters are two cells wide, so str.ljust would not align them.
    line = Text(f"{word.start:>6}-{word.end:<6} {surface} ")
    line.append(" " * (20 - cell_len(surface)))
    for number, piece in enumerate(word.pieces):
        colour = "red" if word.unknown else _COLOURS[number % len(_COLOURS)]
        line.append(_visible(piece.text), style=colour)
        line.append(f"({piece.id}, {piece.start}-{piece.end}) ", style="dim")
    mark = "unknown" if word.unknown else f"split in {len(word.pieces)}" if word.split else ""
    line.append(mark, style="red" if word.unknown else "yellow")
    line.rstrip()
    return line


def _shortened(surface: str) -> str:
    return surface if len(surface) <= _WIDEST else f"{surface[: _WIDEST - 1]}…"


def _visible(text: str) -> str:
    """Escape what a terminal would obey or hide."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _sentence(summary: Summary) -> str:
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
