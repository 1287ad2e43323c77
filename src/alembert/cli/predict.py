"""`alembert predict`: texts in, predictions out."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.codes import SET_ASIDE
from alembert.cli.options import Delimiter
from alembert.errors import BadSetting

if TYPE_CHECKING:
    from alembert.infer.fill_mask import Engine, FilledMask
    from alembert.infer.triples import Wanted


def predict(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint or Export folder, or hub:organisation/name.")
    ],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts for a fine-tuned model, one a line on stdin if none; a tab parts the two of a pair. "
            "If the first is a folder, it is a second model: a tagger and a relation model find triples.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="One task of a model that has several; all of them if not given."),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE:TYPE", help="Triples: of entities of these types alone; may be repeated."),
    ] = None,
    least: Annotated[
        float | None, typer.Option(help="Triples: how sure the relation model has to be, 0 to 1.")
    ] = None,
    fill_mask: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="A text with one or more [MASK]; `-` reads one text per line from stdin."
        ),
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A text to continue; `-` reads one per line from stdin."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Fill masks: candidates to show for each; 5 if not given."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Continue: greedy (if not given), sample or beam.")
    ] = None,
    longest: Annotated[int | None, typer.Option(help="Continue: new tokens at most; 128.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sample: below 1 keeps to the likely, above 1 dares more.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample: draw from so many likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample: draw from the likeliest tokens of this total probability.")
    ] = None,
    beams: Annotated[int | None, typer.Option(help="Beam: rows side by side; 4.")] = None,
    count: Annotated[
        int | None, typer.Option(help="Sample, beam: texts for each prompt; 1 if not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Sample: the same seed draws the same texts; 0.")] = None,
    no_repeat: Annotated[
        int | None, typer.Option(help="Continue: n-grams of so many tokens occur only once.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Predict the texts of a file or folder (- for stdin): tables, JSON lines, documents, or .txt with one "
            "text a line.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="File: column of the text; two make pairs.")
    ] = None,
    delimiter: Delimiter = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Predict with a fine-tuned model; or say what stands at the masks of a text, or continue a text."""
    for_generate = {
        "method": method,
        "longest": longest,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "beams": beams,
        "count": count,
        "seed": seed,
        "no_repeat": no_repeat,
    }
    for_triples = {"pair": pair, "least": least}
    for_file = {"text": text, "delimiter": delimiter}
    if fill_mask is not None and generate is not None:
        raise BadSetting("--fill-mask and --generate were both given; `alembert predict` does one of them.")
    if texts and (fill_mask is not None or generate is not None):
        raise BadSetting(
            "Texts after the model are for fine-tuned models; --fill-mask and --generate have their own."
        )
    if fill_mask is not None or generate is not None:
        _refuse(for_triples, "triples")
        _refuse({"file": file, **for_file}, "fine-tuned models")
    if fill_mask is not None:
        _refuse(for_generate, "--generate")
        _fill_masks(model, fill_mask, top or 5, as_json)
    elif generate is not None:
        _refuse({"top": top}, "--fill-mask")
        _continue(model, generate, _given(for_generate), as_json)
    else:
        _refuse(for_generate, "--generate")
        _refuse({"top": top}, "--fill-mask")
        _refuse({} if file else for_file, "--file")
        _refuse_paths(texts or [], file)
        if file:
            _refuse(for_triples, "triples")
            _predict_file(model, file, task, for_file, as_json)
        else:
            _predict(model, texts or [], task, for_triples, as_json)


def _refuse_paths(texts: list[str], file: str | None) -> None:
    """Refuse texts that are meant to be files; their names would be predicted."""
    if texts and file:
        raise BadSetting("Give either texts or --file, not both.")
    path = next((text for text in texts if os.path.isfile(text)), None)  # noqa: PTH113 (a text may be too long)
    if path:
        raise BadSetting(
            f"{path} is a file, and texts were expected. To predict what is in it use --file {path}, or `alembert annotate` "
            "for documents; to predict these very words, give them on stdin."
        )


def _predict_file(model: str, file: str, task: str | None, for_file: dict[str, Any], as_json: bool) -> None:
    from alembert.cli.predict_task import predict_file
    from alembert.corpus.fetch import local_paths
    from alembert.corpus.readers.contract import ReadOptions
    from alembert.infer.task_model import TaskModel

    options = ReadOptions(text=tuple(for_file["text"] or ()), delimiter=for_file["delimiter"])
    (path,) = local_paths([file])
    predict_file(TaskModel.open(model, task=task), path, options, as_json)


def _predict(
    model: str, texts: list[str], task: str | None, for_triples: dict[str, Any], as_json: bool
) -> None:
    from alembert.cli.models import find_model
    from alembert.cli.predict_task import predict_texts, predict_triples
    from alembert.infer.several import open_model

    if texts and os.path.isdir(texts[0]):  # noqa: PTH112 (Path.is_dir raises for a text too long for a name)
        from alembert.infer.triples import TripleModel

        _refuse({"task": task}, "one model of several tasks")
        folders = find_model(model), find_model(texts[0])
        predict_triples(TripleModel.open(*folders, _wanted(**for_triples)), texts[1:], as_json)
    else:
        _refuse(for_triples, "triples")
        predict_texts(open_model(find_model(model), task=task), texts, as_json)


def _wanted(pair: list[str] | None, least: float | None) -> "Wanted":
    from alembert.infer.triples import Wanted

    types = [tuple(each.split(":")) for each in pair or []]
    for given, names in zip(pair or [], types, strict=True):
        if len(names) != 2 or not all(names):
            raise BadSetting(f"--pair is {given!r}; expected two types, such as Chemical:Gene.")
    return Wanted(types=tuple((head, tail) for head, tail in types), least=least or 0.0)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: dict[str, Any], owner: str) -> None:
    for name in _given(options):
        raise BadSetting(
            f"--{name.replace('_', '-')} belongs to {owner}, which was not asked for. Leave it out."
        )


def _continue(model: str, prompt: str, options: dict[str, Any], as_json: bool) -> None:
    from alembert.cli.generate import continue_lines, continue_texts
    from alembert.infer.engines import open_in_torch
    from alembert.tasks.decoding.settings import DecodeSettings

    settings = DecodeSettings(**options)
    engine = open_in_torch(model)
    if prompt == "-":
        continue_lines(engine, settings, as_json)
    else:
        continue_texts(engine, [prompt], settings, as_json)


def _fill_masks(model: str, text: str, top: int, as_json: bool) -> None:
    from alembert.cli.lines import each_line
    from alembert.infer.engines import open_in_torch

    engine = open_in_torch(model)
    if text != "-":
        _fill(engine, text, top, as_json)
    elif each_line(lambda line: _fill(engine, line, top, as_json)):
        raise typer.Exit(SET_ASIDE)


def _fill(engine: "Engine", text: str, top: int, as_json: bool) -> None:
    from alembert.cli.output import print_json
    from alembert.infer.fill_mask import fill_mask

    filled = fill_mask(engine, text, top)
    if as_json:
        print_json({"text": text, "masks": [asdict(mask) for mask in filled]})
    else:
        _show(text, filled)


def _show(text: str, filled: "tuple[FilledMask, ...]") -> None:
    from alembert.cli.output import visible

    print(visible(text))
    for mask in filled:
        print(f"  characters {mask.start}-{mask.end}")
        for candidate in mask.candidates:
            print(f"    {candidate.score:7.2%}  {visible(candidate.token)}")
