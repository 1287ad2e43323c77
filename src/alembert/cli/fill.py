"""`alembert fill`: texts with masks in, what a masked language model expects there out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import LANGUAGE_MODEL_HELP, for_each_text, refuse_files
from alembert.infer.engines import open_torch_engine
from alembert.infer.language_model import FilledMask, fill_mask
from alembert.terminal import escape_controls, print_json


def fill(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=LANGUAGE_MODEL_HELP)],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts with one or more [MASK]; one per line on stdin if none."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Candidates to show for each mask.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Show what a masked language model expects at each [MASK] of a text."""
    refuse_files(texts or [], "fill")
    engine = open_torch_engine(model)
    if for_each_text(texts or [], lambda text: _show_masks(text, fill_mask(engine, text, top), as_json)):
        raise typer.Exit(SET_ASIDE)


def _show_masks(text: str, filled: Sequence[FilledMask], as_json: bool) -> None:
    if as_json:
        print_json({"text": text, "masks": [asdict(mask) for mask in filled]})
        return
    print(escape_controls(text))
    for mask in filled:
        print(f"  characters {mask.start}-{mask.end}")
        for candidate in mask.candidates:
            print(f"    {candidate.score:7.2%}  {escape_controls(candidate.token)}", flush=True)
