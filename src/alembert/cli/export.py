"""`alembert export`: a fine-tuned checkpoint to a small folder that runs without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alembert.api.exporting import ExportJob, check_installed, export_tasks
from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    AsJson,
    ConfigFile,
    Overwrite,
    assignments_option,
    data_option,
    files_by_name,
    find_model,
    output_option,
)
from alembert.compress import ExportSettings
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.settings import apply_layers, read_layers, split_table
from alembert.terminal import escape_controls, note, print_json

if TYPE_CHECKING:
    from alembert.compress.card import ExportReport


format_option = partial(typer.Option, rich_help_panel="Format")


@dataclass(frozen=True, kw_only=True)
class ExportRunOptions:
    """Options of `export` that do not change the result."""

    speed: bool = True
    """Measure the speed on this machine, before and after; the faster format is chosen by it."""


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A fine-tuned checkpoint folder, or hub:organisation/name.")
    ],
    *,
    calibrate: Annotated[
        list[str] | None,
        data_option(
            metavar="FILE",
            help="Text to calibrate int8 on: a file of the task, such as its training data, or .txt with one text per "
            "line; NAME=FILE for each of several tasks.",
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        data_option(
            metavar="FILE",
            help="Labelled file to measure the score loss of int8 on (default: that of --calibrate); NAME=FILE for each "
            "of several tasks.",
        ),
    ] = None,
    task: Annotated[
        str | None, data_option(metavar="NAME", help="Export one task of a model that has several.")
    ] = None,
    int8: Annotated[
        bool | None, format_option("--int8/--fp32", help="8-bit integers (default), or 32-bit floats.")
    ] = None,
    form: Annotated[
        str | None,
        format_option(
            "--format", metavar="FORMAT", help="openvino or onnx; by default the one that is faster on this machine."
        ),
    ] = None,
    out: Annotated[Path, output_option(help="Folder to write the Export to.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    assignments: Annotated[
        list[str] | None, assignments_option(ExportSettings(), read=ReadOptions(), run=ExportRunOptions())
    ] = None,
) -> None:
    """Export a fine-tuned model to a folder that runs without torch; report score, size and speed."""
    flags = {"format": form, "precision": {None: None, True: "int8", False: "fp32"}[int8]}
    run, layers = split_table(ExportRunOptions(), "run", read_layers(config, assignments, flags))
    options, layers = split_table(ReadOptions(), "read", layers)
    settings = apply_layers(ExportSettings(), layers)
    if calibrate and settings.precision == "fp32":
        raise BadSetting("--calibrate belongs to int8, and the precision is fp32. Leave one of them out.")
    check_installed(settings)
    folder = find_model(model)
    names = export_tasks(folder, task)  # a folder without the task is refused before its weights are read
    job = ExportJob(
        folder,
        settings,
        _files(names, "--calibrate", calibrate or ()),
        _files(names, "--dev", dev or ()),
        options,
        task=task,
        speed=run.speed,
        report=note,
    )
    outcome = job.run(out, overwrite=overwrite)
    if as_json:
        print_json({"out": str(out), **outcome.to_table()})
    else:
        _print(out, outcome)
    if job.set_aside:
        raise typer.Exit(SET_ASIDE)


def _files(names: Sequence[str], flag: str, words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the local files of each task."""
    return {name: fetch_to_temporary_folder(files) for name, files in files_by_name(names, flag, words).items()}


def _print(out: Path, outcome: ExportReport) -> None:
    print(escape_controls(f"{out}: runs without torch"))
    rows = list(outcome.rows())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(escape_controls(f"  {name:{width}}  {value}"))
    for sentence in outcome.notes():
        note(sentence)
