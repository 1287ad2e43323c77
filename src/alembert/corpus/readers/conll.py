"""CoNLL: a token and its tag per line, a blank line between sentences, in the common dialects.

Columns (2 to 4 or more, separated by tabs or spaces) and the tag dialect are detected from the first 256 kB and
reported. ``-DOCSTART-`` lines begin documents and are no tokens, whatever columns they have (CoNLL-2003); an id may
follow in parentheses. Sentences become lines of their document; in a file without such lines each sentence is a
document. The format has no text, so it is rebuilt: tokens are joined by single spaces, but without spaces where the
file has one character per line (Chinese), and around Chinese characters in mixed files. Comment lines (``# ...``) are
left out. A sentence with a malformed line is set aside. With `token_labels`, for parts of speech, there is no dialect:
each token is an entity whose label is the last column, or the column `label`; `text` may name the column of tokens, and
all lines must have equally many columns.

One rule decodes all dialects: B, S, U and W begin an entity, E, L, S, U and W end it, and I or M continues an entity of
the same label or begins one where there is none. That is what IOB1 (B only between neighbours), IOB2, BIOES, BILOU and
plain IO mean, so the dialect is detected only for the report. "-" or "_" separates the label; bare tags have none.

>>> decode_tags(["B-Drug", "I-Drug", "O", "I-Drug"])
[(0, 2, 'Drug'), (3, 4, 'Drug')]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from alembert.corpus.document import Document, Entity, Section
from alembert.corpus.readers.contract import DamagedFile, Item, ReadOptions, SetAside, describe_option
from alembert.corpus.readers.source import SourceFile, SourceLine, split_paragraphs

TAG_PATTERN = re.compile(r"(?:([BIESLUMW])(?:[-_](\S.*))?|O)")
_BEGINS, _ENDS = frozenset("BSUW"), frozenset("ESLUW")


def decode_tags(tags: Iterable[str], bare: str = "entity") -> list[tuple[int, int, str]]:
    """Return the first token, end and label of each entity; raise ValueError for an unknown tag."""
    entities: list[tuple[int, int, str]] = []
    open_label: str | None = None
    for index, tag in enumerate(tags):
        prefix, label = _parse_tag(tag, bare)
        if not prefix:
            open_label = None
            continue
        if prefix in _BEGINS or open_label != label:
            entities.append((index, index + 1, label))
        else:
            entities[-1] = (entities[-1][0], index + 1, label)
        open_label = None if prefix in _ENDS else label
    return entities


@lru_cache(maxsize=4096)
def is_tag(value: str) -> bool:
    return TAG_PATTERN.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _parse_tag(tag: str, bare: str) -> tuple[str, str]:
    match = TAG_PATTERN.fullmatch(tag)
    if match is None:
        raise ValueError
    return match[1] or "", match[2] or bare


def detect_tag_dialect(tags: Sequence[str]) -> str:
    parsed = [_parse_tag(tag, "") for tag in tags if TAG_PATTERN.fullmatch(tag)]
    prefixes = {prefix for prefix, _ in parsed}
    if prefixes & {"S", "E"}:
        return "BIOES"
    if prefixes & {"L", "U"}:
        return "BILOU"
    if "B" not in prefixes:
        return "IO" if "I" in prefixes else "no entities"
    starts = [prefix for before, (prefix, _) in zip([("", ""), *parsed], parsed, strict=False) if not before[0]]
    return "IOB1" if starts.count("I") > starts.count("B") else "IOB2"


def find_tag_column(rows: Sequence[Sequence[str]]) -> int | None:
    """Find the column of tags: the last one in which nearly all values are tags, not all of them B or I."""
    width = max(Counter(map(len, rows)).items(), key=lambda item: item[1], default=(0, 0))[0]
    usual = [row for row in rows if len(row) == width]
    for column in reversed(range(width)):
        counts = Counter(row[column] for row in usual)
        tags = {value for value in counts if TAG_PATTERN.fullmatch(value)}
        enough = sum(counts[tag] for tag in tags) >= 0.98 * len(rows)
        if enough and any(tag == "O" or len(tag) > 1 for tag in tags):
            return column
    return None


_LAYOUT_SAMPLE_BYTES = 1 << 18
_DOCUMENT = re.compile(r"-DOCSTART-(?!\S)(?:\s+\((?P<id>.*)\))?")
_CHINESE = re.compile("[\u3000-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


@dataclass(frozen=True)
class ConllLayout:
    """How the columns of a file are separated and what they hold."""

    tabs: bool
    tag: int
    token: int
    spaces: str
    documents: bool
    width: int | None = None
    """Number of columns of each line in a file with a label for each token; None if the file has tags."""

    def columns(self, line: str) -> list[str]:
        return split_columns(line, self.tabs)

    def fits(self, columns: Sequence[str]) -> bool:
        """Whether a line has a token and its tag, or label."""
        if self.width is not None:
            return len(columns) == self.width and bool(columns[self.tag] and columns[self.token])
        return len(columns) > self.tag and is_tag(columns[self.tag]) and bool(columns[self.token])

    def entities(self, tags: Sequence[str], bare: str) -> list[tuple[int, int, str]]:
        """Return the first token, end and label of each entity of a sentence."""
        if self.width is None:
            return decode_tags(tags, bare)
        return [(token, token + 1, label) for token, label in enumerate(tags)]


@dataclass
class _DocumentBuilder:
    """Rebuilds a document from sentences."""

    id: str
    text: str = ""
    sections: list[Section] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)

    def add(self, tokens: Sequence[str], entities: list[tuple[int, int, str]], spaces: str) -> None:
        start = len(self.text) + (1 if self.text else 0)
        text, token_spans = _join_tokens(tokens, spaces)
        self.text += ("\n" if self.text else "") + text
        self.sections.append(Section(start, len(self.text), "sentence"))
        for first, end, label in entities:
            span = (start + token_spans[first][0], start + token_spans[end - 1][1])
            self.entities.append(Entity(f"T{len(self.entities) + 1}", label, (span,)))

    def build(self) -> Iterator[Document]:
        """Yield the document, unless nothing was added to it."""
        if self.text:
            yield Document(self.id, self.text, tuple(self.sections), tuple(self.entities))


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents, or the sentences, of a CoNLL file."""
    layout, kind = detect_conll_layout(source)
    separator = "tabs" if layout.tabs else "spaces"
    source.tally[f"read as {kind} in column {layout.tag + 1}, separated by {separator}"] += 1
    builder = _DocumentBuilder(source.stem)
    number = 0
    for lines in split_paragraphs(source):
        if isinstance(lines, SetAside):
            yield lines
            continue
        starts = [line.text for line in lines if is_docstart(line.text)]
        if starts or not layout.documents:
            yield from builder.build()
            number += 1
            builder = _DocumentBuilder(_document_id(starts) or f"{source.stem}-{number}")
        bad = _add_sentence(builder, lines, layout, source)
        if bad:
            yield bad
    yield from builder.build()


