"""`alembert finetune`: labelled examples and a model to a model for a task, or for several on one encoder."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.finetune_tasks import (
    FileArguments,
    TaskArguments,
    as_toml,
    build_data,
    parse_tasks,
    resolve_task_settings,
)
from alembert.cli.options import (
    Delimiter,
    Device,
    ForgetTraining,
    LabelColumn,
    Overwrite,
    ScoresAsJson,
    ShowConfig,
    Types,
    single_label_column,
)
from alembert.cli.output import SET_ASIDE
from alembert.errors import BadSetting
from alembert.hardware.torch_settings import resolve_device
from alembert.tasks import TASKS
from alembert.tasks.data_screen import format_data_report
from alembert.terminal import ProgressBar, note, print_json, say_all
from alembert.train.finetune.settings import FinetuneSettings

if TYPE_CHECKING:
    from alembert.train.finetune.finetune import FinetuneRunResult, MultiTaskJob, SingleTaskJob


def finetune(
    task: Annotated[
        list[str],
        typer.Option(
            metavar="TASK",
            help=f"What to learn: {', '.join(TASKS)}. Several on one encoder: NAME:TASK=FILE, repeated.",
        ),
    ],
    model: Annotated[str | None, typer.Option(metavar="FOLDER", help="A checkpoint, or hub:organisation/name.")] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Examples to train on; may be repeated. Of several tasks: NAME=FILE."),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Examples to judge by; a part of --train if none."),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Examples that are divided by --split.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Shares of training, development and test in --data; 80/10/10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the model goes; run again to continue.")
    ] = None,
    *,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training examples.")] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides about all chance.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many times, and report mean and spread.")] = 1,
    tune: Annotated[
        str | None, typer.Option(metavar="TIME", help="Try rates and epochs for so long first: 30m, 2h.")
    ] = None,
    crf: Annotated[bool, typer.Option("--crf", help="tag: find the best path of tags with a CRF.")] = False,
    nested: Annotated[bool, typer.Option("--nested", help="tag: entities may nest and overlap.")] = False,
    every_token: Annotated[
        bool, typer.Option("--every-token", help="tag: each token has a label of its own (part of speech).")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; two make pairs.")
    ] = None,
    label: LabelColumn = None,
    delimiter: Delimiter = None,
    types: Types = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML.")] = None,
    device: Device = "auto",
    check: Annotated[bool, typer.Option("--check", help="Look at the data, and do nothing.")] = False,
    forget_training: ForgetTraining = False,
    overwrite: Overwrite = False,
    show_config: ShowConfig = False,
    as_json: ScoresAsJson = False,
) -> None:
    """Fine-tune a model for a task, or for several. A stopped run continues with the same command."""

    wishes = parse_tasks(task)
    changes = {
        "epochs": epochs,
        "seed": seed,
        "forget_training": forget_training or None,
        "optimiser": None if rate is None else {"rate": rate},
        "task": _task_changes(wishes, crf=crf, nested=nested, every_token=every_token),
        "read": _read_changes(wishes, text=text, label=single_label_column(label), delimiter=delimiter, types=types),
    }
    given = {key: value for key, value in changes.items() if value is not None}
    settings, of_tasks = resolve_task_settings(wishes, config, given)
    if show_config:
        print(as_toml(settings, wishes, of_tasks), end="")
        return
    has_files = train or data or all(wish.file for wish in wishes.tasks)
    if model is None or not has_files or (out is None and not check):
        raise typer.BadParameter("give --model, --train or --data, and --out; or --show-config")
    if split is not None and not data:
        raise typer.BadParameter("--split divides the files of --data, which was not given")
    from alembert.train.finetune.finetune import build_job, build_task_specs

    searched = parse_duration(tune)
    files = FileArguments(train or (), dev or (), data or (), split)
    subjects = build_task_specs(wishes.kinds, build_data(wishes, files, of_tasks), of_tasks)
    assignment = build_job(model, subjects, are_named=wishes.is_multitask)
    if check:
        _check(assignment, settings, as_json)
        return
    assert out is not None
    _run(assignment, out, settings, seeds, searched, device, overwrite=overwrite, as_json=as_json)


def _task_changes(wishes: TaskArguments, *, crf: bool, nested: bool, every_token: bool) -> dict[str, Any] | None:

    if not (crf or nested or every_token):
        return None
    if wishes.is_multitask:
        raise BadSetting(
            "--crf, --nested and --every-token are for one task. With several, say it in the file of --config: "
            '[task.NAME] with head = "crf".'
        )
    if wishes.names != ["tag"] or (crf and nested):
        raise BadSetting(
            "--crf, --nested and --every-token belong to --task tag, and of --crf and --nested one can be given."
        )
    head = {"head": "crf" if crf else "span"} if crf or nested else {}
    return head | ({"every_token": True} if every_token else {})


def _read_changes(
    wishes: TaskArguments,
    *,
    text: list[str] | None,
    label: str | None,
    delimiter: str | None,
    types: list[str] | None,
) -> dict[str, Any] | None:

    if types and wishes.is_multitask:
        raise BadSetting(
            "--types is for one task. With several, say it in the file of --config: [task.NAME.read] with "
            'types = ["FILE=TYPE,TYPE"].'
        )
    given = {"text": text, "label": label, "delimiter": delimiter, "types": types}
    return {name: value for name, value in given.items() if value} or None


def _check(assignment: SingleTaskJob | MultiTaskJob, settings: FinetuneSettings, as_json: bool) -> None:
    from alembert.train.finetune.finetune import SingleTaskJob, inspect_all_data

    reports = inspect_all_data(assignment, settings)
    if as_json:
        tables = {name: report.to_table() for name, report in reports.items()}
        print_json(tables[assignment.task] if isinstance(assignment, SingleTaskJob) else tables)
    else:
        print("\n\n".join("\n".join(format_data_report(report, whole=True)) for report in reports.values()))
    if any(report.set_aside.count for report in reports.values()):
        raise typer.Exit(SET_ASIDE)


def _run(
    assignment: SingleTaskJob | MultiTaskJob,
    out: Path,
    settings: FinetuneSettings,
    seeds: int,
    tune: float | None,
    device: str,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    from alembert.train.distributed import is_first_process
    from alembert.train.finetune.finetune import finetune as run
    from alembert.train.run import RunContext

    with ProgressBar(sys.stderr, plain_every=60) as bar:
        around = RunContext(
            device=resolve_device(device),
            overwrite=overwrite,
            log=note,
            print_table=say_all,
            on_progress=bar.show_training,
        )
        done = run(assignment, out, settings, seeds=seeds, tune=tune, around=around)
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
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise BadSetting(f"--tune is {text!r}; expected a time such as 90s, 30m or 2h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


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
        each = ", ".join(f"{result.value:.4f}" for result in done.results)
        print(f"  {len(done.results)} seeds: {done.main} {done.mean:.4f} +- {done.spread:.4f} ({each})")
    which = f" --task {next(iter(done.reports))}" if done.is_multitask else ""
    print(f"Next: alembert evaluate {out}{which} TEST_FILE; alembert predict {out} TEXT")
