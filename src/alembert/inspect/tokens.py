"""How a tokenizer cuts one text, and how well it fits a corpus: reports, tables and a page.

A `TokenReport` shows each word of a text with its pieces, which words are split or unknown, and how much of the text the
pieces cover. Words are those of BERT: white space and punctuation separate them, and a punctuation mark or a Chinese
character is a word of its own.

A `VocabReport` is made of one tokenizer or two, and samples. The command prints its tables, `render_vocab_page` draws
them, and `as_json` holds everything. A second tokenizer is measured on the same corpus, with its own normalisation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Any

from alembert.charts import Curve, build_bar_chart, build_curve_chart, format_percent, render_figure
from alembert.html import PageSection, render_beside, render_legend, render_page, render_table, render_tiles
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_report import (
    MAX_HISTOGRAM_PIECES,
    EntityReport,
    TokenizerReport,
    build_tokenizer_report,
)
from alembert.text.word_counts import TextSample, WordSplitter, count_corpus_words


@dataclass(frozen=True)
class TokenPiece:
    """One piece, and where it stands in the text."""

    text: str
    id: int
    start: int
    end: int


@dataclass(frozen=True)
class TokenizedWord:
    """One word and its pieces; `surface` is `text[start:end]`."""

    surface: str
    start: int
    end: int
    pieces: tuple[TokenPiece, ...]
    unknown: bool

    @property
    def split(self) -> bool:
        """Whether the vocabulary lacks the word as a whole."""
        return len(self.pieces) > 1


@dataclass(frozen=True)
class TokenSummary:
    """Counts over a text."""

    characters: int
    words: int
    pieces: int
    pieces_per_word: float
    split_words: int
    unknown_words: int
    uncovered_characters: int
    """Characters, white space aside, in no known piece: in unknown words, or dropped (control characters, accents)."""
    coverage: float
    """Share of the characters, white space aside, that stand in a known piece; 1 for a text without any."""
    replaced_surrogates: int


@dataclass(frozen=True)
class TokenReport:
    """The words of a text, and their summary."""

    text: str
    words: tuple[TokenizedWord, ...]
    replaced_surrogates: int

    @cached_property
    def summary(self) -> TokenSummary:
        """Count words, pieces, and what was not covered."""
        pieces = sum(len(word.pieces) for word in self.words)
        visible = sum(not char.isspace() for char in self.text)
        uncovered = visible - self._covered()
        return TokenSummary(
            characters=len(self.text),
            words=len(self.words),
            pieces=pieces,
            pieces_per_word=round(pieces / len(self.words), 3) if self.words else 0.0,
            split_words=sum(word.split for word in self.words),
            unknown_words=sum(word.unknown for word in self.words),
            uncovered_characters=uncovered,
            coverage=round(1 - uncovered / visible, 4) if visible else 1.0,
            replaced_surrogates=self.replaced_surrogates,
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        words = [{**asdict(word), "split": word.split} for word in self.words]
        return {"summary": asdict(self.summary), "words": words}

    def _covered(self) -> int:
        covered = reached = 0
        for piece in (piece for word in self.words if not word.unknown for piece in word.pieces):
            # Pieces of one decomposed character share its span; count it once.
            start = max(piece.start, reached)
            covered += sum(not char.isspace() for char in self.text[start : piece.end])
            reached = max(reached, piece.end)
        return covered


def inspect_tokens(tokenizer: Tokenizer, text: str) -> TokenReport:
    """Show how `tokenizer` cuts `text`."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spans = zip(tokenizer.tokens(encoding.ids), encoding.ids, encoding.offsets, strict=True)
    pieces = (TokenPiece(piece, number, *span) for piece, number, span in spans)
    words = tuple(_words(text, zip(encoding.word_ids, pieces, strict=True), tokenizer.unk_id))
    return TokenReport(text, words, encoding.replaced_surrogates)


def _words(text: str, pieces: Iterator[tuple[int | None, TokenPiece]], unknown_id: int) -> Iterator[TokenizedWord]:
    for _, group in groupby(pieces, key=lambda entry: entry[0]):
        members = tuple(piece for _, piece in group)
        start, end = members[0].start, members[-1].end
        unknown = any(piece.id == unknown_id for piece in members)
        yield TokenizedWord(text[start:end], start, end, members, unknown)


# -- how well a tokenizer fits a corpus

LENGTH_BARS = (*(str(length) for length in range(1, MAX_HISTOGRAM_PIECES)), f"{MAX_HISTOGRAM_PIECES}+")
"""Names of the bars of a histogram of pieces."""


