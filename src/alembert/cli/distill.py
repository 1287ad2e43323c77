"""`alembert distill`: a teacher to a small student, on plain text or for the teacher's task.

With `run.compare`, students without distillation are trained beside the result, and all are scored on one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.finetune import show_scores
from alembert.cli.options import (
    Assignments,
    ConfigFile,
    DevFiles,
    LearningRate,
    Overwrite,
    ScoresAsJson,
    TaskRunOptions,
    TrainFiles,
    UnsplitFiles,
    asks_for_help,
    data_option,
    find_model,
    open_run_context,
    output_option,
    print_settings,
    training_option,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import AlreadyDone, require_training
from alembert.inspect.comparison import compare_models
from alembert.inspect.report_pages import write_comparison
from alembert.inspect.reports import comparison_lines
from alembert.settings import apply_layers, read_layers, split_table, split_value
from alembert.tasks.files import read_task
from alembert.tasks.tag.types import select_types_for_files
from alembert.terminal import escape_controls, print_json
from alembert.train.distill.settings import (
    GENERAL_PRESETS,
    PRESETS,
    DistillSettings,
    GeneralDistillSettings,
    build_controls,
    check_preset,
    get_preset,
)

if TYPE_CHECKING:
    from alembert.train.distill.distill import GeneralDistillRunResult
    from alembert.train.distill.stages import DistillJob
    from alembert.train.run import RunContext


Files = list[str] | None


@dataclass(frozen=True, kw_only=True)
class DistillRunOptions(TaskRunOptions):
    """Options of `distill` beside the settings of the training."""

    types: tuple[str, ...] = ()
    """tag: entity types that files annotate, as "TYPE,TYPE" for all or "FILE=TYPE,TYPE" for one; others are ignored."""
    vocabulary: str | None = None
    """Folder of a tokenizer for a new student; only the teacher's predictions can then be distilled."""
    words: str | None = None
    """Folder of a masked LM that proposes the words of augmentation; none: the teacher."""
    compare: str | None = None
    """Also train without distillation and without augmentation, and compare all models on this file."""
    cache: str | None = None
    """Folder for the teacher's outputs; none: a hidden folder beside the result."""

    @property
    def comparison(self) -> ComparisonFile | None:
        """The file to compare on, and which types it annotates."""
        return None if self.compare is None else ComparisonFile(Path(self.compare), self.types)


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(
            metavar="TEACHER", help="A fine-tuned model, or hub:organisation/name; with --corpus, a pre-trained one."
        ),
    ] = None,
    *,
    student: Annotated[
        str | None, data_option(help="4x312 (layers x hidden size), half (of the teacher's layers), or a folder.")
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        data_option(metavar="INPUT", help="General distillation: a Corpus folder, or files with text."),
    ] = None,
    train: TrainFiles = None,
    dev: DevFiles = None,
    data: UnsplitFiles = None,
    task: Annotated[str | None, typer.Option(hidden=True)] = None,  # errors name it to whom it concerns
    texts: Annotated[
        list[Path] | None,
        data_option(metavar="INPUT", help="Plain text; the teacher labels its sentences as further training data."),
    ] = None,
    preset: Annotated[
        str | None,
        training_option(help="fast (the student starts from the teacher's layers) or tinybert (as published)."),
    ] = None,
    epochs: Annotated[float | None, training_option(help="Epochs of the prediction stage.")] = None,
    learning_rate: LearningRate = None,
    out: Annotated[Path | None, output_option(metavar="FOLDER", help="Folder to write the student to.")] = None,
    overwrite: Overwrite = False,
    as_json: ScoresAsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Distil a small student from a teacher. To resume a stopped run, repeat the command.

    With --corpus the student learns from plain text, with --train it learns the teacher's task.
    """
    rate = {"learning_rate": learning_rate}
    flags = {"optimiser": rate} if corpus else {"prediction": {"epochs": epochs, "optimiser": rate}}
    options, layers = split_table(DistillRunOptions(), "run", read_layers(config, assignments, flags))
    in_file, layers = split_value("fast", "preset", layers)
    name = check_preset(preset or in_file)
    if corpus:
        _check_unused(
            options,
            {"--train": train, "--dev": dev, "--data": data, "--task": task, "--texts": texts, "--epochs": epochs},
        )
        general = apply_layers(GENERAL_PRESETS[name](), layers)
        if asks_for_help(assignments):
            print_settings(general, run=options)
        else:
            run = _open_run(teacher, student, out, options, overwrite=overwrite, as_json=as_json)
            _distill_general(run, corpus, general)
        return
    teacher = None if teacher is None else str(find_model(teacher))
    settings = apply_layers(_task_preset(name, teacher, task), layers)
    if asks_for_help(assignments):
        print_settings(settings, run=options)
        return
    run = _open_run(teacher, student, out, options, overwrite=overwrite, as_json=as_json)
    job = _build_job(run, task, (train, dev, data), texts)
    _distill_task(run, job, settings)


@dataclass(frozen=True)
class _DistillRun:
    """What both kinds of distillation have: two models, a folder, and how the run is carried out."""

    teacher: str
    student: str
    out: Path
    options: DistillRunOptions
    overwrite: bool
    as_json: bool

    def open_context(self) -> AbstractContextManager[RunContext]:
        """Show progress while the block runs."""
        cache = None if self.options.cache is None else Path(self.options.cache)
        return open_run_context(self.options.device, cache=cache, overwrite=self.overwrite)


def _open_run(
    teacher: str | None, student: str | None, out: Path | None, options: DistillRunOptions, **output: bool
) -> _DistillRun:
    if teacher is None or student is None or out is None:
        raise typer.BadParameter("give TEACHER, --student and --out; or --set help")
    require_training()
    return _DistillRun(teacher, student, out, options, **output)


def _check_unused(options: DistillRunOptions, flags: dict[str, Any]) -> None:
    """Refuse options of the task stage beside --corpus."""
    used = {item.name: getattr(options, item.name) != item.default for item in fields(options)}
    names = [name for name, value in flags.items() if value is not None]
    names += [f"run.{name}" for name, is_set in used.items() if is_set and name not in ("cache", "device")]
    if names:
        raise typer.BadParameter(f"{' and '.join(names)} cannot be used with --corpus")


def _task_preset(name: str, teacher: str | None, task: str | None) -> DistillSettings:
    """Return a preset with the batch sizes of the teacher's task, if there is a teacher."""
    return PRESETS[name]() if teacher is None else get_preset(name, read_task(Path(teacher), task).kind)