def _document_id(starts: list[str]) -> str | None:
    match = _DOCUMENT.match(starts[-1]) if starts else None
    return match["id"] if match else None


def _add_sentence(
    builder: _DocumentBuilder, lines: list[SourceLine], layout: ConllLayout, source: SourceFile
) -> SetAside | None:
    tokens: list[str] = []
    tags: list[str] = []
    for line in lines:
        columns = layout.columns(line.text)
        if is_docstart(line.text):
            continue
        if layout.fits(columns):
            tokens.append(columns[layout.token])
            tags.append(columns[layout.tag])
        elif not is_comment_or_docstart(line.text):
            return source.set_aside(
                "the line has no token, or no tag in the column of tags", builder.id, f"line {line.number}"
            )
    if len(builder.text) + sum(map(len, tokens)) > source.options.max_record:
        return source.set_aside(f"the document is longer than max_record ({source.options.max_record})", builder.id)
    if tokens:
        builder.add(tokens, layout.entities(tags, source.options.entity_label), layout.spaces)
    return None


def is_docstart(line: str) -> bool:
    """Whether a line is the start of a document, which may have tags like a token."""
    return _DOCUMENT.match(line) is not None


def is_comment_or_docstart(line: str) -> bool:
    """Whether a line without a tag is a comment or the start of a document."""
    return line.startswith("# ") or is_docstart(line)


