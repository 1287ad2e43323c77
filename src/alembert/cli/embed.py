"""`alembert embed`: train an embedding model, turn texts into vectors, and find the texts nearest to a question."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from alembert.cli import SET_ASIDE, VerbCommand
from alembert.cli.finetune import finetune
from alembert.cli.options import (
    ConfigFile,
    CountsAsJson,
    Device,
    DeviceRunOptions,
    Overwrite,
    assignments_option,
    data_option,
    find_model,
    for_each_line,
    output_option,
)
from alembert.corpus.fetch import check_inputs
from alembert.errors import BadInput, BadSetting
from alembert.infer import embed as verb
from alembert.infer.embed import EncodeSettings, open_embedder
from alembert.infer.embedder import Embedder
from alembert.infer.engines import choose_device
from alembert.infer.index import VectorIndex
from alembert.infer.search import QUERY_BATCH, Hit, SimilarityMeasure, find_nearest
from alembert.infer.stream_job import StreamRun
from alembert.settings import apply_layers, read_layers, split_table
from alembert.terminal import ProgressBar, escape_controls, note, print_json, say

app = typer.Typer(
    help="Train embedding models, embed documents or sentences, and search them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    "train",
    add_help_option=False,  # --help is that of finetune's options, under this name
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def train(context: typer.Context) -> None:
    """Train an embedding model: takes the options of `alembert finetune --task compare`."""
    alone = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    alone.command("train", cls=VerbCommand, help=train.__doc__)(finetune)
    command = typer.main.get_command(alone)
    command.params = [parameter for parameter in command.params if parameter.name != "task"]
    assert command.callback is not None
    command.callback = partial(command.callback, task=["compare"])
    if code := command.main(context.args, prog_name=context.command_path, standalone_mode=False):
        raise typer.Exit(int(code))


@app.command("encode", cls=VerbCommand)
def encode(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A checkpoint folder, or hub:organisation/name.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Files of any known format, folders of them, patterns, - for stdin, s3:// addresses, or one Corpus.",
        ),
    ],
    out: Annotated[Path, output_option(metavar="FOLDER", help="Folder to write the vectors to.")],
    *,
    unit: Annotated[str | None, data_option(help="One vector per document (default) or per sentence.")] = None,
    pooling: Annotated[
        str | None, data_option(metavar="MODE", help="mean or cls, for a model whose folder does not state it.")
    ] = None,
    max_length: Annotated[
        int | None, data_option(help="Maximum tokens of a window; by default what the model's folder states.")
    ] = None,
    dtype: Annotated[
        str | None, output_option(help="Type of the stored numbers: float32 (default), float16 or int8.")
    ] = None,
    int8: Annotated[bool, output_option("--int8", help="Also write an int8 copy for `embed search --int8`.")] = False,
    overwrite: Overwrite = False,
    as_json: CountsAsJson = False,
    config: ConfigFile = None,
    assignments: Annotated[list[str] | None, assignments_option(EncodeSettings(), run=DeviceRunOptions())] = None,
) -> None:
    """Embed each document or sentence. To resume a stopped run, repeat the command."""
    flags = {"unit": unit, "dtype": dtype, "int8_copy": int8 or None}
    run, layers = split_table(DeviceRunOptions(), "run", read_layers(config, assignments, flags))
    settings = apply_layers(EncodeSettings(), layers)
    mode = _mode(pooling)

    check_inputs(files)
    folder = find_model(model)
    embedder = Embedder.open(folder, mode=mode, length=max_length, device=choose_device([folder], run.device))
    with ProgressBar(sys.stderr) as bar:
        result = verb.encode(embedder, files, out, settings, overwrite=overwrite, on_progress=bar.show)
    _print_outcome(out, result, as_json=as_json)
    if result.manifest.counts["set aside"]:
        raise typer.Exit(SET_ASIDE)


def _mode(pooling: str | None) -> Any:
    if pooling not in (None, "mean", "cls"):
        raise BadSetting(f"--pooling is {pooling!r}; expected mean or cls.")
    return pooling


def _print_outcome(out: Path, result: StreamRun, *, as_json: bool) -> None:
    counts = result.manifest.counts
    for sentence in (*result.notes, *_notes(counts)):
        note(sentence)
    if not result.fresh:
        say(f"{out} is already complete: nothing to do.")
    units = result.added["units"]
    rate = units / result.seconds if units else None
    if as_json:
        print_json({**counts, "vectors per second": None if rate is None else round(rate, 1)}, indent=2)
        return
    speed = f", {rate:,.1f} vectors/s" if rate is not None else ""
    print(
        f"{out}: {counts['units']:,} vectors of {counts['documents']:,} documents, {counts['tokens']:,} tokens in "
        f"{counts['windows']:,} windows; {counts['set aside']:,} items set aside{speed}"
    )


def _notes(counts: Mapping[str, int]) -> Iterator[str]:
    """Note what a user should know about the text."""
    if long := counts["units in windows"]:
        yield (
            f"{long:,} of {counts['units']:,} texts are longer than the model reads at once: their vectors are means "
            "over windows"
        )
    if deleted := counts.get("deletions not applied"):
        yield (
            f"the input takes {deleted:,} records back, and a stream cannot: `alembert corpus build` applies them; "
            "encode its Corpus"
        )


@app.command("search", cls=VerbCommand)
def search(
    vectors: Annotated[Path, typer.Argument(metavar="VECTORS", help="A folder that `embed encode` wrote.")],
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="Queries; one per line on stdin if none.")
    ] = None,
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="Results for each query.")] = 10,
    measure: Annotated[str, typer.Option(help="Similarity measure: cosine or dot.")] = "cosine",
    int8: Annotated[
        bool, typer.Option("--int8", help="Use the int8 copy for the first pass; the results are the same.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the model is now, if it was moved.")
    ] = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per query.")] = False,
) -> None:
    """Find the texts nearest to each query by exact search."""
    if measure not in ("cosine", "dot"):
        raise BadSetting(f"--measure is {measure!r}; expected cosine or dot.")
    index = VectorIndex.open(vectors)
    where = None if model is None else find_model(model)
    embedder = open_embedder(index, where, choose_device([where or Path(index.facts.model)], device))
    answer_queries(
        index,
        embedder,
        queries or [],
        top,
        measure="dot" if measure == "dot" else "cosine",
        int8=int8,
        as_json=as_json,
    )


_SHOWN = 160
"""Characters of a text that are shown; all of it is in the JSON form."""


def answer_queries(
    index: VectorIndex,
    embedder: Embedder,
    queries: Sequence[str],
    top: int,
    *,
    measure: SimilarityMeasure,
    int8: bool,
    as_json: bool,
) -> None:
    """Answer the given queries, or each line of stdin if there are none."""
    lines: list[str] = list(queries)
    if not queries:
        for_each_line(lines.append)
    if not all(line.strip() for line in lines) or not lines:
        raise BadInput("There is nothing to look for. Give queries after the folder, or one a line on stdin.")
    for start in range(0, len(lines), QUERY_BATCH):
        part = lines[start : start + QUERY_BATCH]
        results = find_nearest(index, embedder.embed(part).vectors_ND, top, measure=measure, copy=int8)
        for query, hits in zip(part, results, strict=True):
            _show(index, query, hits, as_json)


def _show(index: VectorIndex, query: str, hits: Sequence[Hit], as_json: bool) -> None:
    units = [index.read_unit(hit.row) for hit in hits]
    if as_json:
        pairs = zip(hits, units, strict=True)
        print_json({"query": query, "hits": [asdict(hit) | asdict(unit) for hit, unit in pairs]})
        return
    print(escape_controls(query))
    for hit, unit in zip(hits, units, strict=True):
        source = f"{unit.source} {unit.id} {unit.start}-{unit.end}"
        text = unit.text if len(unit.text) <= _SHOWN else f"{unit.text[:_SHOWN].rstrip()} …"
        print(f"  {hit.score:7.4f}  {escape_controls(source)}  {escape_controls(' '.join(text.split()))}", flush=True)
    if not hits:
        print("  nothing: there are no vectors")
