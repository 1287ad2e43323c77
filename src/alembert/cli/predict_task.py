"""`alembert predict` with fine-tuned models: what it reads and prints. Loaded with the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.lines import each_text
from alembert.cli.options import withheld_note
from alembert.errors import BadInput
from alembert.infer.task_model import TaskModel
from alembert.terminal.output import note, print_json, visible

if TYPE_CHECKING:
    from pathlib import Path

    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.task_model import MultiTaskModel
    from alembert.infer.triples import TripleModel


def predict_texts(model: TaskModel | MultiTaskModel, texts: Sequence[str], as_json: bool) -> None:
    """Predict the given texts, or each line of stdin if there are none."""
    lines: list[str] = []

    def take(line: str) -> None:
        model.task.check(model.task.of_texts([line]))
        lines.append(line)

    set_aside = each_text(texts, take)
    examples: list[Any] = model.task.of_texts(lines)
    _print(model, examples, as_json)
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def predict_file(model: TaskModel, file: Path, options: ReadOptions, as_json: bool) -> None:
    """Predict the texts of a file, and name what of it cannot be used."""
    reading = model.read_texts(file, options)
    for remark in reading.remarks:
        note(remark.in_words())
    for item in reading.set_aside:
        note(item.in_words())
    if not reading.examples:
        raise BadInput(f"{file} has no text to predict. Check the file, and what was set aside.")
    _print(model, reading.examples, as_json)
    if reading.set_aside:
        raise typer.Exit(SET_ASIDE)


def _print(model: TaskModel | MultiTaskModel, examples: Sequence[Any], as_json: bool) -> None:
    model.task.check(examples)
    for sentence in model.task.notes(examples):
        note(sentence)
    withheld = 0
    for example, prediction in zip(examples, model.predictions(examples), strict=True):
        answers = prediction.values() if isinstance(prediction, Mapping) else [prediction]
        withheld += sum(each.coverage.withheld for each in answers)
        if as_json:
            print_json(model.task.record(example, prediction))
        else:
            _show(example.texts, model.task.show(example, prediction))
    if withheld:
        models = [model] if isinstance(model, TaskModel) else model.models.values()
        note(withheld_note(withheld, (each.min_score for each in models)))


def predict_triples(model: TripleModel, texts: Sequence[str], as_json: bool) -> None:
    """Find entities and their relations in the given texts, or in each line of stdin if there are none."""
    lines: list[str] = []
    each_text(texts, lines.append)
    unread = withheld = 0
    for found in model.extract(lines):
        unread += found.unread
        withheld += found.withheld
        if as_json:
            print_json(found.as_json())
            continue
        print(visible(found.text))
        for line in found.lines():
            print(f"  {visible(line)}", flush=True)
    if unread:
        note(f"{unread} pairs of entities are too far apart for the relation model, and were not read")
    if withheld:
        thresholds = (model.tagger.min_score, model.relater.min_score, model.wanted.least)
        note(withheld_note(withheld, thresholds))


def _show(texts: Sequence[str], lines: Sequence[str]) -> None:
    print(visible(" | ".join(texts)))
    for line in lines:
        print(f"  {visible(line)}", flush=True)
