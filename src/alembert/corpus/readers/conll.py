"""CoNLL: a token and its tag a line, a blank line between sentences, in the dialects that are about.

Columns (2 to 4 or more, by tab or by space) and the tag dialect (see `conll_tags`) are found out from the first 256 kB
and remarked. ``-DOCSTART-`` lines begin documents and are no tokens, whatever columns they have (CoNLL-2003); an id may
follow in brackets. Sentences become lines of their document; in a file without marks each sentence is a document. The format has no text, so the text is rebuilt: tokens joined by single
spaces; without spaces where the file has one character a line (Chinese), and around Chinese characters in mixed files.
Comment lines (``# ...``) are left out. A sentence with a line that does not fit is set aside. With `token_labels`, for
parts of speech, there is no dialect: each token is an entity whose label is all that stands in the last column, or in
the column `label`; `text` may name the column of tokens, and all lines must have equally many columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from alembert.corpus.document import Document, Entity, Section
from alembert.corpus.readers.conll_tags import dialect, entities, is_tag, tag_column
from alembert.corpus.readers.contract import Damaged, Item, ReadOptions, SetAside, how_to_set
from alembert.corpus.readers.source import Line, Source, paragraphs

_EVIDENCE = 1 << 18
_DOCUMENT = re.compile(r"-DOCSTART-(?!\S)(?:\s+\((?P<id>.*)\))?")
_CHINESE = re.compile("[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True)
class Layout:
    """How the columns of a file are told apart and what they hold."""

    tabs: bool
    tag: int
    token: int
    spaces: str
    documents: bool
    width: int | None = None
    """How many columns each line has, in a file with a label for each token; None: the file has tags."""

    def columns(self, line: str) -> list[str]:
        return split_columns(line, self.tabs)

    def fits(self, columns: Sequence[str]) -> bool:
        """Tell whether a line has a token and its tag, or label."""
        if self.width is not None:
            return len(columns) == self.width and bool(columns[self.tag] and columns[self.token])
        return len(columns) > self.tag and is_tag(columns[self.tag]) and bool(columns[self.token])

    def entities(self, tags: Sequence[str], bare: str) -> list[tuple[int, int, str]]:
        """Give first token, end and label of each entity of a sentence."""
        if self.width is None:
            return entities(tags, bare)
        return [(token, token + 1, label) for token, label in enumerate(tags)]


@dataclass
class _Draft:
    """A document being rebuilt from sentences."""

    id: str
    text: str = ""
    sections: list[Section] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)

    def add(self, tokens: Sequence[str], found: list[tuple[int, int, str]], spaces: str) -> None:
        start = len(self.text) + (1 if self.text else 0)
        text, places = _joined(tokens, spaces)
        self.text += ("\n" if self.text else "") + text
        self.sections.append(Section(start, len(self.text), "sentence"))
        for first, end, label in found:
            span = (start + places[first][0], start + places[end - 1][1])
            self.entities.append(Entity(f"T{len(self.entities) + 1}", label, (span,)))

    def finished(self) -> Iterator[Document]:
        """Give the document, unless nothing was added to it."""
        if self.text:
            yield Document(self.id, self.text, tuple(self.sections), tuple(self.entities))


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """Read the documents, or the sentences, of a CoNLL file."""
    layout, kind = layout_in(source)
    separator = "tabs" if layout.tabs else "spaces"
    source.tally[f"read as {kind} in column {layout.tag + 1}, separated by {separator}"] += 1
    draft = _Draft(source.stem)
    number = 0
    for run in paragraphs(source):
        if isinstance(run, SetAside):
            yield run
            continue
        starts = [line.text for line in run if begins_document(line.text)]
        if starts or not layout.documents:
            yield from draft.finished()
            number += 1
            draft = _Draft(_document_id(starts) or f"{source.stem}-{number}")
        bad = _add_sentence(draft, run, layout, source)
        if bad:
            yield bad
    yield from draft.finished()


def _document_id(starts: list[str]) -> str | None:
    found = _DOCUMENT.match(starts[-1]) if starts else None
    return found["id"] if found else None


def _add_sentence(draft: _Draft, run: list[Line], layout: Layout, source: Source) -> SetAside | None:
    tokens: list[str] = []
    tags: list[str] = []
    for line in run:
        columns = layout.columns(line.text)
        if begins_document(line.text):
            continue
        if layout.fits(columns):
            tokens.append(columns[layout.token])
            tags.append(columns[layout.tag])
        elif not is_mark(line.text):
            return source.aside(
                "the line has no token, or no tag in the column of tags", draft.id, f"line {line.number}"
            )
    if len(draft.text) + sum(map(len, tokens)) > source.options.max_record:
        return source.aside(f"the document is longer than max_record ({source.options.max_record})", draft.id)
    if tokens:
        draft.add(tokens, layout.entities(tags, source.options.entity_label), layout.spaces)
    return None


def begins_document(line: str) -> bool:
    """Tell whether a line is the start of a document, which may have tags like a token."""
    return _DOCUMENT.match(line) is not None


def is_mark(line: str) -> bool:
    """Tell whether a line without a tag is a comment or the start of a document."""
    return line.startswith("# ") or begins_document(line)


def layout_in(source: Source) -> tuple[Layout, str]:
    """Find out the layout of a file and what its column of tags holds, or raise `Damaged`."""
    head = source.head(_EVIDENCE).decode(source.encoding(), errors="replace")
    if source.options.token_labels:
        return _token_layout(head, source.options), "token labels"
    layout, tags = layout_of(head)
    if layout is None:
        raise Damaged("no column holds tags such as B-x, I-x and O in nearly every line")
    return layout, f"{dialect(tags)} tags"


def split_columns(line: str, tabs: bool) -> list[str]:
    """Split at tabs, or at runs of plain spaces: a wide Chinese space is a token."""
    return line.split("\t") if tabs else [part for part in line.replace("\t", " ").split(" ") if part]


def layout_of(head: str) -> tuple[Layout | None, list[str]]:
    """Find out the layout from the first lines, with the tags they hold; None when they are not CoNLL."""
    rows, tabs, documents = _rows(head)
    column = tag_column(rows)
    if column is None or max(map(len, rows)) < 2:
        return None, []
    rows = [row for row in rows if len(row) > column]
    token = 0 if column else -1
    layout = Layout(tabs, column, token, _spaces([row[token] for row in rows]), documents)
    return layout, [row[column] for row in rows]


def _token_layout(head: str, options: ReadOptions) -> Layout:
    """Find out the layout of a file whose every token has a label."""
    rows, tabs, documents = _rows(head)
    widths = Counter(len(row) for row in rows if len(row) > 1)
    if not widths:
        raise Damaged("no line has a token and a label")
    width = widths.most_common(1)[0][0]
    tag = _column(options.label, "label", width, width - 1)
    token = _column(next(iter(options.text), None), "text", width, 0 if tag else width - 1)
    tokens = [row[token] for row in rows if len(row) == width]
    return Layout(tabs, tag, token, _spaces(tokens), documents, width)


def _column(asked: str | None, option: str, width: int, usual: int) -> int:
    if asked is None:
        return usual
    if not asked.isdecimal() or not 1 <= int(asked) <= width:
        raise Damaged(f"there is no column {asked}; the columns are 1 to {width}; {how_to_set(option)}")
    return int(asked) - 1


def _rows(head: str) -> tuple[list[list[str]], bool, bool]:
    """Split the first lines into columns; say whether tabs do it, and whether marks divide documents."""
    lines = [line.rstrip("\r") for line in head.split("\n")[:-1] or [head]]
    full = [line for line in lines if line.strip() and not is_mark(line)]
    tabs = sum("\t" in line for line in full) > len(full) / 2
    return [split_columns(line, tabs) for line in full], tabs, any(map(begins_document, lines))


def _spaces(tokens: Sequence[str]) -> str:
    """Say where spaces stand between tokens: "none", "not around Chinese" or "all"."""
    chinese = sum(_CHINESE.match(token) is not None for token in tokens)
    if chinese < 0.2 * len(tokens):
        return "all"
    return "none" if all(len(token) == 1 for token in tokens) else "not around Chinese"


def _joined(tokens: Sequence[str], spaces: str) -> tuple[str, list[tuple[int, int]]]:
    """Rebuild a sentence; give its text and the place of each token in it."""
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    length = 0
    for index, token in enumerate(tokens):
        gap = " " if index and _is_spaced(tokens[index - 1], token, spaces) else ""
        places.append((length + len(gap), length + len(gap) + len(token)))
        parts += [gap, token]
        length = places[-1][1]
    return "".join(parts), places


def _is_spaced(left: str, right: str, spaces: str) -> bool:
    if spaces == "not around Chinese":
        return not (_CHINESE.match(left[-1:]) or _CHINESE.match(right[:1]))
    return spaces == "all"