def _build_job(
    run: _DistillRun, task: str | None, files: tuple[Files, Files, Files], texts: list[Path] | None
) -> DistillJob:
    """Build the job of the task stage; files of an object store or of stdin are copied here."""
    from alembert.train.distill.stages import DistillJob
    from alembert.train.finetune.data import DataFiles

    train, dev, data = files
    if not (train or data):
        raise typer.BadParameter("give --corpus for the general stage, or --train for a task")
    options = run.options
    if options.split is not None and not data:
        train, data = None, train
    parts = [tuple(fetch_to_temporary_folder(part or ())) for part in (train, dev, data)]
    reading = ReadOptions(types=drop_compare_types(options.comparison, options.types, *parts))
    return DistillJob(
        teacher=run.teacher,
        student=run.student,
        data=DataFiles(
            train=parts[0],
            dev=parts[1],
            unsplit=parts[2],
            split=options.split or "80/10/10",
            options=read_task(Path(run.teacher), task).apply_columns(reading),
        ),
        task=task,
        texts=tuple(texts or ()),
        words=options.words,
        vocabulary=None if options.vocabulary is None else Path(options.vocabulary),
    )


def _distill_general(run: _DistillRun, corpus: list[Path], settings: GeneralDistillSettings) -> None:
    from alembert.train.distill.distill import distill_general
    from alembert.train.distributed import is_first_process

    with run.open_context() as context:
        done = distill_general(run.teacher, run.student, corpus, run.out, settings=settings, context=context)
    if is_first_process():
        _show_general(done, run.out, run.as_json)


def _show_general(done: GeneralDistillRunResult, out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"folder": str(out), "before": done.before, "after": done.after, "run": asdict(done.done)})
        return
    print(f"{out}: distance to the teacher on held-out text, before and after")
    for name, value in done.after.items():
        print(f"  {name:12} {done.before.get(name, float('nan')):8.4f} -> {value:.4f}")
    print(f"Next: alembert distill FINE_TUNED_TEACHER --student {out} --train FILE --dev FILE --out FOLDER")


def _distill_task(run: _DistillRun, job: DistillJob, settings: DistillSettings) -> None:
    from alembert.train.distill.distill import distill as distill_task
    from alembert.train.distributed import is_first_process

    test, seeds, done = run.options.comparison, run.options.seeds, None
    with run.open_context() as context:
        try:
            done = distill_task(job, run.out, settings, seeds=seeds, context=context)
        except AlreadyDone:
            if test is None:
                raise  # else the comparison may be what was stopped
        controls = {} if test is None else train_controls(job, run.out, settings, seeds, context)
    if is_first_process():
        if done is not None:
            show_scores(done, run.out, run.as_json)
        if test is not None:
            show_comparison({"student": run.out, **controls}, job, test, comparison_folder(run.out))
        if done is not None and any(report.set_aside.count for report in done.reports.values()):
            raise typer.Exit(SET_ASIDE)


@dataclass(frozen=True)
class ComparisonFile:
    """The file of run.compare, and what run.types says."""

    file: Path
    types: tuple[str, ...] = ()

    @property
    def options(self) -> ReadOptions:
        """How the file is read."""
        return ReadOptions(types=select_types_for_files(self.types, list_input_files([self.file]).paths))


def drop_compare_types(test: ComparisonFile | None, types: tuple[str, ...], *parts: Sequence[Path]) -> tuple[str, ...]:
    """Leave out what run.types says about the file of run.compare alone."""
    if test is None or not types:
        return types
    of_data = select_types_for_files(types, list_input_files([file for part in parts for file in part]).paths)
    return tuple(word for word in types if word in of_data or word not in test.options.types)


def comparison_folder(out: Path) -> Path:
    """Return the folder of the comparison and of the students that the result is compared with."""
    return out.with_name(f"{out.name}-comparison")


def train_controls(
    job: DistillJob, out: Path, settings: DistillSettings, seeds: int, context: RunContext
) -> dict[str, Path]:
    """Train the students that the result is compared with, unless they are there already."""
    from alembert.train.distill.distill import distill as run

    folders = {}
    for name, control in build_controls(settings, has_texts=bool(job.texts)).items():
        folders[name] = comparison_folder(out) / name.replace(" ", "-")
        context.log(f"The student {name}: {folders[name]}")
        folders[name].parent.mkdir(parents=True, exist_ok=True)
        with suppress(AlreadyDone):
            own = job if control.has_texts else replace(job, texts=())
            run(own, folders[name], control.settings, seeds=seeds, context=context)
    return folders


def show_comparison(students: Mapping[str, Path], job: DistillJob, test: ComparisonFile, folder: Path) -> None:
    """Score the teacher and all students on the file, print the table and write its page."""
    report = compare_models({"teacher": Path(job.teacher), **students}, [test.file], test.options, task=job.task)
    print(*map(escape_controls, comparison_lines(report)), sep="\n")
    for path in write_comparison(report, folder):
        print(path)
