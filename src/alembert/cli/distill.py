"""`alembert distill`: a teacher to a small student, on plain text or for the teacher's task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.distill_compare import (
    ComparisonFile,
    comparison_folder,
    drop_compare_types,
    show_comparison,
    train_controls,
)
from alembert.cli.finetune import show_scores
from alembert.cli.options import Device, ForgetTraining, Overwrite, ScoresAsJson, ShowConfig, Types, find_model
from alembert.cli.output import SET_ASIDE
from alembert.cli.pretrain import parse_count
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import AlreadyDone
from alembert.hardware.torch_settings import resolve_device
from alembert.settings import apply_changes, read_toml, to_toml
from alembert.tasks.files import TASK_FILE, apply_training_columns, read_task_table
from alembert.terminal import ProgressBar, note, print_json, say_all
from alembert.train.distill.settings import (
    GENERAL_PRESETS,
    PRESETS,
    DistillSettings,
    GeneralDistillSettings,
    check_preset,
    get_preset,
)

if TYPE_CHECKING:
    from alembert.train.distill.general import GeneralDistillRunResult
    from alembert.train.distill.stages import DistillJob
    from alembert.train.run import RunContext

FileList = list[Path] | None
ExampleFiles = list[str] | None


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(
            metavar="TEACHER",
            help="A fine-tuned model, or hub:organisation/name; with --corpus, one that is not fine-tuned.",
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(help="4x312 (layers x width), half (of the teacher's layers), or a folder."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the student goes; run again to continue.")
    ] = None,
    *,
    corpus: Annotated[
        FileList, typer.Option(metavar="INPUT", help="General stage: a Corpus folder, or files with text.")
    ] = None,
    train: Annotated[ExampleFiles, typer.Option(metavar="FILE", help="Task stage: examples to train on.")] = None,
    dev: Annotated[
        ExampleFiles, typer.Option(metavar="FILE", help="Examples to judge by; a part of --train if none.")
    ] = None,
    data: Annotated[ExampleFiles, typer.Option(metavar="FILE", help="Examples that are divided by --split.")] = None,
    split: Annotated[
        str | None, typer.Option(help="Shares of training, development and test in --data; 80/10/10.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Which task, if the teacher has several.")] = None,
    types: Types = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A new student's own tokenizer; only answers are then taught."),
    ] = None,
    augment: Annotated[
        int | None,
        typer.Option(min=0, help="New texts made of each training example; the teacher labels them."),
    ] = None,
    texts: Annotated[
        FileList, typer.Option(metavar="INPUT", help="Plain text whose sentences the teacher labels as well.")
    ] = None,
    words: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="A model with a masked LM that gives the words of --augment."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="fast (a student that begins as its teacher, in a few passes), or tinybert (as published)."),
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="How the student begins: auto, teacher (its layers) or scratch.")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Task stage: passes that teach the answers.")] = None,
    inside_epochs: Annotated[
        float | None,
        typer.Option(help="Task stage: passes before them that teach what happens inside; 0 for none."),
    ] = None,
    hours: Annotated[float | None, typer.Option(help="General stage: length of the run by the clock.")] = None,
    tokens: Annotated[str | None, typer.Option(help="General stage: length of the run in tokens: 500k, 20M.")] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate, in the task stage of the answers.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides about all chance.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train so many times, and report mean and spread.")] = 1,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Train the student without distillation and without augmentation too; compare all on this file.",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML, on top of the preset.")] = None,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where what the teacher says is kept.")] = None,
    device: Device = "auto",
    forget_training: ForgetTraining = False,
    overwrite: Overwrite = False,
    show_config: ShowConfig = False,
    as_json: ScoresAsJson = False,
) -> None:
    """Distil a small student from a teacher. A stopped run continues with the same command.

    With --corpus it is the general stage, on plain text; with --train or --data the stage for the teacher's task.
    """

    given: dict[str, Any] = {"seed": seed, "student": None if start is None else {"start": start}}
    if corpus:
        _check_unused(
            "--corpus",
            {
                "--train": train,
                "--dev": dev,
                "--data": data,
                "--split": split,
                "--task": task,
                "--types": types or None,
                "--augment": augment,
                "--texts": texts,
                "--words": words,
                "--vocabulary": vocabulary,
                "--epochs": epochs,
                "--inside-epochs": inside_epochs,
                "--seeds": None if seeds == 1 else seeds,
                "--compare": compare,
                "--forget-training": forget_training or None,
            },
        )
        given |= {"hours": hours, "tokens": _count(tokens), "optimiser": _table(rate=rate)}
        general = _general_settings(preset, config, _present(given))
        if show_config:
            print(to_toml(general), end="")
            return
        found = _check_required(teacher, student, out)
        _run_general(*found, corpus, general, _RunOptions(cache, device, overwrite), as_json)
        return
    _check_unused("a task", {"--hours": hours, "--tokens": tokens})
    given |= {
        "augment": _table(copies=augment),
        "intermediate": _epochs_table(inside_epochs),
        "prediction": _table(epochs=epochs, optimiser=_table(rate=rate)),
        "forget_training": forget_training or None,
    }
    teacher = None if teacher is None else str(find_model(teacher))
    settings = _task_settings(preset, config, _present(given), _teacher_task(teacher, task))
    if show_config:
        print(to_toml(settings), end="")
        return
    teacher, student, out = _check_required(teacher, student, out)
    files = _task_files(train, dev, data, split)
    own_types = drop_compare_types(types, compare, *files)
    more = {"texts": tuple(texts or ()), "words": words, "vocabulary": vocabulary}
    wish = _build_distillation(teacher, student, task, files, split, own_types, **more)
    test = None if compare is None else ComparisonFile(compare, tuple(types or ()))
    _run_task(wish, out, settings, seeds, _RunOptions(cache, device, overwrite), as_json, test=test)


class _RunOptions:
    """Where a run computes and keeps things."""

    def __init__(self, cache: Path | None, device: str, overwrite: bool) -> None:
        self.cache, self.device, self.overwrite = cache, device, overwrite

    def run_context(self, **told: Any) -> RunContext:
        from alembert.train.run import RunContext

        return RunContext(
            cache=self.cache,
            device=resolve_device(self.device),
            overwrite=self.overwrite,
            log=note,
            print_table=say_all,
            **told,
        )


def _check_required(teacher: str | None, student: str | None, out: Path | None) -> tuple[str, str, Path]:
    if teacher is None or student is None or out is None:
        raise typer.BadParameter("give TEACHER, --student and --out; or --show-config")
    return teacher, student, out


def _task_files(
    train: ExampleFiles, dev: ExampleFiles, data: ExampleFiles, split: str | None
) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the files of the task stage as paths; those of a store or of stdin are copied here."""

    if not (train or data):
        raise typer.BadParameter("give --corpus for the general stage, or --train or --data for a task")
    if split is not None and not data:
        raise typer.BadParameter("--split divides the files of --data, which was not given")
    return (
        fetch_to_temporary_folder(train or ()),
        fetch_to_temporary_folder(dev or ()),
        fetch_to_temporary_folder(data or ()),
    )


