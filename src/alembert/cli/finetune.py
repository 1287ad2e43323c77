"""`alembert finetune`: labelled examples and a model to a model for a task, or for several on one encoder.

One task is named by its kind and has the files of --train, --dev and --data. Several, or one with a name of its own,
are written `[NAME:]KIND[=FILE]`, and their files `NAME=FILE`:

    --task disease:tag=diseases.tsv --task topic:classify=topics.tsv --dev topic=topics-dev.tsv
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    Assignments,
    ConfigFile,
    DevFiles,
    Epochs,
    LearningRate,
    Overwrite,
    ScoresAsJson,
    TaskRunOptions,
    TrainFiles,
    UnsplitFiles,
    asks_for_help,
    data_option,
    open_run_context,
    output_option,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting, require_training
from alembert.settings import read_layers, split_table, to_toml
from alembert.tasks import TASKS
from alembert.tasks.data_screen import format_data_report
from alembert.tasks.task import get_task_class
from alembert.terminal import note, print_json
from alembert.train.finetune.settings import (
    FinetuneSettings,
    TaskRunSettings,
    build_lexicon_layer,
    format_finetune_toml,
    resolve_settings,
)

if TYPE_CHECKING:
    from alembert.train.finetune.data import DataFiles
    from alembert.train.finetune.finetune import FinetuneJob, FinetuneRunResult


@dataclass(frozen=True, kw_only=True)
class FinetuneRunOptions(TaskRunOptions):
    """Options of `finetune` that do not change the model it trains."""

    tune: str | None = None
    """Search for the learning rate and the number of epochs for this long first, such as 30m or 2h; none: no search."""
    check: bool = False
    """Report on the data and exit, as without --out."""


def finetune(
    task: Annotated[
        list[str],
        data_option(
            metavar="TASK", help=f"{', '.join(TASKS)}. For several tasks on one encoder repeat NAME:TASK=FILE."
        ),
    ],
    model: Annotated[
        str | None, data_option(metavar="FOLDER", help="A checkpoint folder, or hub:organisation/name.")
    ] = None,
    train: TrainFiles = None,
    dev: DevFiles = None,
    data: UnsplitFiles = None,
    lexicon: Annotated[
        list[str] | None,
        data_option(metavar="LABEL=FILE", help="Task tag: terms whose matches the model reads; may be repeated."),
    ] = None,
    warm_up: Annotated[
        list[str] | None,
        data_option(
            metavar="FILE",
            help="Silver labels to learn from first, as `corpus label` and `annotate` write them; may be repeated.",
        ),
    ] = None,
    *,
    epochs: Epochs = None,
    learning_rate: LearningRate = None,
    out: Annotated[
        Path | None,
        output_option(
            metavar="FOLDER",
            help="Folder to write the model to; without it, the data are checked and nothing is trained.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: ScoresAsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Fine-tune a model for one task or several. To resume a stopped run, repeat the command."""
    tasks = parse_tasks(task)
    flags = {"epochs": epochs, "optimiser": {"learning_rate": learning_rate}}
    layers = read_layers(config, assignments, flags)
    options, layers = split_table(FinetuneRunOptions(), "run", layers)
    layers = {**layers, "--lexicon": build_lexicon_layer(tasks.kinds, lexicon or ())}
    settings, of_tasks = resolve_settings(tasks.kinds, layers)
    if asks_for_help(assignments):
        print(format_finetune_toml(settings, of_tasks), f"\n[run]\n{to_toml(options)}", sep="", end="")
        return
    if model is None or not (train or data or all(argument.file for argument in tasks.tasks)):
        raise typer.BadParameter("give --model and --train, and --out to train; or --set help")
    require_training()
    from alembert.train.finetune.finetune import FinetuneJob, build_task_specs

    files = FileArguments(train or (), dev or (), data or (), options.split, warm_up or ())
    specs = build_task_specs(tasks.kinds, build_data(tasks, files, of_tasks), of_tasks)
    job = FinetuneJob(model=model, tasks=specs)
    if out is None or options.check:
        _check(job, settings, as_json)
    else:
        _run(job, out, settings, options, overwrite=overwrite, as_json=as_json)


def _check(job: FinetuneJob, settings: FinetuneSettings, as_json: bool) -> None:
    from alembert.train.finetune.finetune import inspect_data

    reports = inspect_data(job, settings)
    if as_json:
        tables = {name: report.to_table() for name, report in reports.items()}
        print_json(tables if len(tables) > 1 else next(iter(tables.values())))
    else:
        print("\n\n".join("\n".join(format_data_report(report, whole=True)) for report in reports.values()))
    note("nothing was trained; to train, name a folder for the model: --out FOLDER")
    if any(report.set_aside.count for report in reports.values()):
        raise typer.Exit(SET_ASIDE)