@dataclass(frozen=True)
class VocabTable:
    """Rows of text; the first column names things, the others are numbers, but for a last one of `prose`."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    prose: bool = False

    @property
    def numbers(self) -> int:
        """Where the columns of numbers end."""
        return len(self.header) - self.prose


@dataclass(frozen=True)
class VocabReport:
    """The fit of one tokenizer, or of two to compare."""

    names: tuple[str, ...]
    fits: tuple[TokenizerReport, ...]
    spelt: tuple[tuple[str, ...], ...]
    """The pieces of the costliest words of the first tokenizer."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        first = {"name": self.names[0], **self.fits[0].as_json()}
        if len(self.fits) == 1:
            return first
        return {**first, "against": {"name": self.names[1], **self.fits[1].as_json()}}

    def tables(self) -> tuple[VocabTable, ...]:
        """Return everything that is shown, in order; tables without rows are left out."""
        tables = (
            self._summary(),
            self._words(),
            self._entities(),
            self._costly(),
            self._strange(),
            self._savings(),
        )
        return tuple(table for table in tables if table.rows)

    def _summary(self) -> VocabTable:
        lines = [_summary_of(fitted) for fitted in self.fits]
        rows = [(name, *(line[name] for line in lines)) for name in lines[0]]
        return VocabTable("Fit", ("", *self.names), tuple(rows), self._change())

    def _change(self) -> str:
        if len(self.fits) == 1:
            return ""
        first, second = (fitted.pieces for fitted in self.fits)
        word = "fewer" if second <= first else "more"
        return (
            f"{self.names[1]} needs {abs(1 - second / first):.1%} {word} pieces for this corpus than {self.names[0]}."
        )

    def _words(self) -> VocabTable:
        shares = [[count / fitted.words for count in fitted.histogram] for fitted in self.fits]
        rows = [
            (bar, *(f"{share[i]:.2%}" for share in shares), "█" * round(40 * shares[-1][i]))
            for i, bar in enumerate(LENGTH_BARS)
        ]
        return VocabTable("Pieces per word", ("pieces", *self.names, ""), tuple(rows), prose=True)

    def _entities(self) -> VocabTable:
        rows = [
            (label, name, *_entity_cells(fitted.entities[label]))
            for label in self.fits[0].entities
            for name, fitted in zip(self.names, self.fits, strict=True)
        ]
        note = (
            "Each: pieces per entity. Split: at least one of its words is cut. "
            "The last columns: entities of 1, 2, 3, and more pieces."
        )
        return VocabTable("Pieces per entity", _ENTITY_COLUMNS, tuple(rows), note)

    def _costly(self) -> VocabTable:
        total = self.fits[0].words
        rows = [
            (word.word, f"{word.count:,}", f"{word.saved / total * 1e6:,.1f}", " ".join(pieces))
            for word, pieces in zip(self.fits[0].costly, self.spelt, strict=True)
        ]
        header = ("word", "times", "saves per million", "pieces")
        return VocabTable(f"Words that cost most ({self.names[0]})", header, tuple(rows), prose=True)

    def _strange(self) -> VocabTable:
        rows = [(word.word, f"{word.count:,}") for word in self.fits[0].strange]
        return VocabTable(f"Unknown words ({self.names[0]})", ("word", "times"), tuple(rows))

    def _savings(self) -> VocabTable:
        rows = [(f"{s.terms:,}", f"{s.pieces:,}", f"{s.share:.2%}") for s in self.fits[0].savings]
        kind = "words inside entities" if self.fits[0].entities else "words"
        title = f"What adding terms to {self.names[0]} would save"
        return VocabTable(title, ("terms", "pieces", "of all"), tuple(rows), f"The best {kind} first.")


def report_vocabulary(
    tokenizer: Tokenizer,
    samples: Iterable[TextSample],
    *,
    name: str = "this",
    against: tuple[str, Tokenizer] | None = None,
) -> VocabReport:
    """Measure a tokenizer, and another one if given; `samples` must be such that it can be gone through twice."""
    census = count_corpus_words(samples, WordSplitter(tokenizer.parts.settings))
    first = build_tokenizer_report(tokenizer, census)
    spelt = tuple(_pieces(tokenizer, candidate.word) for candidate in first.costly)
    if against is None:
        return VocabReport((name,), (first,), spelt)
    other_name, other = against
    if other.parts.settings != tokenizer.parts.settings:
        census = count_corpus_words(samples, WordSplitter(other.parts.settings))
    return VocabReport((name, other_name), (first, build_tokenizer_report(other, census)), spelt)


_ENTITY_COLUMNS = (
    "entities",
    "",
    "mentions",
    "each",
    "split",
    "unknown",
    *LENGTH_BARS[:3],
    "4+",
)


