"""`alembert annotate`: a corpus of any size with what fine-tuned models find in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import (
    MODEL_HELP,
    ConfigFile,
    CountsAsJson,
    DeviceRunOptions,
    MinPrecision,
    MinScore,
    OneTask,
    Overwrite,
    RayRunOptions,
    RunOn,
    assignments_option,
    data_option,
    find_model,
    output_option,
    resolve_cluster,
    withheld_note,
)
from alembert.corpus.fetch import check_inputs
from alembert.errors import BadSetting
from alembert.hub import is_hub_id
from alembert.infer import annotate as verb
from alembert.infer.annotate import AnnotateSettings
from alembert.infer.annotate_chunks import RayExecutor
from alembert.infer.annotate_pipeline import Pipeline
from alembert.infer.engines import choose_device
from alembert.infer.stream_job import StreamRun
from alembert.settings import apply_layers, read_layers, split_table
from alembert.tasks.files import has_task
from alembert.terminal import ProgressBar, note, note_set_aside, print_json, say
from alembert.text.lexicon import parse_lexicon_options
from alembert.workers.ray import RayCluster


@dataclass(frozen=True, kw_only=True)
class AnnotateRunOptions(RayRunOptions, DeviceRunOptions):
    """Options of `annotate` that say where it computes."""


def annotate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files of any known format, folders of them, patterns, - for stdin, s3:// addresses, or one Corpus. Folders "
            "of models that come first annotate in the same pass.",
        ),
    ],
    out: Annotated[Path, output_option(metavar="FOLDER", help="Folder to write the annotated documents to.")],
    *,
    format: Annotated[  # noqa: A002
        str | None,
        output_option(
            metavar="NAME",
            help="jsonl (if not given), bioc, bioc-json, pubtator, brat, parquet, conll or label-studio.",
        ),
    ] = None,
    task: OneTask = None,
    min_score: MinScore = None,
    min_precision: MinPrecision = None,
    keep: Annotated[
        bool, output_option("--keep", help="Keep the annotations of the input beside those of the models.")
    ] = False,
    lexicon: Annotated[
        list[str] | None,
        data_option(
            metavar="LABEL=FILE",
            help="Terms for a lexicon that the tagger was trained with, or to find where the models find no entity.",
        ),
    ] = None,
    on: RunOn = "local",
    overwrite: Overwrite = False,
    as_json: CountsAsJson = False,
    config: ConfigFile = None,
    assignments: Annotated[list[str] | None, assignments_option(AnnotateSettings(), run=AnnotateRunOptions())] = None,
) -> None:
    """Annotate documents with fine-tuned models. To resume a stopped run, repeat the command."""
    layers = read_layers(config, assignments, {"format": format})
    run, layers = split_table(AnnotateRunOptions(), "run", layers)
    settings = apply_layers(AnnotateSettings(), layers)
    models, files = _split_models(model, inputs)

    cluster = resolve_cluster(on, run)
    if run.workers and not cluster:
        raise BadSetting("run.workers is for a cluster, here the model has all cores: add --on ray, or leave it out.")
    check_inputs(files)
    lexicons = {label: path.absolute() for label, path in parse_lexicon_options(lexicon or []).items()}
    options = {
        "task": task,
        "keep": keep,
        "device": choose_device(models, run.device),
        "min_score": min_score,
        "min_precision": min_precision,
        "lexicons": lexicons,
    }
    pipeline, executor = _open_pipeline(models, options, cluster)
    with ProgressBar(sys.stderr, plain_every=60) as bar:
        result = verb.annotate(
            pipeline, files, out, settings, executor=executor, overwrite=overwrite, on_progress=bar.show
        )
    if withheld := result.manifest.counts.get("withheld"):
        note(withheld_note(withheld, (opened.min_score for opened in pipeline.models)))
    _print_outcome(out, result, as_json=as_json)
    if result.fresh and result.manifest.counts["set aside"]:
        raise typer.Exit(SET_ASIDE)


def _open_pipeline(
    models: Sequence[Path], options: Mapping[str, Any], cluster: RayCluster | None
) -> tuple[Pipeline, RayExecutor | None]:
    """Open the models here, and say where they compute; a cluster opens them itself, and here they only say what they are."""
    if cluster is None:
        return Pipeline.open(models, **options), None

    opener = partial(Pipeline.open, [path.absolute() for path in models], **options)
    gpus = 0 if options["device"] == "cpu" else 1
    return Pipeline.open(models, **{**options, "device": "cpu"}), RayExecutor(replace(cluster, gpus=gpus), opener)


def _split_models(model: str, rest: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Separate models from inputs: the first path is a model, and so are the models that follow it."""
    count = 0
    while count < len(rest) and (is_hub_id(rest[count]) or has_task(Path(rest[count]))):
        count += 1
    return [find_model(name) for name in (model, *rest[:count])], list(rest[count:])


def _print_outcome(out: Path, result: StreamRun, *, as_json: bool) -> None:
    counts = result.manifest.counts
    note_set_aside(out / "set-aside.jsonl", counts)
    for sentence in (*result.notes, *_notes(counts, out)):
        note(sentence)
    if not result.fresh:
        say(f"{out} is already complete: nothing to do.")
    rates = _rates(result)
    if as_json:
        print_json({**counts, **rates}, indent=2)
        return
    speed = ", ".join(f"{rate:,.1f} {name.replace(' per second', '/s')}" for name, rate in rates.items())
    print(
        f"{out}: {counts['written']:,} of {counts['read']:,} documents in {counts['parts']:,} parts, with "
        f"{counts['entities']:,} entities, {counts['relations']:,} relations and {counts['labels']:,} labels; "
        f"{counts['set aside']:,} set aside" + (f"; {speed}" if speed else "")
    )


def _rates(result: StreamRun) -> dict[str, float]:
    if not result.added["written"]:
        return {}
    return {
        "documents per second": round(result.added["written"] / result.seconds, 1),
        "tokens per second": round(result.added["tokens"] / result.seconds, 1),
    }


def _notes(counts: Mapping[str, int], out: Path) -> Iterator[str]:
    """Note what a user should know about the documents."""
    if repeated := counts.get("repeated ids"):
        yield (
            f"{repeated:,} documents have an id that an earlier one has too; their source tells them apart (`source_file` "
            "and `source_item` in `meta`, where the format has room for it)"
        )
    for name in ("entities", "relations", "labels"):
        if gone := counts.get(f"{name} of the input left out"):
            yield f"{gone:,} {name} of the input made way for those of the models (--keep keeps both)"
    for name, count in counts.items():
        if name.startswith("format: "):
            yield f"{name.removeprefix('format: ')}: {count:,}"
    if far := counts.get("pairs too far apart"):
        yield f"{far:,} pairs of entities are too far apart for the relation model, and were not read"
    if pairless := counts.get("documents with nothing to relate"):
        yield (
            f"{pairless:,} of {counts['written']:,} documents have no two entities that the relation model relates; to have "
            "entities found first, give a tagger before it: alembert annotate TAGGER MODEL FILE"
        )
    if lost := counts.get("annotations of the input set aside"):
        yield f"{lost:,} annotations of the input could not be read: see {out}/set-aside.jsonl"
    if deleted := counts.get("deletions not applied"):
        yield (
            f"the input takes {deleted:,} records back, and a stream cannot: `alembert corpus build` applies them; "
            "annotate its Corpus"
        )