def detect_conll_layout(source: SourceFile) -> tuple[ConllLayout, str]:
    """Detect the layout of a file and what its column of tags holds, or raise `DamagedFile`."""
    head = source.head(_LAYOUT_SAMPLE_BYTES).decode(source.encoding(), errors="replace")
    if source.options.token_labels:
        return _token_layout(head, source.options), "token labels"
    layout, tags = detect_layout_from_head(head)
    if layout is None:
        raise DamagedFile("no column holds tags such as B-x, I-x and O in nearly every line")
    return layout, f"{detect_tag_dialect(tags)} tags"


def split_columns(line: str, tabs: bool) -> list[str]:
    """Split at tabs, or at runs of plain spaces: a wide Chinese space is a token."""
    return line.split("\t") if tabs else [part for part in line.replace("\t", " ").split(" ") if part]


def detect_layout_from_head(head: str) -> tuple[ConllLayout | None, list[str]]:
    """Detect the layout from the first lines, with the tags they hold; None if they are not CoNLL."""
    rows, tabs, documents = _rows(head)
    column = find_tag_column(rows)
    if column is None or max(map(len, rows)) < 2:
        return None, []
    rows = [row for row in rows if len(row) > column]
    token = 0 if column else -1
    layout = ConllLayout(tabs, column, token, _spaces([row[token] for row in rows]), documents)
    return layout, [row[column] for row in rows]


def _token_layout(head: str, options: ReadOptions) -> ConllLayout:
    """Detect the layout of a file with a label for every token."""
    rows, tabs, documents = _rows(head)
    widths = Counter(len(row) for row in rows if len(row) > 1)
    if not widths:
        raise DamagedFile("no line has a token and a label")
    width = widths.most_common(1)[0][0]
    tag = _column(options.label, "label", width, width - 1)
    token = _column(next(iter(options.text), None), "text", width, 0 if tag else width - 1)
    tokens = [row[token] for row in rows if len(row) == width]
    return ConllLayout(tabs, tag, token, _spaces(tokens), documents, width)


def _column(requested: str | None, option: str, width: int, default: int) -> int:
    if requested is None:
        return default
    if not requested.isdecimal() or not 1 <= int(requested) <= width:
        raise DamagedFile(f"there is no column {requested}; the columns are 1 to {width}; {describe_option(option)}")
    return int(requested) - 1


def _rows(head: str) -> tuple[list[list[str]], bool, bool]:
    """Split the first lines into columns; return also whether tabs separate them, and whether -DOCSTART- occurs."""
    lines = [line.rstrip("\r") for line in head.split("\n")[:-1] or [head]]
    content_lines = [line for line in lines if line.strip() and not is_comment_or_docstart(line)]
    tabs = sum("\t" in line for line in content_lines) > len(content_lines) / 2
    return [split_columns(line, tabs) for line in content_lines], tabs, any(map(is_docstart, lines))


def _spaces(tokens: Sequence[str]) -> str:
    """Return which tokens are joined by spaces: "none", "not around Chinese" or "all"."""
    chinese = sum(_CHINESE.match(token) is not None for token in tokens)
    if chinese < 0.2 * len(tokens):
        return "all"
    return "none" if all(len(token) == 1 for token in tokens) else "not around Chinese"


def _join_tokens(tokens: Sequence[str], spaces: str) -> tuple[str, list[tuple[int, int]]]:
    """Rebuild a sentence; return its text and the span of each token."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    length = 0
    for index, token in enumerate(tokens):
        gap = " " if index and _is_spaced(tokens[index - 1], token, spaces) else ""
        spans.append((length + len(gap), length + len(gap) + len(token)))
        parts += [gap, token]
        length = spans[-1][1]
    return "".join(parts), spans


def _is_spaced(left: str, right: str, spaces: str) -> bool:
    if spaces == "not around Chinese":
        return not (_CHINESE.match(left[-1:]) or _CHINESE.match(right[:1]))
    return spaces == "all"