def _check_unused(with_what: str, flags: dict[str, Any]) -> None:
    if wrong := [name for name, value in flags.items() if value is not None]:
        raise typer.BadParameter(f"{' and '.join(wrong)} cannot be used with {with_what}")


def _count(tokens: str | None) -> int | None:

    return None if tokens is None else parse_count(tokens)


def _table(**values: Any) -> dict[str, Any] | None:
    return _present(values) or None


def _present(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}


def _epochs_table(epochs: float | None) -> dict[str, Any] | None:
    if epochs is None:
        return None
    return {"epochs": epochs, "skip": False} if epochs else {"skip": True}


def _general_settings(preset: str | None, config: Path | None, changes: dict[str, Any]) -> GeneralDistillSettings:

    name, table = _read_preset(preset, config)
    settings = GENERAL_PRESETS[name]()
    return apply_changes(apply_changes(settings, table, str(config)), changes, "The command line")


def _teacher_task(teacher: str | None, task: str | None) -> str | None:
    """Find what the teacher was fine-tuned for; none: no teacher was given."""

    return None if teacher is None else str(read_task_table(Path(teacher), task)["task"])


def _task_settings(
    preset: str | None, config: Path | None, changes: dict[str, Any], task: str | None
) -> DistillSettings:

    name, table = _read_preset(preset, config)
    settings = PRESETS[name]() if task is None else get_preset(name, task)
    return apply_changes(apply_changes(settings, table, str(config)), changes, "The command line")


