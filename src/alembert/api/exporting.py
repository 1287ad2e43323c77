"""`alembert.export`: turn a fine-tuned Checkpoint into an Export, which runs without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.api.documents import Paths, SettingsLike, StrPath, check_arguments, files_by_task, settings_table, to_path
from alembert.api.inference import resolve_model_folder
from alembert.errors import BadSetting
from alembert.settings import drop_none
from alembert.terminal import note

if TYPE_CHECKING:
    from alembert.compress import ExportSettings
    from alembert.compress.card import ExportReport
    from alembert.compress.measure import ExportData
    from alembert.corpus.inputs import InputFile
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.example import ReadResult

SPEED_SECONDS: Final = 3.0
"""What measuring speed may take for each form of the model, about."""
MAX_EVAL_EXAMPLES: Final = 1000
"""Examples of the calibration file that int8 is judged on, where no other file is given."""

TaskFiles = Mapping[str, Sequence[Path]]
"""The files of each task, by its name."""


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """An Export, and what it loses in score and gains in size and speed."""

    folder: Path
    report: Mapping[str, Any]
    """Sizes, scores and speeds before and after, as the card of the Export has them."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"folder": str(self.folder), **self.report}


@check_arguments
def export(
    model: StrPath,
    *,
    out: StrPath,
    calibrate: Paths | Mapping[str, Paths] | None = None,
    dev: Paths | Mapping[str, Paths] | None = None,
    int8: bool = True,
    format: str | None = None,  # noqa: A002
    task: str | None = None,
    settings: SettingsLike | None = None,
    speed: bool = True,
    overwrite: bool = False,
    progress: bool = True,
) -> ExportResult:
    """Export a fine-tuned model to a folder that runs without torch.

    `calibrate` is a file of texts that int8 is calibrated on, such as the training file. `dev` is a labelled file on
    which the loss of score by int8 is measured; without it, the file of `calibrate` is used. For a multi-task model
    both are dicts with the names of the tasks. `format` is onnx, which every install can run, or openvino, which needs
    the extra of this name; if not given, the faster one on this machine. `int8=False` keeps floats. `speed` also
    measures how fast the model is before and after. `settings` takes `max_score_loss` (points of score that int8 may
    cost), `calibration_rows` and `training_hashes`.
    """
    from alembert.compress import ExportSettings
    from alembert.settings import apply_changes

    chosen = drop_none(format=format, precision=None if int8 else "fp32")
    run_settings = apply_changes(ExportSettings(), settings_table(settings, ("export",)), "`settings`")
    run_settings = apply_changes(run_settings, chosen, "The arguments")
    folder = resolve_model_folder(model)
    names = export_tasks(folder, task)
    job = ExportJob(
        folder,
        run_settings,
        files_by_task(names, calibrate, "calibrate"),
        files_by_task(names, dev, "dev"),
        task=task,
        speed=speed,
        report=note if progress else lambda _: None,
    )
    target = to_path(out, "out")
    outcome = job.run(target, overwrite=overwrite)
    return ExportResult(folder=target, report=outcome.to_table())


@dataclass
class ExportJob:
    """An export that was asked for: reads the examples, and writes the folder."""

    model: Path
    settings: ExportSettings
    calibrate: TaskFiles
    dev: TaskFiles
    options: ReadOptions | None = None
    task: str | None = None
    speed: bool = True
    report: Callable[[str], None] = lambda _: None
    set_aside: int = 0
    """Examples that could not be read."""

    def run(self, out: Path, *, overwrite: bool = False) -> ExportReport:
        """Read what int8 is calibrated and measured on, and write the Export."""
        from alembert.compress.export import export as write
        from alembert.infer.engine_torch import TorchEngine

        check_installed(self.settings)
        engine = TorchEngine.open(self.model)
        material = {name: self._material(engine, name) for name in self.calibrate}
        whole: Any = material if len(material) > 1 else next(iter(material.values()))
        return write(engine.checkpoint, out, self.settings, whole, task=self.task, overwrite=overwrite, say=self.report)

    def _material(self, engine: TorchEngine, name: str) -> ExportData:
        from alembert.compress.measure import ExportData
        from alembert.corpus.inputs import InputFiles, list_input_files
        from alembert.corpus.readers.contract import ReadOptions
        from alembert.infer.scoring import read_gold
        from alembert.infer.speed import describe_machine, measure_speeds, take_evenly
        from alembert.infer.task_model import TaskModel
        from alembert.tasks.files import read_task

        model = TaskModel.from_engine(engine, read_task(self.model, name))
        options = self.options or ReadOptions()
        calibrate, dev = (
            list_input_files(files) if files else InputFiles(()) for files in (self.calibrate[name], self.dev[name])
        )
        calibration = [example for file in calibrate.files for example in self._examples(_read(model, file, options))]
        if self.dev[name]:
            judged = self._examples(read_gold(model, self.dev[name], options))
        else:
            judged = take_evenly(calibration, min(MAX_EVAL_EXAMPLES, len(calibration)))
        return ExportData(
            calibration=calibration,
            judged=judged,
            labelled=bool(self.dev[name]) or any(model.task.gold_answers(example) for example in judged),
            stopwatch=(lambda forms, texts: measure_speeds(forms, texts, seconds=SPEED_SECONDS))
            if self.speed
            else None,
            machine=describe_machine("cpu"),
            files=(*calibrate.contents, *dev.contents),
        )

    def _examples(self, reading: ReadResult[Any]) -> Sequence[Any]:
        for item in reading.set_aside:
            self.report(item.describe())
        self.set_aside += len(reading.set_aside)
        return reading.examples


def export_tasks(model: Path, task: str | None) -> tuple[str, ...]:
    """Name the tasks that are exported."""
    from alembert.tasks.files import choose_task, read_tasks

    tasks = read_tasks(model)
    return tuple(tasks) if task is None else (choose_task(model, tasks, task).name,)


def check_installed(settings: ExportSettings) -> None:
    """Refuse a format whose library is missing; one that is chosen here is that of a library that is there."""
    from alembert.compress.onnx import import_onnx
    from alembert.hardware.runtimes import import_openvino

    if settings.format == "openvino":
        import_openvino()
    else:
        import_onnx()


def _read(model: TaskModel, file: InputFile, options: ReadOptions) -> ReadResult[Any]:
    """Read what the task reads, or plain text with one text a line."""
    from alembert.infer.task_model import is_plain_text

    reading = model.only.read_lines(file.path, options) if is_plain_text(file) else model.read([file.path], options)
    if not reading.examples:
        raise BadSetting(
            f"{file.path} has no example of the task {model.task.name}, so int8 cannot be calibrated on it."
        )
    return reading
