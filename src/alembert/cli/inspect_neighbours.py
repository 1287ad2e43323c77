"""`alembert inspect neighbours`: what is nearest to a word in a model, and what was before it was adapted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from alembert.cli.options import (
    DATA_PANEL,
    OUTPUT_PANEL,
    AsJson,
    Device,
    PictureFile,
    check_picture,
    write_picture,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.jobs import Progress
from alembert.hub import model_folder
from alembert.infer.engines import choose_device
from alembert.infer.neighbours import Neighbourhood, find_neighbours, read_sentences, read_terms
from alembert.inspect.neighbours_page import KINDS, build_map_chart, list_neighbours, render_neighbours_page
from alembert.inspect.tables import Table
from alembert.terminal import ProgressBar, escape_controls, note, print_json

_MAX_LETTERS = 60
"""Letters of a sentence on a terminal."""


def neighbours(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")],
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word, or a term of several words.")],
    *,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Another model, such as the one before it was adapted.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    lexicon: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Terms to compare, one a line or a table.", rich_help_panel=DATA_PANEL),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Documents whose sentences are compared; may be repeated.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Neighbours to list.", rich_help_panel=OUTPUT_PANEL)] = 10,
    out: PictureFile = None,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """List the nearest tokens, terms and sentences of a word, in one model or in two side by side."""
    check_picture(out)
    folders = [model_folder(each) for each in (against, model) if each is not None]
    terms = [] if lexicon is None else read_terms(lexicon)
    sentences, set_aside = read_sentences(fetch_to_temporary_folder(texts)) if texts else ([], [])
    where = choose_device(folders, device)
    found = []
    for folder in folders:
        with ProgressBar(sys.stderr) as bar:

            def show(done: int, total: int, name: str = folder.name, bar: ProgressBar = bar) -> None:
                bar.show(Progress(f"reading with {name}", done, total))

            found.append(
                find_neighbours(folder, word, terms=terms, sentences=sentences, top=top, device=where, on_progress=show)
            )
    *before, after = found
    _write(after, before[0] if before else None, out, as_json=as_json)
    for reason in set_aside:
        note(reason)


def _write(after: Neighbourhood, before: Neighbourhood | None, out: Path | None, *, as_json: bool) -> None:
    models = [after] if before is None else [before, after]
    if out is not None:
        write_picture(
            out,
            lambda: render_neighbours_page(after, before),
            lambda: [build_map_chart(each, None if each is models[0] else models[0]) for each in models[::-1]],
        )
    if as_json:
        print_json({**after.to_dict(), "against": None if before is None else before.to_dict()})
    else:
        _print(models)
    for each in models:
        for sentence in each.notes:
            note(f"{each.model}: {sentence}" if before is not None else sentence)


def _print(models: list[Neighbourhood]) -> None:
    for kind, heading in KINDS.items():
        for own, other in zip(models, models[::-1], strict=True):
            rows = list_neighbours(kind, own, None if own is other else other)
            if rows:
                cells = tuple(
                    (
                        rank,
                        _shorten(each.text),
                        f"{each.similarity:.3f}",
                        "new" if is_new and own is models[-1] else "gone" if is_new else "",
                    )
                    for rank, each, is_new in rows
                )
                table = Table(name=kind, title=heading, header=("", heading, "cosine", ""), rows=cells)
                print(f"\n{own.model}")
                for line in table.lines():
                    print(escape_controls(line))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…"
