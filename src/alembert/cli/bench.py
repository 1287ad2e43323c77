"""`alembert bench`: the speed of a fine-tuned model on this machine, compared with installed peers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from alembert.cli import SET_ASIDE
from alembert.cli.options import MODEL_HELP, Device, find_model, note_items
from alembert.corpus.fetch import fetch_to_temporary_folder
from alembert.corpus.readers.contract import ReadOptions
from alembert.infer import bench as verb
from alembert.infer.bench import PERCENTILES, Benchmark, ModelTiming
from alembert.inspect.tables import Cell, Table
from alembert.terminal import ProgressBar, escape_controls, print_json


def bench(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXTS",
            help="Files with texts in any known format; for pairs, relations and questions, files of the task.",
        ),
    ],
    *,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Task to use if the model has several.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of the text; several are joined.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of texts.")] = 2000,
    seconds: Annotated[float, typer.Option(help="Approximate time to measure the model and each peer.")] = 10.0,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure throughput and latency of a model, compared with peers that use the same weights."""
    folder = find_model(model)
    options = ReadOptions(text=tuple(text or ()))
    with ProgressBar(sys.stderr) as bar:
        benchmark = verb.bench(
            folder,
            fetch_to_temporary_folder(texts),
            options,
            task=task,
            device=device,
            limit=limit,
            seconds=seconds,
            on_progress=bar.show,
        )
    if as_json:
        print_json(benchmark.to_table())
    else:
        _print(benchmark)
    note_items(benchmark.remarks, benchmark.set_aside)
    if benchmark.set_aside:
        raise typer.Exit(SET_ASIDE)


def _print(benchmark: Benchmark) -> None:
    print(
        escape_controls(
            f"{benchmark.model}, task {benchmark.task}, {benchmark.engine}, on {', '.join(benchmark.files)}"
        )
    )
    for line in _table(benchmark).lines():
        print(escape_controls(line))
    print()
    for sentence in _sentences(benchmark):
        print(escape_controls(sentence))


def _table(benchmark: Benchmark) -> Table:
    rows: list[tuple[Cell, ...]] = [_row("this model", benchmark.own, "")]
    if benchmark.beside:
        rows.append(_row("this model, short texts", benchmark.beside, ""))
    rows += [_row(peer.name, peer, f"{benchmark.speed_up(peer):.2f}x") for peer in benchmark.peers]
    single = tuple(f"p{share} ms" for share in PERCENTILES)
    header = ("", "documents/s", "tokens/s", *single, "this model is")
    return Table(name="speed", title="Speed", header=header, rows=tuple(rows))


def _row(name: str, measured: ModelTiming, factor: str) -> tuple[Cell, ...]:
    single = (f"{1000 * measured.latency.percentile(share / 100):.1f}" for share in PERCENTILES)
    speed = measured.speed
    return name, f"{speed.texts_per_second:,.1f}", f"{speed.tokens_per_second:,.0f}", *single, factor


def _sentences(benchmark: Benchmark) -> Iterator[str]:
    speed = benchmark.own.speed
    yield (
        f"{benchmark.megabytes:,.1f} MB in the folder; {benchmark.start_seconds:.2f} s from opening it to the first prediction."
    )
    yield (
        f"Measured on this machine ({benchmark.machine}), from text to prediction, on {speed.texts:,} of {benchmark.texts:,} texts "
        f"with {speed.tokens:,} tokens without padding; median of {len(speed.seconds)} rounds, which differ by "
        f"{speed.relative_range:.0%}."
    )
    if benchmark.too_long:
        yield (
            f"{benchmark.too_long:,} texts need several windows, which peers do not support: peers are compared on the other texts."
        )
    for peer in benchmark.left_out:
        yield f"Not measured: {peer.name}, because {peer.reason}."
