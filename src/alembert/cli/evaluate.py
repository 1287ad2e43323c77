"""`alembert evaluate`: how good a fine-tuned model is, and how far the number can be trusted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from alembert.cli.command import SET_ASIDE
from alembert.cli.options import (
    DATA_PANEL,
    LABELLED_HELP,
    MODEL_HELP,
    OUTPUT_PANEL,
    AsJson,
    Assignments,
    Device,
    LabelColumn,
    TaskName,
    TextColumn,
    check_page,
    find_model,
    read_options,
    write_page,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.jobs import make_source_names
from alembert.infer.engines import choose_device
from alembert.infer.evaluate import Evaluation, build_evaluation, evaluate_tasks
from alembert.infer.scoring import ModelComparison, ProgressCallback, open_models, score_models
from alembert.infer.speed import MEASURE_SECONDS
from alembert.infer.task_model import TaskModel
from alembert.inspect.comparison import ComparisonReport, build_comparison
from alembert.inspect.report_pages import render_evaluation_page
from alembert.inspect.reports import (
    comparison_lines,
    evaluation_headline,
    evaluation_sentences,
    evaluation_tables,
    warn_few_documents,
    warn_overlap,
)
from alembert.terminal import ProgressBar, escape_controls, note, print_json


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=LABELLED_HELP)],
    *,
    task: TaskName = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="Use only this part of a file that finetune split: train, dev or test.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Another model to compare with; may be repeated."),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure how fast the compared models are here.")
    ] = True,
    bootstrap_samples: Annotated[int, typer.Option(min=1, help="Bootstrap samples for the intervals.")] = 1000,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an HTML page with plots.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    as_json: AsJson = False,
    assignments: Assignments = None,
    device: Device = "auto",
) -> None:
    """Score a fine-tuned model on labelled files, with confidence intervals, coverage and calibration."""
    check_page(report)
    folders = [find_model(each) for each in (model, *(against or ()))]
    where = choose_device(folders, device)
    models = open_models(folders, where, task)
    options = read_options(assignments, text, label)
    if own := _files_by_task(models[0], files):
        if against or report:
            raise typer.BadParameter("--against and --report are for one task: give its name with --task NAME")
        with ProgressBar(sys.stderr) as bar:
            each = evaluate_tasks(
                models[0], own, options, part=part, rounds=bootstrap_samples, device=where, tell=bar.show
            )
        _show_all(each, as_json)
        return
    with ProgressBar(sys.stderr) as bar:
        contest = score_models(
            models, fetch_to_temporary_folder(files), options, part=part, rounds=bootstrap_samples, tell=bar.show
        )
        found = build_evaluation(contest, device=where, tell=bar.show)
        compared = _compare(contest, folders, where, speed, bar.show) if against else None
    if report is not None:
        write_page(report, render_evaluation_page(found, compared))
    if as_json:
        print_json(found.to_table() | ({"comparison": compared.to_table()} if compared else {}))
    else:
        _print(found, compared)
    _warn(found)
    if found.set_aside:
        raise typer.Exit(SET_ASIDE)


def _files_by_task(model: TaskModel, words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of each task of a model that has several, if they are given as NAME=FILE; empty: they are not."""
    from alembert.corpus.fetch import fetch_to_temporary_folder

    named = [word.partition("=") for word in words]
    if len(model.tasks) < 2 or not all(name in model.tasks and file for name, _, file in named):
        return {}
    found: dict[str, list[str]] = {}
    for name, _, file in named:
        found.setdefault(name, []).append(file)
    return {name: fetch_to_temporary_folder(files) for name, files in found.items()}


def _show_all(found: Mapping[str, Evaluation], as_json: bool) -> None:
    from alembert.terminal import print_json

    if as_json:
        print_json({name: each.to_table() for name, each in found.items()})
    for name, each in found.items():
        if not as_json:
            print(f"{name}:")
            _print(each, None)
            print()
        _warn(each)
    if any(each.set_aside for each in found.values()):
        raise typer.Exit(SET_ASIDE)


def _compare(
    contest: ModelComparison, folders: Sequence[Path], device: str, speed: bool, tell: ProgressCallback
) -> ComparisonReport:
    """Compare all models with the first that was named after the evaluated one."""

    # The folder in which one stands has no name, and that of a seed is a number.
    short = make_source_names([folder if folder.name else folder.resolve() for folder in folders])
    names = [str(path) if name.isdecimal() else name for name, path in zip(short, folders, strict=True)]
    seconds = MEASURE_SECONDS if speed else None
    return build_comparison(contest, names, reference=1, device=device, speed_seconds=seconds, tell=tell)


def _print(found: Evaluation, compared: ComparisonReport | None) -> None:

    print(escape_controls(f"{found.model}, task {found.task}, on {', '.join(found.files)}"))
    print(escape_controls(evaluation_headline(found)))
    for table in evaluation_tables(found):
        print(f"\n{escape_controls(table.title)}")
        for line in table.lines():
            print(escape_controls(line))
    print()
    for sentence in evaluation_sentences(found):
        print(escape_controls(sentence))
    if compared:
        print()
        for line in comparison_lines(compared):
            print(escape_controls(line))


def _warn(found: Evaluation) -> None:

    for remark in found.remarks:
        note(remark.describe())
    for item in found.set_aside:
        note(item.describe())
    for sentence in warn_few_documents(found.documents):
        note(sentence)
    if warning := warn_overlap(found):
        note(warning)
