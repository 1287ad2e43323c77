"""`alembert augment`: labelled examples to more of them, words replaced and labels carried along."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    AsJson,
    ConfigFile,
    DeviceRunOptions,
    Overwrite,
    assignments_option,
    data_option,
    find_model,
    note_items,
    output_option,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.inputs import expand_patterns, list_input_files
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadSetting, require_training
from alembert.hardware.torch_settings import resolve_device
from alembert.infer.task_model import TaskModel
from alembert.settings import apply_layers, read_layers, split_table
from alembert.tasks.example import ReadResult
from alembert.tasks.files import has_task, read_task
from alembert.tasks.task import AnyTask, get_task_class
from alembert.terminal import ProgressBar, escape_controls, note, print_json
from alembert.text.lexicon import parse_lexicon_option, read_lexicon
from alembert.train.augment import AugmentSettings

if TYPE_CHECKING:
    from alembert.files.checkpoint import Checkpoint
    from alembert.train.augment.augment import AugmentResult

augmentation_option = partial(typer.Option, rich_help_panel="Augmentation")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class AugmentRunOptions(DeviceRunOptions):
    """Options of `augment` beside its settings."""

    words: str | None = None
    """Another model, with a masked LM head, that proposes the words; none: the model itself."""
    originals: bool = True
    """Write the originals before their copies."""


def augment(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model that proposes words: a checkpoint folder, fine-tuned or not, or hub:organisation/name.",
        ),
    ],
    train: Annotated[list[str], data_option(metavar="FILE", help="Labelled examples; may be repeated.")],
    out: Annotated[Path, output_option(metavar="FILE", help="File to write the examples to, such as augmented.jsonl.")],
    *,
    task: Annotated[
        str | None, data_option(metavar="NAME", help="Task of the examples, if the model has none or several.")
    ] = None,
    dictionary: Annotated[
        list[str] | None,
        data_option(metavar="TYPE=FILE", help="Lexicon of entity names of a type, for --entities; may be repeated."),
    ] = None,
    copies: Annotated[int | None, augmentation_option(min=1, help="Copies of each example (default: 10).")] = None,
    entities: Annotated[
        float | None,
        augmentation_option(help="Probability that an entity is replaced by another of its type (default: 0)."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    assignments: Annotated[
        list[str] | None, assignments_option(AugmentSettings(), read=ReadOptions(), run=AugmentRunOptions())
    ] = None,
) -> None:
    """Augment labelled examples as TinyBERT does: replace words by others that fit the context, and keep the labels.

    alembert augment work/ner --train train.tsv --copies 10 --out augmented.jsonl
    """
    require_training()
    from alembert.train.augment.augment import augment as run
    from alembert.train.augment.augment import write_augmented

    layers = read_layers(config, assignments, {"copies": copies, "entity_probability": entities})
    run_options, layers = split_table(AugmentRunOptions(), "run", layers)
    options, layers = split_table(ReadOptions(), "read", layers)
    settings = apply_layers(AugmentSettings(), layers)
    if dictionary and not settings.entity_probability:
        raise BadSetting("--dictionary names entities for --entities, which is 0. Give a probability, such as 0.3.")
    sources = expand_patterns(fetch_to_temporary_folder(train))
    files = list_input_files(sources)
    _check_out(out, files.paths, overwrite=overwrite)
    lexicons = [
        read_lexicon(path, kind)
        for kind, path in (parse_lexicon_option(word, "dictionary") for word in dictionary or ())
    ]
    checkpoint, opened, reading = _open_examples(model, task, files.paths, options, run_options.device)
    reading = _with_unknown_marked(opened, reading, sources)
    if run_options.words is not None:
        checkpoint = _open_checkpoint(run_options.words, run_options.device)
    with ProgressBar(sys.stderr) as bar:
        result = run(checkpoint, opened, reading.examples, settings, lexicons=lexicons, on_progress=bar.show)
    write_augmented(out, opened, (*(reading.examples if run_options.originals else ()), *result.examples))
    for sentence in (*(warning for lexicon in lexicons for warning in lexicon.warnings()), *result.notes):
        note(sentence)
    _print(result, reading.examples, out, as_json)
    note_items((*reading.remarks, *files.remarks(sources)), reading.set_aside)
    if reading.set_aside:
        raise typer.Exit(SET_ASIDE)


def _check_out(out: Path, inputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse before the long work what could not be written after it."""
    if out.is_dir() or not out.parent.is_dir():
        raise BadFile(f"{out} cannot be written: it is a folder, or its folder is not there. Make the folder first.")
    if out.exists() and (not overwrite or out.resolve() in {path.resolve() for path in inputs}):
        raise BadFile(f"{out} is there already. Choose another name, or give --overwrite if it is not an input.")


def _open_examples(
    model: str, name: str | None, files: Sequence[Path], options: ReadOptions, device: str
) -> tuple[Checkpoint, AnyTask, ReadResult[Any]]:
    """Open the model, and read the examples of its task; of a model without one, of the task that is named."""
    from alembert.infer.engine_torch import TorchEngine

    folder = find_model(model)
    if has_task(folder):
        saved = read_task(folder, name)  # a task that the model has not is refused before its weights are read
        engine = TorchEngine.open(folder, resolve_device(device))
        tuned = TaskModel.from_engine(engine, saved)
        reading = _require_examples(tuned.read(files, options))
        tuned.task.check(reading.examples)
        tuned.task.check_reading(options, files)
        return engine.checkpoint, tuned.task, reading
    checkpoint = _open_checkpoint(folder, device)
    if name is None:
        raise BadSetting(
            f"{model} was not fine-tuned for a task, so it does not say what the examples are. Name the task: --task tag."
        )
    kind = get_task_class(name)
    reading = _require_examples(kind.read(files, kind.settings_class(), options))
    learnt = kind.learn(reading.examples, kind.settings_class())
    learnt.check_reading(options, files)
    return checkpoint, learnt, reading


def _with_unknown_marked(task: AnyTask, reading: ReadResult[Any], sources: Sequence[Path]) -> ReadResult[Any]:
    """Let the task mark what the files leave open: copies are to train on, and one file does not tell it any more."""
    examples, notes = task.mark_unknown(reading.examples, task.settings, sources)
    for sentence in notes:
        note(sentence)
    return replace(reading, examples=tuple(examples))


def _require_examples(reading: ReadResult[Any]) -> ReadResult[Any]:
    if not reading.examples:
        first = reading.set_aside[0].reason if reading.set_aside else "the files are empty"
        raise BadFile(f"There is no example to augment: {first}. Check the files and their format.")
    return reading


def _open_checkpoint(folder: str | Path, device: str) -> Checkpoint:
    from alembert.files import checkpoint as checkpoints

    checkpoint = checkpoints.open(folder)
    checkpoint.model.to(resolve_device(device))
    return checkpoint


def _print(result: AugmentResult, originals: Sequence[Any], out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(out), **result.counts})
        return
    count = result.counts
    share = count["replaced"] / max(1, count["copies"])
    print(f"{count['copies']:,} copies of {count['examples']:,} examples, {share:.1f} replacements in each")
    print(
        f"left out: {count['same']:,} equal to their original or to another copy, {count['lost']:,} whose answers would "
        "have become unclear"
    )
    print(escape_controls(f"written to {out}"))
    step = max(1, len(result.examples) // _SHOWN)
    for number in range(0, len(result.examples), step)[:_SHOWN]:
        before, after = originals[result.origins[number]], result.examples[number]
        print(escape_controls(f"- {' | '.join(before.texts)}"))
        print(escape_controls(f"+ {' | '.join(after.texts)}"))
