"""`alembert vocab`: learn, extend, prune and evaluate a vocabulary."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable

from alembert.cli import SET_ASIDE, VerbCommand
from alembert.cli.options import Overwrite, check_page, output_option, write_page
from alembert.corpus.excerpt import TextSampleReader
from alembert.errors import BadInput
from alembert.files import vocab
from alembert.files.vocab import VocabExtendResult, VocabLearnResult, VocabOutput, VocabPruneResult
from alembert.hub import is_hub_id
from alembert.inspect.tokens import VocabTable, render_vocab_page, report_vocabulary
from alembert.terminal import ProgressBar, note, print_json, stdout_console
from alembert.text.extend import ExtendSettings
from alembert.text.lexicon import parse_lexicon_option, read_lexicon
from alembert.text.lexicon_cache import LexiconFile, OpenedLexicons, open_lexicons
from alembert.text.segmentation import SegmentationComparison
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_report import TokenizerReport

words_option = partial(typer.Option, rich_help_panel="Words to add")
app = typer.Typer(
    help="Learn, extend, prune and evaluate the vocabulary of a tokenizer.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Sources = Annotated[list[Path], typer.Argument(metavar="CORPUS", help="Corpus folders, or files of any known format.")]
_ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A checkpoint folder, hub:organisation/name, or a tokenizer.")
]
_Out = Annotated[Path, output_option(metavar="FOLDER", help="Folder to write the result to.")]
_Lexicons = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LABEL=FILE", help="Lexicon whose terms are annotated as entities of this label; may be repeated."
    ),
]
_Json = Annotated[bool, output_option("--json", help="Print one JSON object instead of tables.")]


@app.command("learn", cls=VerbCommand)
def learn(
    corpus: _Sources,
    *,
    out: _Out,
    size: Annotated[int, typer.Option(min=1, max=10_000_000, help="Size of the vocabulary.")] = 12_000,
    lexicon: _Lexicons = None,
    whole: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Terms whose words must be whole pieces, one per line.")
    ] = None,
    lowercase: Annotated[
        bool, typer.Option("--uncased/--cased", help="Lower-case the text and strip accents, or keep both.")
    ] = True,
    min_count: Annotated[int, typer.Option(min=1, help="Minimum count of a pair of pieces to be merged.")] = 2,
    overwrite: Overwrite = False,
    as_json: _Json = False,
) -> None:
    """Learn a WordPiece vocabulary from a corpus."""
    lexicons, terms = _lexicons(lexicon), _terms(whole)
    samples = _samples(corpus, lexicons)
    output = _output(out, corpus, lexicons, whole, overwrite=overwrite)
    with _show_reading(samples):
        done = vocab.learn(samples, output, size=size, lowercase=lowercase, min_count=min_count, whole=terms)
    _print_result(_learnt_lines(done, size), done.fit.as_json(), as_json)
    _finish(samples)


@app.command("extend", cls=VerbCommand)
def extend(
    model: _ModelArgument,
    corpus: _Sources,
    *,
    terms: Annotated[int, words_option(min=1, max=10_000_000, help="Number of words to add.")],
    out: _Out,
    lexicon: _Lexicons = None,
    term_file: Annotated[
        Path | None, words_option(metavar="FILE", help="Terms whose words are added first, one per line.")
    ] = None,
    any_word: Annotated[
        bool, words_option("--any-word", help="Consider any frequent word, not only words of entities.")
    ] = False,
    strict: Annotated[
        bool, words_option("--strict", help="Add only words that leave the pieces of all other words unchanged.")
    ] = False,
    min_count: Annotated[int, words_option(min=1, help="Minimum count of a word to be added.")] = 2,
    reuse_unused: Annotated[
        bool, words_option("--reuse-unused", help="Use the slots of [unused1], [unused2], ... first.")
    ] = False,
    held_out: Annotated[
        int, words_option(min=0, help="Hold out every n-th document to measure the gain on; 0: none.")
    ] = 10,
    overwrite: Overwrite = False,
    as_json: _Json = False,
) -> None:
    """Add words to a vocabulary, so that each becomes one token, and embeddings for them to the model."""
    lexicons, forced = _lexicons(lexicon), _terms(term_file)
    samples, subject = _samples(corpus, lexicons), vocab.open_tokenizer_with_model(model)
    settings = ExtendSettings(
        terms=terms, min_count=min_count, any_word=any_word, strict=strict, reuse_unused=reuse_unused
    )
    output = _output(out, [*_local(model), *corpus], lexicons, term_file, overwrite=overwrite)
    with _show_reading(samples):
        done = vocab.extend(subject, samples, output, settings, forced=forced, held_out_every=held_out)
    _print_result(_extended_lines(done), vocab.describe_extension(done), as_json)
    _finish(samples)


@app.command("prune", cls=VerbCommand)
def prune(
    model: _ModelArgument,
    corpus: _Sources,
    *,
    out: _Out,
    max_pieces: Annotated[
        int | None,
        typer.Option(
            "--max-pieces", min=1, help="Keep only this many of the most frequent pieces; rare words are split further."
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: _Json = False,
) -> None:
    """Remove pieces that a corpus does not use, and their embeddings."""
    samples, subject = _samples(corpus, None), vocab.open_tokenizer_with_model(model)
    output = _output(out, [*_local(model), *corpus], None, None, overwrite=overwrite)
    with _show_reading(samples):
        done = vocab.prune(subject, samples, output, max_pieces)
    _print_result(_pruned_lines(done), _pruned_json(done), as_json)
    _finish(samples)


@app.command("report", cls=VerbCommand)
def report(
    model: _ModelArgument,
    corpus: _Sources,
    *,
    lexicon: _Lexicons = None,
    against: Annotated[str | None, typer.Option(metavar="MODEL", help="Another tokenizer to compare with.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML page with plots.")] = None,
    as_json: _Json = False,
) -> None:
    """Report how well a tokenizer fits a corpus, and what adding words would save."""
    check_page(html)
    tokenizer = Tokenizer.open(model)
    other = None if against is None else (_short(against), Tokenizer.open(against))
    samples = _samples(corpus, _lexicons(lexicon))
    with _show_reading(samples):
        fit = report_vocabulary(tokenizer, samples, name=_short(model), against=other)
    if html is not None:
        write_page(html, render_vocab_page(fit))
    if as_json:
        print_json(fit.as_json(), indent=2)
    else:
        _print_tables(fit.tables())
    _finish(samples)


def _lexicons(options: list[str] | None) -> OpenedLexicons | None:
    if not options:
        return None
    lexicons = open_lexicons(LexiconFile(*parse_lexicon_option(option)) for option in options)
    for warning in lexicons.warnings():
        note(warning)
    return lexicons


def _terms(path: Path | None) -> list[str]:
    return [] if path is None else [term for term, _ in read_lexicon(path, "terms").terms]


def _samples(paths: list[Path], lexicons: OpenedLexicons | None) -> TextSampleReader:
    return TextSampleReader.open(paths, None if lexicons is None else lexicons.gazetteer)


@contextmanager
def _show_reading(samples: TextSampleReader) -> Iterator[None]:
    """Show on a terminal how far the reading has come."""
    with ProgressBar(sys.stderr) as bar:
        samples.on_progress = bar.show
        try:
            yield
        except BadInput as problem:
            aside = f" ({samples.set_aside} records were set aside, the first: {samples.first_reason})"
            raise BadInput(f"{problem}{aside if samples.set_aside else ''}") from None


def _output(
    out: Path, inputs: list[Path], lexicons: OpenedLexicons | None, extra: Path | None, *, overwrite: bool
) -> VocabOutput:
    files = () if lexicons is None else (source.path for source in lexicons.sources)
    return VocabOutput(out, [*inputs, *(path for path in (*files, extra) if path)], overwrite)


def _local(model: str) -> list[Path]:
    return [] if is_hub_id(model) else [Path(model)]


def _short(model: str) -> str:
    path = Path(model)
    return path.parent.name if path.suffix and path.parent.name else path.name


def _finish(samples: TextSampleReader) -> None:
    if samples.set_aside:
        note(
            f"{samples.set_aside} records could not be read and are not counted; the first: "
            f"{samples.first_reason}. `alembert corpus build` lists them all."
        )
        raise typer.Exit(SET_ASIDE)


def _print_result(lines: list[str], content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content, indent=2)
    else:
        print("\n".join(lines))


def _learnt_lines(done: VocabLearnResult, size: int) -> list[str]:
    fit = done.fit
    lines = [
        f"{fit.vocabulary:,} pieces learnt from {fit.words:,} words in {fit.documents:,} documents",
        f"{fit.pieces_per_word:.4f} pieces per word, {fit.split / fit.words:.2%} of words split, "
        f"{fit.unknown / fit.words:.4%} unknown",
        f"{done.whole:,} words of terms and entities were added as whole pieces",
    ]
    if fit.vocabulary < size:
        lines.append(f"No frequent pair is left to merge, so there are fewer than {size:,} pieces.")
    return lines


def _extended_lines(done: VocabExtendResult) -> list[str]:
    extension = done.extension
    lines = [
        f"{len(extension.terms):,} words were added as single pieces; the vocabulary has "
        f"{extension.tokenizer.vocab_size:,} pieces",
        *_proof_lines(extension.proof),
    ]
    if done.before and done.after:
        lines.append(_held_out_line(done.before, done.after))
    if done.several_words:
        lines.append(
            f"{done.several_words:,} of {done.mentions:,} entities have several words (punctuation counts as a word), "
            "so WordPiece cannot represent them as one piece"
        )
    if extension.several_words:
        lines.append(f"{extension.several_words:,} terms of your list have several words; each word was added")
    return lines


def _proof_lines(proof: SegmentationComparison) -> list[str]:
    lines = [
        f"{proof.words:,} distinct words checked: {proof.unchanged:,} tokenized as before, {proof.joined:,} became one piece, "
        f"{proof.changed:,} changed otherwise ({proof.changed_occurrences / max(1, proof.occurrences):.3%} of all words; "
        f"{proof.changed_at_start:,} of them only at their beginning)"
    ]
    examples = (
        f"  {change.word} ({change.count:,}): {' '.join(change.before)} -> {' '.join(change.after)}"
        for change in proof.examples[:5]
    )
    return [*lines, *examples]


def _held_out_line(before: TokenizerReport, after: TokenizerReport) -> str:
    line = (
        f"held-out documents ({before.words:,} words): {before.pieces:,} pieces before, {after.pieces:,} after, "
        f"{1 - after.pieces / before.pieces:.2%} fewer"
    )
    if not before.mentions:
        return line
    shares = [fitted.split_mentions / fitted.mentions for fitted in (before, after)]
    return f"{line}; entities with a split word: {shares[0]:.1%} before, {shares[1]:.1%} after"


def _pruned_lines(done: VocabPruneResult) -> list[str]:
    pruning = done.pruning
    lines = [f"{pruning.dropped:,} pieces removed, {len(pruning.kept_ids):,} kept", *_proof_lines(pruning.proof)]
    if done.parameters_before:
        lines.append(
            f"{done.parameters_before:,} parameters before, {done.parameters_after:,} after; "
            f"{done.bytes_saved / 1e6:.1f} MB saved"
        )
    return lines


def _pruned_json(done: VocabPruneResult) -> dict[str, Any]:
    numbers = {name: value for name, value in vars(done).items() if name != "pruning"}
    pruning = done.pruning
    return {"pieces": len(pruning.kept_ids), "dropped": pruning.dropped, **numbers, "proof": asdict(pruning.proof)}


def _print_tables(tables: tuple[VocabTable, ...]) -> None:
    console = stdout_console()
    for table in tables:
        shown = RichTable(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        for number, name in enumerate(table.header):
            shown.add_column(name, justify="right" if 0 < number < table.numbers else "left")
        for row in table.rows:
            shown.add_row(*row)
        console.print(table.title, style="bold")
        console.print(shown)
        if table.note:
            console.print(f"{table.note}\n", soft_wrap=True)
