"""`alembert export`: a fine-tuned checkpoint to a small folder that runs without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from alembert.api.exporting import ExportJob, check_installed, export_tasks
from alembert.cli.options import Delimiter, LabelColumn, find_model, single_label_column
from alembert.cli.output import SET_ASIDE
from alembert.compress.settings import ExportSettings
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.tasks.runtime.export_files import ExportFormat, ExportPrecision
from alembert.terminal import escape_controls, note, print_json

if TYPE_CHECKING:
    from alembert.compress.card import ExportReport


def export(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A fine-tuned checkpoint folder, or hub:organisation/name."),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder to write the Export to.")],
    calibrate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Text that int8 is calibrated on: a file that the task reads, such as its training data, or .txt "
            "with one text a line; NAME=FILE for each of several tasks.",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            "--dev",
            metavar="FILE",
            help="Labelled file on which the loss of int8 is measured; if not given, that of --calibrate. NAME=FILE "
            "for each of several tasks.",
        ),
    ] = None,
    int8: Annotated[
        bool | None,
        typer.Option(
            "--int8/--fp32",
            help="Whole numbers of 8 bits, or floats as in the checkpoint; int8 if it can be.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="openvino, or onnx, which other programs read too; if not given, the one that is faster here.",
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Points of score that int8 may cost; parts that cost more stay in float.")
    ] = 0.5,
    rows: Annotated[int, typer.Option(help="Rows of text to calibrate on, at most.")] = 300,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One task of a model that has several; all if not given."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; two make pairs.")
    ] = None,
    label: LabelColumn = None,
    delimiter: Delimiter = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure how fast the model is here, before and after.")
    ] = True,
    training_hashes: Annotated[
        bool,
        typer.Option(
            "--training-hashes",
            help="Take along the hashes of the training texts and entities, by which evaluate finds overlaps. Whoever "
            "has them can test whether a text or a name was trained on.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a complete Export that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Export a fine-tuned model to a folder that runs without torch, and say what int8 cost and won."""

    precision: ExportPrecision = "fp32" if int8 is False else "int8"
    if calibrate and precision == "fp32":
        raise BadSetting("--calibrate belongs to int8, and the numbers are fp32. Leave one of them out.")
    settings = ExportSettings(
        format=cast("ExportFormat | None", form),
        precision=precision,
        rows=rows,
        limit=limit,
        training_hashes=training_hashes,
    )
    check_installed(settings)
    folder = find_model(model)
    names = export_tasks(folder, task)  # a folder without the task is refused before its weights are read
    job = ExportJob(
        folder,
        settings,
        _files(names, "--calibrate", calibrate or ()),
        _files(names, "--dev", against or ()),
        ReadOptions(text=tuple(text or ()), label=single_label_column(label), delimiter=delimiter),
        task=task,
        speed=speed,
        report=note,
    )
    outcome = job.run(out, overwrite=overwrite)
    if as_json:
        print_json({"out": str(out), **outcome.to_table()})
    else:
        _print(out, outcome)
    if job.set_aside:
        raise typer.Exit(SET_ASIDE)


def _files(names: Sequence[str | None], flag: str, words: Sequence[str]) -> dict[str | None, list[Path]]:
    """Give each task its files; an only one has them all."""

    if len(names) == 1:
        return {names[0]: fetch_to_temporary_folder(words)}
    found: dict[str | None, list[str]] = {name: [] for name in names}
    for word in words:
        name, _, file = word.partition("=")
        if name not in found or not file:
            raise BadSetting(
                f"{flag} is {word!r}; the model has several tasks, so say whose file it is, as in {flag} {names[0]}=FILE. "
                f"The tasks are {', '.join(map(str, names))}; --task NAME exports one of them."
            )
        found[name].append(file)
    return {name: fetch_to_temporary_folder(files) for name, files in found.items()}


def _print(out: Path, outcome: ExportReport) -> None:

    print(escape_controls(f"{out}: runs without torch"))
    rows = list(outcome.rows())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(escape_controls(f"  {name:{width}}  {value}"))
    for sentence in outcome.notes():
        note(sentence)