def _run(
    job: FinetuneJob,
    out: Path,
    settings: FinetuneSettings,
    options: FinetuneRunOptions,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    from alembert.train.distributed import is_first_process
    from alembert.train.finetune.finetune import finetune as run

    with open_run_context(options.device, overwrite=overwrite) as context:
        tune = parse_duration(options.tune)
        done = run(job, out, settings, seeds=options.seeds, tune=tune, context=context)
    if is_first_process():
        show_scores(done, out, as_json)
        if any(report.set_aside.count for report in done.reports.values()):
            raise typer.Exit(SET_ASIDE)


def parse_duration(text: str | None) -> float | None:
    """Read a time with s, m or h.

    >>> parse_duration("30m"), parse_duration("1.5h")
    (1800.0, 5400.0)
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not match or not float(match[1]):
        raise BadSetting(f"run.tune is {text!r}; expected a time such as 90s, 30m or 2h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def show_scores(done: FinetuneRunResult, out: Path, as_json: bool) -> None:
    """Print what a run for a task reached on the development data."""
    if as_json:
        table = {"folder": str(out), "main": done.main, "mean": done.mean, "spread": done.spread}
        print_json({**table, "best": done.best, "results": [asdict(result) for result in done.results]})
        return
    print(f"{out}: on the development data")
    width = max(16, *map(len, done.measures))
    for name, value in done.measures.items():
        print(f"  {name:{width}} {value:.4f}{'  <- chosen by this' if name == done.main else ''}")
    for sentence in done.results[done.best].notes:
        print(f"  {sentence}")
    counts = done.results[done.best].counts
    if counts["kept_step"] < counts["steps"]:
        print(f"  weights of step {counts['kept_step']:,} of {counts['steps']:,}, which did best")
    if len(done.results) > 1:
        values = ", ".join(f"{result.value:.4f}" for result in done.results)
        print(f"  {len(done.results)} seeds: {done.main} {done.mean:.4f} +- {done.spread:.4f} ({values})")
    which = f" --task {next(iter(done.reports))}" if len(done.reports) > 1 else ""
    print(f"Next: alembert evaluate {out}{which} TEST_FILE; alembert predict {out} TEXT")


@dataclass(frozen=True)
class TaskArgument:
    """A task as the command line names it."""

    name: str
    kind: str
    file: str | None = None


@dataclass(frozen=True)
class TaskArguments:
    """All tasks that were asked for."""

    tasks: tuple[TaskArgument, ...]

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each task by its name."""
        return {task.name: task.kind for task in self.tasks}


@dataclass(frozen=True)
class FileArguments:
    """What --train, --dev, --data, --warm-up and run.split say."""

    train: Sequence[str] = ()
    dev: Sequence[str] = ()
    unsplit: Sequence[str] = ()
    split: str | None = None
    """Shares by which the training files are split; those of --data, if there are any."""
    warm_up: Sequence[str] = ()


def parse_tasks(words: Sequence[str]) -> TaskArguments:
    """Read what --task says, which may be repeated.

    >>> parse_tasks(["disease:tag=a.tsv", "classify=b.tsv"]).kinds
    {'disease': 'tag', 'classify': 'classify'}
    """
    tasks = tuple(map(_parse_task, words))
    for task in tasks:
        if sum(other.name == task.name for other in tasks) > 1:
            raise BadSetting(
                f"Two tasks are called {task.name}. Give each a name of its own, as in --task one:{task.kind}=a.tsv --task "
                f"two:{task.kind}=b.tsv; more files of one task are --train {task.name}=FILE."
            )
    return TaskArguments(tasks)


def _parse_task(word: str) -> TaskArgument:
    match = re.fullmatch(r"(?:([^:=]+):)?([^:=]+)(?:=(.+))?", word)
    if not match:
        raise BadSetting(
            f"--task is {word!r}; expected a task (tag), a task with its file (tag=train.tsv), or with a name and its file "
            "(disease:tag=train.tsv)."
        )
    name, kind, file = match.groups()
    get_task_class(kind)
    return TaskArgument(name or kind, kind, file)


def build_data(
    task_arguments: TaskArguments, files: FileArguments, settings: Mapping[str, TaskRunSettings]
) -> dict[str, DataFiles]:
    """Return the files of each task."""
    return {
        task.name: _build_task_data(task_arguments, task, files, settings[task.name].reading)
        for task in task_arguments.tasks
    }


def _build_task_data(
    task_arguments: TaskArguments, task: TaskArgument, files: FileArguments, reading: ReadOptions
) -> DataFiles:
    from alembert.train.finetune.data import DataFiles

    first = [task.file] if task.file else []
    train = fetch_to_temporary_folder([*first, *_files_of_task(task_arguments, task, "--train", files.train)])
    dev = fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--dev", files.dev))
    unsplit = fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--data", files.unsplit))
    if files.split is not None and not files.unsplit:
        train, unsplit = [], train
    if not (train or unsplit):
        raise BadSetting(
            f"The task {task.name} has no training files. Name them: --train {task.name}=FILE, or --task "
            f"{task.name}:{task.kind}=FILE."
        )
    return DataFiles(
        train=tuple(train),
        dev=tuple(dev),
        unsplit=tuple(unsplit),
        split=files.split or "80/10/10",
        warm_up=tuple(fetch_to_temporary_folder(_files_of_task(task_arguments, task, "--warm-up", files.warm_up))),
        options=reading,
    )


def _files_of_task(task_arguments: TaskArguments, task: TaskArgument, flag: str, words: Sequence[str]) -> list[str]:
    """Choose the files of a task among those of a flag; those without a name are of an only task."""
    files = []
    for word in words:
        name, _, file = word.partition("=")
        if name in task_arguments.names and file:
            files += [file] if name == task.name else []
        elif len(task_arguments.tasks) == 1:
            files.append(word)
        else:
            raise BadSetting(
                f"{flag} is {word!r}; with several tasks say whose file it is, as in {flag} {task.name}=FILE. "
                f"The tasks are {', '.join(task_arguments.names)}."
            )
    return files