def _read_preset(preset: str | None, config: Path | None) -> tuple[str, dict[str, Any]]:
    """Find the preset, of the command line or of the file, and what the file changes."""

    table = read_toml(config) if config else {}
    in_file = str(table.pop("preset", "fast"))
    return check_preset(preset or in_file), table


def _build_distillation(
    teacher: str,
    student: str,
    task: str | None,
    files: Sequence[Sequence[Path]],
    split: str | None,
    types: tuple[str, ...],
    **more: Any,
) -> DistillJob:
    from alembert.train.distill.stages import DistillJob
    from alembert.train.finetune.data import DataFiles

    train, dev, data = map(tuple, files)
    training = read_task_table(Path(teacher), task).get("training", {})
    options = apply_training_columns(training, ReadOptions(types=types), str(Path(teacher) / TASK_FILE))
    found = DataFiles(train=train, dev=dev, unsplit=data, split=split or "80/10/10", options=options)
    return DistillJob(teacher=teacher, student=student, data=found, task=task, **more)


def _run_general(
    teacher: str,
    student: str,
    out: Path,
    corpus: list[Path],
    settings: GeneralDistillSettings,
    place: _RunOptions,
    as_json: bool,
) -> None:
    from alembert.train.distill.general import distill_general
    from alembert.train.distributed import is_first_process

    with ProgressBar(sys.stderr, plain_every=60) as bar:
        around = place.run_context(on_progress=bar.show_training, on_reading=bar.show)
        done = distill_general(teacher, student, corpus, out, settings=settings, around=around)
    if is_first_process():
        _show_general(done, out, as_json)


def _show_general(done: GeneralDistillRunResult, out: Path, as_json: bool) -> None:

    if as_json:
        print_json({"folder": str(out), "before": done.before, "after": done.after, "run": asdict(done.done)})
        return
    print(f"{out}: distance to the teacher on held-out text, before and after")
    for name, value in done.after.items():
        print(f"  {name:12} {done.before.get(name, float('nan')):8.4f} -> {value:.4f}")
    print(f"Next: alembert distill FINE_TUNED_TEACHER --student {out} --train FILE --dev FILE --out FOLDER")


def _run_task(
    wish: DistillJob,
    out: Path,
    settings: DistillSettings,
    seeds: int,
    place: _RunOptions,
    as_json: bool,
    *,
    test: ComparisonFile | None,
) -> None:
    from alembert.train.distill.distill import distill as run
    from alembert.train.distributed import is_first_process

    with ProgressBar(sys.stderr, plain_every=60) as bar:
        around = place.run_context(on_progress=bar.show_training, on_reading=bar.show)
        try:
            done = run(wish, out, settings, seeds=seeds, around=around)
        except AlreadyDone:
            if test is None:
                raise
            done = None  # what was stopped is the comparison
        others = {} if test is None else train_controls(wish, out, settings, seeds, around)
    if is_first_process():
        if done is not None:
            show_scores(done, out, as_json)
        if test is not None:
            show_comparison({"student": out, **others}, wish, test, comparison_folder(out))
        if done is not None and any(report.set_aside.count for report in done.reports.values()):
            raise typer.Exit(SET_ASIDE)
