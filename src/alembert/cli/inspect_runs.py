"""`alembert inspect runs`: the training runs below a folder, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from alembert.cli.options import AsJson, PictureFile, check_picture, write_picture
from alembert.inspect.tables import Table
from alembert.terminal import escape_controls, note, print_json
from alembert.train.runs import RUNS_HEADER, RunOverview, list_run_rows, list_runs, list_setting_rows
from alembert.train.runs_page import build_run_charts, render_runs_page

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
        _print(overview)
    for reason in overview.unreadable:
        note(f"not readable: {reason}")


def _print(overview: RunOverview) -> None:
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
    short = tuple(tuple(_shorten(cell) for cell in row) for row in rows)
    for line in Table(name="runs", title="", header=header, rows=short).lines():
        print(escape_controls(line))


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _MAX_VALUE else f"{cell[: _MAX_VALUE - 1]}…"
