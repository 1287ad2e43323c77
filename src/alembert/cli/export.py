"""`alembert export`: a fine-tuned checkpoint to a small folder that runs without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.models import find_model
from alembert.errors import BadSetting

if TYPE_CHECKING:
    from alembert.compress.card import Outcome
    from alembert.compress.part import Material
    from alembert.compress.settings import ExportSettings
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.example import Reading
    from alembert.tasks.export_files import Format, Precision

SECONDS = 3.0
"""What measuring speed may take for each form of the model, about."""
MOST_JUDGED = 1000
"""Examples of the calibration file that int8 is judged on, where no other file is given."""


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
    from alembert.infer.engine_torch import TorchEngine

    precision: Precision = "fp32" if int8 is False else "int8"
    if calibrate and precision == "fp32":
        raise BadSetting("--calibrate belongs to int8, and the numbers are fp32. Leave one of them out.")
    settings = ExportSettings(format=cast("Format | None", form), precision=precision, rows=rows, limit=limit)
    _check_installed(settings)
    folder = find_model(model)
    names = _tasks(folder, task)  # a folder without the task is refused before its weights are read
    texts, gold = _files(names, "--calibrate", calibrate or ()), _files(names, "--dev", against or ())
    engine = TorchEngine.open(folder)
    sources = _Sources(engine, folder, ReadOptions(text=tuple(text or ()), label=label), speed=speed)
    material = {name: sources.material(name, texts[name], gold[name]) for name in names}
    given = material[names[0]] if len(names) == 1 else {str(name): each for name, each in material.items()}
    outcome = write(engine.checkpoint, out, settings, given, task=task, overwrite=overwrite, say=note)
    if as_json:
        print_json({"out": str(out), **outcome.to_table()})
    else:
        _print(out, outcome)
    if sources.set_aside:
        raise typer.Exit(SET_ASIDE)


def _check_installed(settings: ExportSettings) -> None:
    """Say at once what the format needs; one that is chosen here is that of a library that is there."""
    from alembert.compress.onnx_graph import import_onnx
    from alembert.hardware.onnx_settings import import_onnxruntime
    from alembert.hardware.openvino_settings import import_openvino

    if settings.format == "onnx":
        import_onnx()
        import_onnxruntime()
    elif settings.format == "openvino" or find_spec("onnxruntime") is None:
        import_openvino()


def _tasks(model: Path, task: str | None) -> tuple[str | None, ...]:
    """Name the tasks that are exported; none is the only one of a model."""
    from alembert.tasks.files import read_table, task_names

    several = task_names(model)
    if task is None and several:
        return several
    read_table(model, task)
    return (task if several else None,)


def _files(names: Sequence[str | None], flag: str, words: Sequence[str]) -> dict[str | None, list[Path]]:
    """Give each task its files; an only one has them all."""
    if len(names) == 1:
        return {names[0]: [Path(word) for word in words]}
    found: dict[str | None, list[Path]] = {name: [] for name in names}
    for word in words:
        name, _, file = word.partition("=")
        if name not in found or not file:
            raise BadSetting(
                f"{flag} is {word!r}; the model has several tasks, so say whose file it is, as in {flag} {names[0]}=FILE. "
                f"The tasks are {', '.join(map(str, names))}; --task NAME exports one of them."
            )
        found[name].append(Path(file))
    return found


@dataclass
class _Sources:
    """Reads examples of the tasks of a model, and counts what cannot be used."""

    engine: TorchEngine
    folder: Path
    options: ReadOptions
    speed: bool
    set_aside: int = 0

    def material(self, task: str | None, calibrate: Sequence[Path], against: Sequence[Path]) -> Material:
        from alembert.compress.part import Material
        from alembert.infer.gold import read_gold
        from alembert.infer.speed import evenly, speeds, this_machine
        from alembert.infer.task_model import TaskModel

        model = TaskModel.of_engine(self.engine, self.folder, task)
        calibration = [
            example for path in calibrate for example in self._told(_read(model, path, self.options))
        ]
        if against:
            judged = self._told(read_gold(model, against, self.options))
        else:
            judged = evenly(calibration, min(MOST_JUDGED, len(calibration)))
        return Material(
            calibration=calibration,
            judged=judged,
            labelled=bool(against) or any(model.task.answers(example) for example in judged),
            stopwatch=(lambda forms, texts: speeds(forms, texts, seconds=SECONDS)) if self.speed else None,
            machine=this_machine("cpu"),
            files=(*calibrate, *against),
        )

    def _told(self, reading: Reading[Any]) -> Sequence[Any]:
        from alembert.cli.output import note

        for item in reading.set_aside:
            note(f"{item.source}, {item.position} set aside: {item.reason}")
        self.set_aside += len(reading.set_aside)
        return reading.examples


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


def _print(out: Path, outcome: Outcome) -> None:
    from alembert.cli.output import note, visible

    print(visible(f"{out}: runs without torch"))
    rows = list(outcome.rows())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(visible(f"  {name:{width}}  {value}"))
    for sentence in outcome.notes():
        note(sentence)
