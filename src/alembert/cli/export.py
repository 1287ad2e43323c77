"""`alembert export`: a fine-tuned checkpoint to a small folder that runs without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.errors import BadSetting

if TYPE_CHECKING:
    from alembert.compress.card import Outcome
    from alembert.compress.export import Material
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.example import Reading

SECONDS = 3.0
"""What measuring speed may take for each form of the model, about."""
MOST_JUDGED = 1000
"""Examples of the calibration file that int8 is judged on, where no other file is given."""


def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A fine-tuned checkpoint folder.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder to write the Export to.")],
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text that int8 is calibrated on: a file that the task reads, such as its training data, or .txt "
            "with one text a line.",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            "--dev",
            metavar="FILE",
            help="Labelled file on which the loss of int8 is measured; if not given, that of --calibrate.",
        ),
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8/--fp32", help="Whole numbers of 8 bits, or floats as in the checkpoint.")
    ] = True,
    limit: Annotated[
        float, typer.Option(help="Points of score that int8 may cost; parts that cost more stay in float.")
    ] = 0.5,
    rows: Annotated[int, typer.Option(help="Rows of text to calibrate on, at most.")] = 300,
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which task of a model that has several.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; two make pairs.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the label.")] = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure how fast the model is here, before and after.")
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a complete Export that is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Export a fine-tuned model to a folder that runs without torch, and say what int8 cost and won."""
    from alembert.cli.output import note, print_json
    from alembert.compress.export import export as write
    from alembert.compress.settings import ExportSettings
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.hardware.openvino_settings import import_openvino
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.files import read_table, task_names

    if calibrate is not None and not int8:
        raise BadSetting("--calibrate belongs to int8, and --fp32 was given. Leave one of them out.")
    settings = ExportSettings(precision="int8" if int8 else "fp32", rows=rows, limit=limit)
    import_openvino()
    read_table(model, task)  # a folder without the task is refused before its weights are read
    name = task if task_names(model) else None
    engine = TorchEngine.open(model)
    opened = TaskModel.of_engine(engine, model, name)
    options = ReadOptions(text=tuple(text or ()), label=label)
    material, aside = _material(opened, options, calibrate, against, speed)
    outcome = write(engine.checkpoint, out, settings, material, task=name, overwrite=overwrite, say=note)
    if as_json:
        print_json({"out": str(out), **outcome.to_table()})
    else:
        _print(out, outcome)
    if aside:
        raise typer.Exit(SET_ASIDE)


def _material(
    model: TaskModel, options: ReadOptions, calibrate: Path | None, against: Path | None, speed: bool
) -> tuple[Material, int]:
    """Read the files; give what was read of them, and how many examples were set aside."""
    from alembert.compress.export import Material
    from alembert.infer.gold import read_gold
    from alembert.infer.speed import evenly, speeds, this_machine

    text, gold = None, None
    if calibrate is not None:
        text = _read(model, calibrate, options)
    if against is not None:
        gold = read_gold(model, [against], options)
    readings = [reading for reading in (text, gold) if reading is not None]
    calibration = text.examples if text else ()
    judged = gold.examples if gold else evenly(calibration, min(MOST_JUDGED, len(calibration)))
    return Material(
        calibration=calibration,
        judged=judged,
        labelled=gold is not None or any(model.task.answers(example) for example in judged),
        stopwatch=(lambda forms, texts: speeds(forms, texts, seconds=SECONDS)) if speed else None,
        machine=this_machine("cpu"),
        files=tuple(path for path in (calibrate, against) if path is not None),
    ), _told(readings)


def _read(model: TaskModel, path: Path, options: ReadOptions) -> Reading[Any]:
    """Read what the task reads, or plain text with one text a line."""
    from alembert.errors import BadFile
    from alembert.tasks.example import Reading

    if not path.is_file():
        raise BadFile(f"There is no file {path}. Check the path.")
    if path.suffix == ".txt":
        lines = path.read_text(encoding="utf8").splitlines()
        reading: Reading[Any] = Reading(tuple(model.task.of_texts([line for line in lines if line.strip()])))
    else:
        reading = model.read([path], options)
    if not reading.examples:
        raise BadSetting(
            f"{path} has no example of the task {model.task.name}, so int8 cannot be calibrated on it."
        )
    return reading


def _told(readings: list[Reading[Any]]) -> int:
    from alembert.cli.output import note

    aside = [item for reading in readings for item in reading.set_aside]
    for item in aside:
        note(f"{item.source}, {item.position} set aside: {item.reason}")
    return len(aside)


def _print(out: Path, outcome: Outcome) -> None:
    from alembert.cli.output import note, visible

    print(visible(f"{out}: runs without torch"))
    rows = list(outcome.rows())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(visible(f"  {name:{width}}  {value}"))
    for sentence in outcome.notes():
        note(sentence)
