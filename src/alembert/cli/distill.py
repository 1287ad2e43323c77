"""`alembert distill`: a teacher to a small student, on plain text or for the teacher's task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.command import SET_ASIDE
from alembert.cli.distill_compare import (
    ComparisonFile,
    comparison_folder,
    drop_compare_types,
    show_comparison,
    train_controls,
)
from alembert.cli.finetune import show_scores
from alembert.cli.options import (
    DATA_PANEL,
    OUTPUT_PANEL,
    TRAINING_PANEL,
    Assignments,
    ConfigFile,
    DevFiles,
    Device,
    LearningRate,
    Overwrite,
    ScoresAsJson,
    Seeds,
    ShowConfig,
    TaskName,
    TrainFiles,
    UnsplitFiles,
    find_model,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import AlreadyDone
from alembert.extras import require_training
from alembert.hardware.torch_settings import resolve_device
from alembert.settings import apply_layers, read_layers, split_table, split_value, to_toml
from alembert.tasks.files import read_task
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

Files = list[str] | None


@dataclass(frozen=True, kw_only=True)
class DistillRunOptions:
    """What a run of `distill` is told beside its settings."""

    split: str | None = None
    """Shares of training, development and test in the files of --data; none: 80/10/10."""
    types: tuple[str, ...] = ()
    """tag: entity types that files annotate, as "TYPE,TYPE" for all or "FILE=TYPE,TYPE" for one; others are ignored."""
    vocabulary: str | None = None
    """Folder of a tokenizer for a new student; only the teacher's predictions can then be distilled."""
    words: str | None = None
    """Folder of a masked LM that proposes the words of augmentation; none: the teacher."""
    cache: str | None = None
    """Folder for the teacher's outputs; none: a hidden folder beside the result."""


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(
            metavar="TEACHER",
            help="A fine-tuned model, or hub:organisation/name; with --corpus, a pre-trained one.",
        ),
    ] = None,
    *,
    student: Annotated[
        str | None,
        typer.Option(
            help="4x312 (layers x hidden size), half (of the teacher's layers), or a folder.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="INPUT",
            help="General distillation: a Corpus folder, or files with text.",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    train: TrainFiles = None,
    dev: DevFiles = None,
    data: UnsplitFiles = None,
    task: TaskName = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="INPUT", help="Plain text whose sentences the teacher labels too.", rich_help_panel=DATA_PANEL
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="fast (the student starts from the teacher's layers) or tinybert (as published).",
            rich_help_panel=TRAINING_PANEL,
        ),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Epochs of the prediction stage.", rich_help_panel=TRAINING_PANEL)
    ] = None,
    intermediate_epochs: Annotated[
        float | None,
        typer.Option(
            help="Epochs of the stage before it, which distils layers; 0: none.", rich_help_panel=TRAINING_PANEL
        ),
    ] = None,
    learning_rate: LearningRate = None,
    seeds: Seeds = 1,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also train without distillation and without augmentation; compare all on this file.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to write the student to.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    overwrite: Overwrite = False,
    as_json: ScoresAsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    show_config: ShowConfig = False,
    device: Device = "auto",
) -> None:
    """Distil a small student from a teacher. To resume a stopped run, repeat the command.

    With --corpus the student learns on plain text; with --train or --data it learns the teacher's task.
    """
    rate = {"learning_rate": learning_rate}
    stages = {
        "intermediate": _stage_epochs(intermediate_epochs),
        "prediction": {"epochs": epochs, "optimiser": rate},
    }
    layers = read_layers(config, assignments, {"optimiser": rate} if corpus else stages)
    options, layers = split_table(DistillRunOptions(), "run", layers)
    in_file, layers = split_value("fast", "preset", layers)
    name = check_preset(preset or in_file)
    place = _RunContextOptions(options.cache, device, overwrite)
    if corpus:
        _check_unused(
            "--corpus",
            {
                "--train": train,
                "--dev": dev,
                "--data": data,
                "--task": task,
                "--texts": texts,
                "--epochs": epochs,
                "--intermediate-epochs": intermediate_epochs,
                "--seeds": None if seeds == 1 else seeds,
                "--compare": compare,
                "run.split": options.split,
                "run.types": options.types or None,
                "run.words": options.words,
                "run.vocabulary": options.vocabulary,
            },
        )
        general = apply_layers(GENERAL_PRESETS[name](), layers)
        if show_config:
            _print_settings(general, options)
            return
        _run_general(*_check_required(teacher, student, out), corpus, general, place, as_json)
        return
    teacher = None if teacher is None else str(find_model(teacher))
    kind = _teacher_task(teacher, task)
    settings = apply_layers(PRESETS[name]() if kind is None else get_preset(name, kind), layers)
    if show_config:
        _print_settings(settings, options)
        return
    teacher, student, out = _check_required(teacher, student, out)
    files = _task_files(train, dev, data, options.split)
    own_types = drop_compare_types(options.types, compare, *files)
    vocabulary = None if options.vocabulary is None else Path(options.vocabulary)
    more = {"texts": tuple(texts or ()), "words": options.words, "vocabulary": vocabulary}
    job = _build_distillation(teacher, student, task, files, options.split, own_types, **more)
    test = None if compare is None else ComparisonFile(compare, options.types)
    _run_task(job, out, settings, seeds, place, as_json, test=test)


def _print_settings(settings: Any, options: DistillRunOptions) -> None:
    print(to_toml(settings), f"\n[run]\n{to_toml(options)}", sep="", end="")


class _RunContextOptions:
    """Where a run computes and keeps things."""

    def __init__(self, cache: str | None, device: str, overwrite: bool) -> None:
        self.cache, self.device, self.overwrite = None if cache is None else Path(cache), device, overwrite

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


def _task_files(train: Files, dev: Files, data: Files, split: str | None) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the files of the task stage as paths; those of a store or of stdin are copied here."""
    require_training()

    if not (train or data):
        raise typer.BadParameter("give --corpus for the general stage, or --train or --data for a task")
    if split is not None and not data:
        raise typer.BadParameter("run.split divides the files of --data, which was not given")
    return (
        fetch_to_temporary_folder(train or ()),
        fetch_to_temporary_folder(dev or ()),
        fetch_to_temporary_folder(data or ()),
    )


def _check_unused(with_what: str, flags: dict[str, Any]) -> None:
    if wrong := [name for name, value in flags.items() if value is not None]:
        raise typer.BadParameter(f"{' and '.join(wrong)} cannot be used with {with_what}")


def _stage_epochs(epochs: float | None) -> dict[str, Any]:
    """Return the changes for a number of epochs, of which 0 skips the stage."""
    return {"skip": True} if epochs == 0 else {"epochs": epochs, "skip": None if epochs is None else False}


def _teacher_task(teacher: str | None, task: str | None) -> str | None:
    """Find what the teacher was fine-tuned for; none: no teacher was given."""

    return None if teacher is None else read_task(Path(teacher), task).kind


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
    options = read_task(Path(teacher), task).apply_columns(ReadOptions(types=types))
    found = DataFiles(train=train, dev=dev, unsplit=data, split=split or "80/10/10", options=options)
    return DistillJob(teacher=teacher, student=student, data=found, task=task, **more)


def _run_general(
    teacher: str,
    student: str,
    out: Path,
    corpus: list[Path],
    settings: GeneralDistillSettings,
    place: _RunContextOptions,
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
    place: _RunContextOptions,
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
