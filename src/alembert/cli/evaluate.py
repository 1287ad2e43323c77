"""`alembert evaluate`: how good a fine-tuned model is, and how far the number can be trusted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    LABELLED_HELP,
    MODEL_HELP,
    AsJson,
    DeviceRunOptions,
    LabelColumn,
    ReadTable,
    SplitPart,
    TaskName,
    TextColumn,
    assignments_option,
    check_page,
    data_option,
    find_model,
    note_items,
    output_option,
    read_options,
    write_page,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.jobs import make_source_names
from alembert.errors import BadSetting
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
from alembert.settings import read_layers, split_table
from alembert.terminal import ProgressBar, escape_controls, note, print_json


@dataclass(frozen=True, kw_only=True)
class EvaluateRunOptions(DeviceRunOptions):
    """Options of `evaluate` that most calls leave alone."""

    bootstrap_samples: int = 1000
    """Bootstrap samples for the confidence intervals."""
    speed: bool = True
    """Measure how fast the compared models are on this machine."""

    def __post_init__(self) -> None:
        if self.bootstrap_samples < 1:
            raise BadSetting(f"`bootstrap_samples` is {self.bootstrap_samples}; expected 1 or more.")


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=LABELLED_HELP)],
    *,
    task: TaskName = None,
    part: SplitPart = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    against: Annotated[
        list[str] | None, data_option(metavar="MODEL", help="Another model to compare with; may be repeated.")
    ] = None,
    report: Annotated[Path | None, output_option(metavar="FILE", help="Also write an HTML page with plots.")] = None,
    as_json: AsJson = False,
    assignments: Annotated[list[str] | None, assignments_option(ReadTable(), run=EvaluateRunOptions())] = None,
) -> None:
    """Score a fine-tuned model on labelled files, with confidence intervals, coverage and calibration."""
    check_page(report)
    run, layers = split_table(EvaluateRunOptions(), "run", read_layers(None, assignments, {}))
    options = read_options(layers, text, label)
    folders = [find_model(name) for name in (model, *(against or ()))]
    device = choose_device(folders, run.device)
    models = open_models(folders, device, task)
    if own := _files_by_task(models[0], files):
        if against or report:
            raise typer.BadParameter("--against and --report are for one task: give its name with --task NAME")
        with ProgressBar(sys.stderr) as bar:
            evaluations = evaluate_tasks(
                models[0], own, options, part=part, rounds=run.bootstrap_samples, device=device, on_progress=bar.show
            )
        _show_all(evaluations, as_json)
        return
    with ProgressBar(sys.stderr) as bar:
        scores = score_models(
            models,
            fetch_to_temporary_folder(files),
            options,
            part=part,
            rounds=run.bootstrap_samples,
            on_progress=bar.show,
        )
        evaluation = build_evaluation(scores, device=device, on_progress=bar.show)
        comparison = _compare(scores, folders, device, run.speed, bar.show) if against else None
    if report is not None:
        write_page(report, render_evaluation_page(evaluation, comparison))
    if as_json:
        print_json(evaluation.to_table() | ({"comparison": comparison.to_table()} if comparison else {}))
    else:
        _print(evaluation, comparison)
    _warn(evaluation)
    if evaluation.set_aside:
        raise typer.Exit(SET_ASIDE)


def _files_by_task(model: TaskModel, words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the files of each task of a model that has several, if they are given as NAME=FILE; empty: they are not."""
    named = [word.partition("=") for word in words]
    if len(model.tasks) < 2 or not all(name in model.tasks and file for name, _, file in named):
        return {}
    by_task: dict[str, list[str]] = {}
    for name, _, file in named:
        by_task.setdefault(name, []).append(file)
    return {name: fetch_to_temporary_folder(files) for name, files in by_task.items()}


def _show_all(evaluations: Mapping[str, Evaluation], as_json: bool) -> None:
    if as_json:
        print_json({name: evaluation.to_table() for name, evaluation in evaluations.items()})
    for name, evaluation in evaluations.items():
        if not as_json:
            print(f"{name}:")
            _print(evaluation, None)
            print()
        _warn(evaluation)
    if any(evaluation.set_aside for evaluation in evaluations.values()):
        raise typer.Exit(SET_ASIDE)


def _compare(
    scores: ModelComparison, folders: Sequence[Path], device: str, speed: bool, on_progress: ProgressCallback
) -> ComparisonReport:
    """Compare all models with the first that was named after the evaluated one."""
    # The folder in which one stands has no name, and that of a seed is a number.
    short = make_source_names([folder if folder.name else folder.resolve() for folder in folders])
    names = [str(path) if name.isdecimal() else name for name, path in zip(short, folders, strict=True)]
    seconds = MEASURE_SECONDS if speed else None
    return build_comparison(scores, names, reference=1, device=device, speed_seconds=seconds, on_progress=on_progress)


def _print(evaluation: Evaluation, comparison: ComparisonReport | None) -> None:
    print(escape_controls(f"{evaluation.model}, task {evaluation.task}, on {', '.join(evaluation.files)}"))
    print(escape_controls(evaluation_headline(evaluation)))
    for table in evaluation_tables(evaluation):
        print(f"\n{escape_controls(table.title)}")
        for line in table.lines():
            print(escape_controls(line))
    print()
    for sentence in evaluation_sentences(evaluation):
        print(escape_controls(sentence))
    if comparison:
        print()
        for line in comparison_lines(comparison):
            print(escape_controls(line))


def _warn(evaluation: Evaluation) -> None:
    note_items(evaluation.remarks, evaluation.set_aside)
    for sentence in warn_few_documents(evaluation.documents):
        note(sentence)
    if warning := warn_overlap(evaluation):
        note(warning)
