"""`alembert corpus`: raw files to a corpus, and a look at it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alembert.cli.cluster import On, RayAddress, WorkerCpus, cluster_of
from alembert.cli.codes import SET_ASIDE
from alembert.terminal.output import note, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from alembert.artifact import Manifest
    from alembert.corpus.build import LexiconFiles
    from alembert.corpus.settings import BuildSettings

app = typer.Typer(help="Build a corpus from raw files, and look at it.", no_args_is_help=True, rich_markup_mode=None)


@app.command("build")
def build(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files of any known format, folders of them, or s3:// addresses."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the corpus goes.")],
    *,
    lexicon: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=FILE", help="Terms to find as entities of this label; may be repeated."),
    ] = None,
    format: Annotated[  # noqa: A002
        str | None, typer.Option(help="Format of all files, if it is not to be recognised.")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of all files, if it is not to be recognised.")] = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODES", help="Keep only these languages, such as en,zh.")
    ] = None,
    stop: Annotated[Path | None, typer.Option(metavar="FILE", help="Terms that are not entities, one a line.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Terms that are entities although a stop list has them."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes; as many as CPUs if not given.")
    ] = None,
    on: On = "local",
    worker_cpus: WorkerCpus = None,
    ray_address: RayAddress = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file with all other settings.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a corpus that was built otherwise.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as one JSON object.")] = False,
) -> None:
    """Read, clean and annotate files; goes on where it was stopped."""
    from alembert.corpus import build as verb
    from alembert.corpus.build_ray import ray_executor
    from alembert.terminal.progress import Bar

    cluster = cluster_of(on, workers, worker_cpus, ray_address)
    with Bar(sys.stderr) as bar:
        result = verb.build(
            files,
            out,
            words=_words(lexicon or [], stop, keep),
            settings=_settings(config, format, encoding, language),
            workers=workers,
            site=partial(ray_executor, cluster) if cluster else None,
            overwrite=overwrite,
            tell=bar.show,
        )
    counts = result.manifest.counts
    for sentence in (*result.notes, *_guesses(counts), *_repeated_ids(counts)):
        note(sentence)
    if not result.fresh:
        say(f"{out} is already complete: nothing to do.")
    _print_outcome(out, result.manifest, as_json=as_json)
    if result.manifest.counts["set aside"]:
        raise typer.Exit(SET_ASIDE)


def _settings(
    config: Path | None,
    format: str | None,  # noqa: A002
    encoding: str | None,
    language: str | None,
) -> BuildSettings:
    """Read the file of settings, and let the flags have the last word."""
    import dataclasses

    from alembert.corpus.settings import BuildSettings, read_build_settings

    settings = read_build_settings(config) if config else BuildSettings()
    changes: dict[str, Any] = {"format": format} if format else {}
    if encoding:
        changes["read"] = dataclasses.replace(settings.read, encoding=encoding)
    if language:
        codes = tuple(code.strip() for code in language.split(",") if code.strip())
        changes["clean"] = dataclasses.replace(settings.clean, languages=codes)
    return dataclasses.replace(settings, **changes)


def _words(options: list[str], stop: Path | None, keep: Path | None) -> LexiconFiles:
    from alembert.corpus.build import LexiconFiles
    from alembert.text.lexicon import parse_lexicon_options

    return LexiconFiles(lexicons=parse_lexicon_options(options), stop=stop, keep=keep)


def _guesses(counts: Mapping[str, int]) -> Iterator[str]:
    """Say in one sentence which encodings were taken on evidence; those of Unicode need no guess."""
    start, end = "remark: read as ", ", which was recognised"
    found = {
        name.removeprefix(start).removesuffix(end): files
        for name, files in counts.items()
        if name.startswith(start) and name.endswith(end)
    }
    guessed = [f"{name} ({files:,})" for name, files in found.items() if not name.startswith("utf")]
    if guessed:
        yield (
            f"the encoding of some files was guessed: {', '.join(guessed)}. If that is wrong, name it with --encoding."
        )


def _repeated_ids(counts: Mapping[str, int]) -> Iterator[str]:
    if repeated := counts.get("repeated ids"):
        yield f"{repeated:,} documents have an id that an earlier one has too; the column `source` tells their files apart"


def _print_outcome(out: Path, manifest: Manifest, *, as_json: bool) -> None:
    from alembert.terminal.output import print_json

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


@app.command("show")
def show(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A corpus folder.")],
    sample: Annotated[int, typer.Option(min=0, max=1000, help="Print so many random documents too.")] = 0,
    seed: Annotated[int, typer.Option(help="Which random documents.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with plots.")] = None,
) -> None:
    """Show what a corpus holds, and what was dropped and why."""
    from alembert.corpus.statistics import compute_statistics
    from alembert.corpus.statistics import sample_documents as pick
    from alembert.corpus.store import Corpus
    from alembert.terminal.output import print_json

    opened = Corpus.open(corpus)
    found = compute_statistics(opened)
    entries = pick(opened, sample, seed)
    if html:
        from alembert.inspect.corpus_page import render_corpus_page

        _write(html, render_corpus_page(found, entries))
    if as_json:
        from alembert.corpus.statistics import make_document_record

        record = found.as_json() | ({"sample": [make_document_record(entry) for entry in entries]} if sample else {})
        print_json(record, indent=2)
    else:
        from alembert.cli.corpus_tables import print_survey

        print_survey(found, entries)


def _write(path: Path, text: str) -> None:
    from alembert.artifact import atomic_write
    from alembert.errors import BadFile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as problem:
        raise BadFile(f"The page {path} cannot be written: {problem.strerror}. Choose another name.") from None
    say(f"wrote {path}")