def _entity_cells(entity: EntityReport) -> Sequence[str]:
    shares = [entity.split, entity.unknown, *entity.histogram[:3], sum(entity.histogram[3:])]
    mean = entity.pieces / entity.mentions
    return [f"{entity.mentions:,}", f"{mean:.2f}", *(f"{n / entity.mentions:.0%}" for n in shares)]


def _summary_of(fitted: TokenizerReport) -> dict[str, str]:
    return {
        "pieces in the vocabulary": f"{fitted.vocabulary:,}",
        "of these never used here": f"{fitted.unused_pieces:,}",
        "lower-cased": "yes" if fitted.lowercase else "no",
        "documents": f"{fitted.documents:,}",
        "words": f"{fitted.words:,}",
        "distinct words": f"{fitted.distinct_words:,}",
        "words too rare to be counted": f"{fitted.forgotten_words:,}",
        "pieces": f"{fitted.pieces:,}",
        "pieces per word": f"{fitted.pieces_per_word:.4f}",
        "pieces per 100 characters": f"{100 * fitted.pieces_per_character:.2f}",
        "words split": f"{fitted.split / fitted.words:.2%}",
        "words unknown": f"{fitted.unknown / fitted.words:.4%}",
    }


def _pieces(tokenizer: Tokenizer, word: str) -> tuple[str, ...]:
    return tuple(tokenizer.tokens(tokenizer.encode(word, add_special_tokens=False).ids))


def render_vocab_page(report: VocabReport) -> str:
    title = " and ".join(report.names)
    heading = f"How well {title} fit{'s' if len(report.names) == 1 else ''} this corpus"
    first = report.fits[0]
    tiles = {
        "documents": f"{first.documents:,}",
        "words": f"{first.words:,}",
        **{f"pieces per word, {name}": f"{fit.pieces_per_word:.3f}" for name, fit in _named_fits(report)},
    }
    return render_page(f"Vocabulary report: {title}", heading, render_tiles(tiles), list(_sections(report)))


def _sections(report: VocabReport) -> Iterator[PageSection]:
    plots = _plots(report)
    for table in report.tables():
        name = table.title.split(" (")[0].split(" to ")[0]
        note = f"<p>{escape(table.note)}</p>\n" if table.note else ""
        picture, numbers = "\n".join(plots.get(name, ())), _render_table(table)
        # The table of entities is as wide as the page.
        body = picture + numbers if not picture or name == "Pieces per entity" else render_beside(picture, numbers)
        yield PageSection(table.title, note + body, name)


def _render_table(table: VocabTable) -> str:
    # The last column without a name has the bars of the terminal, which are drawn as a plot here.
    width = table.numbers if table.prose and not table.header[-1] else len(table.header)
    text_columns = {0, *range(table.numbers, width), *(n for n, name in enumerate(table.header) if not name)}
    return render_table(table.header[:width], [row[:width] for row in table.rows], text_columns, table.title)


def _plots(report: VocabReport) -> dict[str, list[str]]:
    """Return the plots of each table, by the beginning of its title."""
    words = {name: [n / fit.words for n in fit.histogram] for name, fit in _named_fits(report)}
    chart = build_bar_chart("Pieces per word", LENGTH_BARS, words)
    plots = {"Pieces per word": [render_figure(chart, "Share of words by number of pieces"), _legend(report)]}
    labels = list(report.fits[0].entities)
    if labels:
        plots["Pieces per entity"] = [_legend(report), *_entity_plots(report, labels)]
    points = [(0.0, 0.0), *((float(saving.terms), saving.share) for saving in report.fits[0].savings)]
    chart = build_curve_chart("What adding terms would save", [Curve("terms", points)], format_percent)
    plots["What adding terms"] = [render_figure(chart, "Share of all pieces saved, by number of terms added")]
    return plots


def _entity_plots(report: VocabReport, labels: list[str]) -> Iterator[str]:
    split = {
        name: [fit.entities[label].split / fit.entities[label].mentions for label in labels]
        for name, fit in _named_fits(report)
    }
    if len(labels) > 1:
        chart = build_bar_chart("Entities split", labels, split)
        yield render_figure(chart, "Share of entities with a split word, by kind")
    yield '<div class="several">'
    for label in labels:
        shares = {
            name: [n / fit.entities[label].mentions for n in fit.entities[label].histogram]
            for name, fit in _named_fits(report)
        }
        caption = f"{label}: share of entities by number of pieces"
        yield render_figure(build_bar_chart(caption, LENGTH_BARS, shares), caption)
    yield "</div>"


def _named_fits(report: VocabReport) -> Iterator[tuple[str, TokenizerReport]]:
    return zip(report.names, report.fits, strict=True)


def _legend(report: VocabReport) -> str:
    return render_legend({name: number for number, name in enumerate(report.names)})
