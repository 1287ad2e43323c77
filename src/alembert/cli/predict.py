"""`alembert predict`: texts in, predictions of fine-tuned models out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    MODEL_HELP,
    MinPrecision,
    MinScore,
    OneTask,
    ReadTable,
    assignments_option,
    data_option,
    find_file_path,
    find_model,
    for_each_text,
    note_items,
    output_option,
    read_options,
    withheld_note,
)
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.infer.engines import open_torch_engine
from alembert.infer.language_model import next_sentence_probability
from alembert.infer.task_model import TaskExamples, TaskModel
from alembert.infer.triples import TripleFilter, TripleModel
from alembert.settings import read_layers
from alembert.terminal import escape_controls, note, print_json

triples_option = partial(typer.Option, rich_help_panel="Triples")
FINE_TUNED = "fine-tuned models"


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Texts, one per line on stdin if none; separate the two texts of a pair with a tab. "
            "If the first is a folder, it is a second model: a tagger and a relation model find triples.",
        ),
    ] = None,
    task: OneTask = None,
    min_score: MinScore = None,
    min_precision: MinPrecision = None,
    pair: Annotated[
        list[str] | None,
        triples_option(metavar="TYPE:TYPE", help="Only relations between entities of these types; may be repeated."),
    ] = None,
    min_triple_score: Annotated[
        float | None, triples_option(metavar="SCORE", help="Withhold triples below this score, but not their entities.")
    ] = None,
    is_next: Annotated[
        bool, data_option("--next", help="Print the probability that the second of two TEXTs follows the first.")
    ] = False,
    lexicon: Annotated[
        list[str] | None,
        data_option(metavar="LABEL=FILE", help="Add terms to a lexicon that the tagger was trained with."),
    ] = None,
    file: Annotated[
        str | None,
        data_option(
            metavar="FILE",
            help="Predict the texts of a file or folder (- for stdin): tables, JSON lines, documents, or .txt with one "
            "text per line.",
        ),
    ] = None,
    as_json: Annotated[bool, output_option("--json", help="Print one JSON object per text.")] = False,
    assignments: Annotated[list[str] | None, assignments_option(ReadTable())] = None,
) -> None:
    """Predict with a fine-tuned model."""
    thresholds = {"min_score": min_score, "min_precision": min_precision}
    for_triples = {"pair": pair, "min_triple_score": min_triple_score}
    for_file = {"set": assignments or None}
    fine_tuned = {"task": task, "file": file, "lexicon": lexicon, **thresholds, **for_triples, **for_file}
    _refuse_files(texts or [], file)
    if is_next:
        _refuse(fine_tuned, FINE_TUNED)
        _predict_next(model, texts or [], as_json)
    elif file:
        _refuse(for_triples, "triples")
        options = read_options(read_layers(None, assignments, {}))
        (path,) = fetch_to_temporary_folder([file])
        predict_file(_open(model, task, thresholds, lexicon), path, options, as_json)
    else:
        _refuse(for_file, "--file")
        _predict_texts(model, texts or [], task, thresholds, for_triples, lexicon, as_json)


def _open(model: str, task: str | None, thresholds: dict[str, Any], lexicon: list[str] | None) -> TaskModel:
    opened = TaskModel.open(find_model(model), task=task).with_threshold(**thresholds).with_lexicons(lexicon or ())
    for sentence in opened.lexicon_notes():
        note(sentence)
    return opened


def _refuse_files(texts: Sequence[str], file: str | None) -> None:
    """Refuse texts that are meant to be files; their names would be predicted."""
    if texts and file:
        raise BadSetting("Give either texts or --file, not both.")
    if path := find_file_path(texts):
        raise BadSetting(
            f"{path} is a file, and texts were expected. To predict what is in it use --file {path}, or `alembert annotate` "
            "for documents; to predict these very words, give them on stdin."
        )


def _predict_texts(
    model: str,
    texts: list[str],
    task: str | None,
    thresholds: dict[str, Any],
    for_triples: dict[str, Any],
    lexicon: list[str] | None,
    as_json: bool,
) -> None:
    if texts and os.path.isdir(texts[0]):  # noqa: PTH112 (Path.is_dir raises for a text too long for a name)
        _refuse({"task": task, "lexicon": lexicon}, "one model")
        folders = find_model(model), find_model(texts[0])
        triples = TripleModel.open(*folders, _triple_filter(**for_triples)).with_threshold(**thresholds)
        predict_triples(triples, texts[1:], as_json)
    else:
        _refuse(for_triples, "triples")
        predict_texts(_open(model, task, thresholds, lexicon), texts, as_json)


def _triple_filter(pair: list[str] | None, min_triple_score: float | None) -> TripleFilter:
    types = [tuple(word.split(":")) for word in pair or []]
    for word, names in zip(pair or [], types, strict=True):
        if len(names) != 2 or not all(names):
            raise BadSetting(f"--pair is {word!r}; expected two types, such as Chemical:Gene.")
    return TripleFilter(types=tuple((head, tail) for head, tail in types), min_score=min_triple_score or 0.0)


def _predict_next(model: str, texts: Sequence[str], as_json: bool) -> None:
    if len(texts) != 2:
        were_given = "1 was given" if len(texts) == 1 else f"{len(texts)} were given"
        raise BadSetting(
            f"--next needs two texts, the first sentence and the second; {were_given}. Put each into quotes."
        )
    first, second = texts
    probability = next_sentence_probability(open_torch_engine(model), first, second)
    if as_json:
        print_json({"first": first, "second": second, "probability": probability})
    else:
        print(f"{probability:.4f}  {escape_controls(second)}")


def _refuse(options: dict[str, Any], owner: str) -> None:
    option = next((name for name, value in options.items() if value is not None), None)
    if option:
        raise BadSetting(f"--{option.replace('_', '-')} belongs to {owner}. Leave it out.")


def predict_texts(model: TaskModel, texts: Sequence[str], as_json: bool) -> None:
    """Predict the given texts, or each line of stdin if there are none."""
    lines: list[str] = []

    def take(line: str) -> None:
        model.check(model.examples_from_texts([line]))
        lines.append(line)

    set_aside = for_each_text(texts, take)
    _print(model, model.examples_from_texts(lines), as_json)
    if set_aside:
        raise typer.Exit(SET_ASIDE)


def predict_file(model: TaskModel, file: Path, options: ReadOptions, as_json: bool) -> None:
    """Predict the texts of a file, and name what of it cannot be used."""
    reading = model.read_texts(file, options)
    note_items(reading.remarks, reading.set_aside)
    if not reading.examples:
        raise BadInput(f"{file} has no text to predict. Check the file, and what was set aside.")
    _print(model, reading.examples, as_json)
    if reading.set_aside:
        raise typer.Exit(SET_ASIDE)


def _print(model: TaskModel, examples: Sequence[TaskExamples], as_json: bool) -> None:
    model.check(examples)
    for sentence in model.data_notes(examples):
        note(sentence)
    withheld = 0
    for example, predictions in zip(examples, model.predict_all(examples), strict=True):
        withheld += sum(prediction.coverage.withheld for prediction in predictions.values())
        if as_json:
            print_json(model.to_record(example, predictions))
        else:
            _show(next(iter(example.values())).texts, model.to_lines(example, predictions))
    if withheld:
        note(withheld_note(withheld, (part.min_score for part in model.tasks.values())))


def predict_triples(model: TripleModel, texts: Sequence[str], as_json: bool) -> None:
    """Find entities and their relations in the given texts, or in each line of stdin if there are none."""
    lines: list[str] = []
    for_each_text(texts, lines.append)
    unread = withheld = 0
    for extraction in model.extract(lines):
        unread += extraction.unread
        withheld += extraction.withheld
        if as_json:
            print_json(extraction.to_dict())
            continue
        print(escape_controls(extraction.text))
        for line in extraction.lines():
            print(f"  {escape_controls(line)}", flush=True)
    if unread:
        note(f"{unread} pairs of entities are too far apart for the relation model, and were not read")
    if withheld:
        thresholds = (model.tagger.only.min_score, model.relater.only.min_score, model.filter.min_score)
        note(withheld_note(withheld, thresholds))


def _show(texts: Sequence[str], lines: Sequence[str]) -> None:
    print(escape_controls(" | ".join(texts)))
    for line in lines:
        print(f"  {escape_controls(line)}", flush=True)
