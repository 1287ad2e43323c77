"""`alembert corpus`: raw files to a corpus, and a look at it.

`alembert corpus show` prints tables that fit 80 columns, histograms as bars, and documents with coloured entities.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alembert.artifact import Manifest
from alembert.cli import SET_ASIDE, VerbCommand
from alembert.cli.options import (
    Assignments,
    ConfigFile,
    CountsAsJson,
    Overwrite,
    RayRunOptions,
    RunOn,
    assignments_option,
    check_page,
    output_option,
    resolve_cluster,
    write_page,
)
from alembert.corpus import build as verb
from alembert.corpus.build import LexiconFiles
from alembert.corpus.build_ray import ray_executor
from alembert.corpus.clean import BuildSettings
from alembert.corpus.label import LabelSettings, label_corpus
from alembert.corpus.statistics import (
    READ_COUNT_NAMES,
    CorpusStatistics,
    Histogram,
    compute_statistics,
    make_document_record,
)
from alembert.corpus.statistics import sample_documents as pick
from alembert.corpus.store import Corpus, CorpusDocument
from alembert.inspect.corpus_page import render_corpus_page
from alembert.settings import apply_layers, read_layers, split_table
from alembert.terminal import ProgressBar, note, print_json, say, stdout_console
from alembert.text.lexicon import parse_lexicon_option, parse_lexicon_options

input_option = partial(typer.Option, rich_help_panel="Data")
app = typer.Typer(
    help="Build a corpus from raw files, and show what is in it.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("build", cls=VerbCommand)
def build(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Files of any known format, folders, or s3:// addresses.")
    ],
    out: Annotated[Path, output_option(metavar="FOLDER", help="Folder to write the corpus to.")],
    *,
    lexicon: Annotated[
        list[str] | None,
        input_option(
            metavar="LABEL=FILE", help="Lexicon whose terms are annotated as entities of this label; may be repeated."
        ),
    ] = None,
    stop_terms: Annotated[
        Path | None, input_option(metavar="FILE", help="Terms that are no entities, one per line.")
    ] = None,
    keep_terms: Annotated[
        Path | None,
        input_option(metavar="FILE", help="Terms that are entities although they are in a stop list, one per line."),
    ] = None,
    language: Annotated[
        str | None, input_option(metavar="CODES", help="Keep only these languages, such as en,zh.")
    ] = None,
    on: RunOn = "local",
    overwrite: Overwrite = False,
    as_json: CountsAsJson = False,
    config: ConfigFile = None,
    assignments: Annotated[list[str] | None, assignments_option(BuildSettings(), run=RayRunOptions())] = None,
) -> None:
    """Read and clean files, split sentences and annotate terms. To resume a stopped run, repeat the command."""
    codes = [code.strip() for code in (language or "").split(",") if code.strip()]
    layers = read_layers(config, assignments, {"clean": {"languages": codes or None}})
    options, layers = split_table(RayRunOptions(), "run", layers)
    settings = apply_layers(BuildSettings(), layers)
    cluster = resolve_cluster(on, options)
    with ProgressBar(sys.stderr) as bar:
        result = verb.build(
            files,
            out,
            lexicon_files=LexiconFiles(lexicons=parse_lexicon_options(lexicon or []), stop=stop_terms, keep=keep_terms),
            settings=settings,
            workers=options.workers,
            executor_factory=partial(ray_executor, cluster) if cluster else None,
            overwrite=overwrite,
            on_progress=bar.show,
        )
    counts = result.manifest.counts
    for sentence in (*result.notes, *_encoding_notes(counts), *_repeated_id_notes(counts)):
        note(sentence)
    if not result.fresh:
        say(f"{out} is already complete: nothing to do.")
    _print_outcome(out, result.manifest, as_json=as_json)
    if result.manifest.counts["set aside"]:
        raise typer.Exit(SET_ASIDE)


def _encoding_notes(counts: Mapping[str, int]) -> Iterator[str]:
    """Describe in one sentence which encodings were guessed; those of Unicode need no guess."""
    start, end = "remark: read as ", ", which was recognised"
    encodings = {
        name.removeprefix(start).removesuffix(end): files
        for name, files in counts.items()
        if name.startswith(start) and name.endswith(end)
    }
    guessed = [f"{name} ({files:,})" for name, files in encodings.items() if not name.startswith("utf")]
    if guessed:
        yield (
            f"the encoding of some files was guessed: {', '.join(guessed)}. If that is wrong, name it with --set read.encoding=NAME."
        )


def _repeated_id_notes(counts: Mapping[str, int]) -> Iterator[str]:
    if repeated := counts.get("repeated ids"):
        yield f"{repeated:,} documents have an id that an earlier one has too; the column `source` tells their files apart"


def _print_outcome(out: Path, manifest: Manifest, *, as_json: bool) -> None:
    counts = manifest.counts
    if as_json:
        print_json(counts, indent=2)
        return
    dropped = sum(number for name, number in counts.items() if name.startswith("dropped: "))
    entities = sum(number for name, number in counts.items() if name.startswith("entities: "))
    print(
        f"{out}: {counts['documents']:,} documents, {counts['sentences']:,} sentences, {counts['words']:,} words, "
        f"{entities:,} entities; {dropped:,} documents dropped, {counts['set aside']:,} items set aside"
    )
    print(f"See `alembert corpus show {out}`.")


@app.command("label", cls=VerbCommand)
def label(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="A corpus folder, files of any known format, or folders of them."),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file of JSON lines to write (.jsonl, .jsonl.gz).")],
    lexicon: Annotated[
        list[str], typer.Option(metavar="LABEL=FILE", help="Terms to find as entities of this label; may be repeated.")
    ],
    *,
    exclude: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Leave out sentences of this file, such as a test file; may be repeated."),
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="Draw at most so many sentences; by default all are written.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which sentences are drawn.")] = None,
    as_json: Annotated[bool, output_option("--json", help="Print the counts as one JSON object.")] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Label sentences with dictionaries, for `finetune --task tag --warm-up`."""
    layers = read_layers(config, assignments, {"sentences": sentences, "seed": seed})
    settings = apply_layers(LabelSettings(), layers)
    with ProgressBar(sys.stderr) as bar:
        result = label_corpus(
            files,
            out,
            lexicons=[*map(parse_lexicon_option, lexicon)],
            exclude=exclude or (),
            settings=settings,
            on_progress=bar.show,
        )
    for sentence in result.notes:
        note(sentence)
    if as_json:
        print_json(result.counts, indent=2)
        return
    print(f"{out}: {', '.join(f'{name} {count:,}' for name, count in result.counts.items())}")
    print(f"See `alembert finetune --task tag --warm-up {out}`.")


@app.command("show", cls=VerbCommand)
def show(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A corpus folder.")],
    sample: Annotated[int, typer.Option(min=0, max=1000, help="Number of random documents to print.")] = 0,
    seed: Annotated[int, typer.Option(help="Random seed of the sample.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML page with plots.")] = None,
) -> None:
    """Show the contents of a corpus, and what was dropped and why."""
    check_page(html)
    opened = Corpus.open(corpus)
    statistics = compute_statistics(opened)
    entries = pick(opened, sample, seed)
    if html:
        write_page(html, render_corpus_page(statistics, entries))
    if as_json:
        record = statistics.as_json() | (
            {"sample": [make_document_record(entry) for entry in entries]} if sample else {}
        )
        print_json(record, indent=2)
    else:
        print_survey(statistics, entries)


_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_BAR = 40
_LONGEST_TEXT = 1500
_CONTENT_COUNTS = ("documents", "sentences", "words", "characters", "gold entities")


def print_survey(survey: CorpusStatistics, entries: Sequence[CorpusDocument]) -> None:
    """Print a survey and a sample of documents."""
    console = stdout_console()
    _print_rows(console, "Read", survey.get_counts(READ_COUNT_NAMES))
    _print_rows(console, "Dropped, documents", survey.get_counts_with_prefix("dropped: "))
    _print_rows(console, "Set aside, by reason", survey.get_counts_with_prefix("set aside: "))
    _print_rows(console, "Cleaned", survey.get_counts_with_prefix("cleaned: "))
    _print_rows(console, "Remarks", survey.get_counts_with_prefix("remark: "))
    _print_rows(console, "The corpus holds", survey.get_counts(_CONTENT_COUNTS))
    _print_rows(console, "Languages, documents", survey.languages.most_common(12))
    _print_rows(console, "Sources, documents", list(survey.sources.items())[:40])
    _print_bars(console, "Sentences per document", survey.per_document)
    _print_bars(console, "Characters per sentence", survey.characters)
    _print_bars(console, "Words per sentence", survey.words)
    _print_labels(console, survey)
    for entry in entries:
        _print_entry(console, entry, [label.name for label in survey.labels])


def _print_rows(console: Console, title: str, rows: Iterable[tuple[str, int]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    for name, number in rows:
        table.add_row(name, f"{number:,}")
    if table.row_count:
        console.print(title, style="bold")
        console.print(table)
        console.print()


def _print_bars(console: Console, title: str, histogram: Histogram) -> None:
    bins = histogram.bins()
    highest = max([count for _, count in bins] or [0])
    if not highest:
        return
    console.print(f"{title} (mean {histogram.mean:.1f})", style="bold")
    for name, count in bins:
        console.print(f"{name:>9} {count:>11,} {'█' * round(_BAR * count / highest)}", soft_wrap=True)
    console.print()


def _print_labels(console: Console, survey: CorpusStatistics) -> None:
    if not survey.labels:
        return
    console.print("Entities", style="bold")
    table = Table("label", "found", "different", "most frequent", box=None, pad_edge=False, header_style="dim")
    for label in survey.labels:
        often = ", ".join(f"{surface} {times:,}" for surface, times in label.top)
        name = f"{label.name} (gold)" if label.gold else label.name
        table.add_row(name, f"{label.count:,}", f"{label.distinct:,}", often)
    console.print(table)
    console.print()


def _print_entry(console: Console, entry: CorpusDocument, labels: Sequence[str]) -> None:
    document = entry.document
    heading = f"{document.id}  {entry.source}  {entry.language}  sentences: {len(entry.sentences)}"
    console.print(heading, style="bold", soft_wrap=True)
    console.print(_coloured(entry, labels), soft_wrap=True)
    if len(document.text) > _LONGEST_TEXT:
        console.print(f"({len(document.text) - _LONGEST_TEXT:,} more characters)", style="dim")
    console.print()


def _coloured(entry: CorpusDocument, labels: Sequence[str]) -> Text:
    """Write the beginning of a text with each entity in the colour of its label."""
    shown = "".join(char if char.isprintable() or char == "\n" else " " for char in entry.document.text[:_LONGEST_TEXT])
    text = Text(shown)
    for mention in entry.entities:
        colour = _COLOURS[labels.index(mention.label) % len(_COLOURS)] if mention.label in labels else "white"
        text.stylize(f"underline {colour}" if mention.gold else colour, mention.start, mention.end)
    return text
