"""Texts to compare: examples, how they are read from files of any kind, and their rows of tokens.

A line of plain text is an example without supervision, and so is a document of any format that `corpus build` reads,
or each of its sentences (`unit` sentence). Rows of tables, and of JSON lines and Parquet whose fields are called so,
are texts, pairs, triples, or pairs with a score. What cannot be used is set aside with its line. When examples are
rewritten, what is said of texts (that they are alike, and how much) stays as it is.

Each text of an example is a row by itself, `[CLS] text [SEP]`. To be trained on, a text is cut to a length, as
SimCSE does, and what is cut is counted; without supervision the text is there twice, and dropout makes the difference.
Otherwise long texts are read through windows, and their vectors averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import Document
from alembert.corpus.examples.records import FieldRecord, parse_number, read_records
from alembert.corpus.readers import read as read_documents
from alembert.corpus.readers import sniff_format
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, Remark, SetAside
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.source import SourceFile
from alembert.data.windows import IntArray, Row
from alembert.errors import BadInput
from alembert.tasks.classify.rows import WindowSpec, encode_text
from alembert.tasks.compare.columns import (
    PARTNERS,
    CompareColumns,
    CompareKind,
    CompareSettings,
    detect_columns,
    find_named_columns,
)
from alembert.tasks.example import Coverage, EncodedExample, Example, Rewriter
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Tokenizer

_NAMED: Final = ("jsonl", "parquet")
"""Formats in which every field has a name."""
_LINES: Final = 20
"""Lines at the beginning of a plain file that are looked at for tabs."""


@dataclass(frozen=True, kw_only=True)
class CompareExample(Example):
    """Texts that are compared: the first with the others, or with those of other examples."""

    kind: CompareKind | None = None
    """What the example says; none: nothing, its texts are only to be read."""
    score: float | None = None
    """How similar the two texts are, as the file has it."""
    group: str | None = None
    """The document that the text is a sentence of."""

    @property
    def group_id(self) -> int | str:
        return self.key if self.group is None else self.group


CompareItems = Iterator[CompareExample | SetAside | Remark]


def read_file(path: Path, settings: CompareSettings, options: ReadOptions) -> CompareItems:
    """Read a file; rows that cannot be used are set aside."""
    for item in _read(path, options):
        if settings.unit == "sentence" and isinstance(item, CompareExample) and item.kind == "unsupervised":
            yield from _sentences(item)
        else:
            yield item


def _read(path: Path, options: ReadOptions) -> CompareItems:
    source = SourceFile(path, options)
    try:
        name = _format(source)
        if name == "lines":
            yield from _lines(source)
        elif name == "table":
            yield from _rows(source, _with_header(source, options))
        elif name in _NAMED and not _are_documents(path, options):
            yield from _rows(source, options)
        else:
            source.close()
            yield from _documents(path, options)
            return
    except DamagedFile as damage:
        after = "" if source.position == "file" else "after "
        yield source.set_aside(str(damage), position=after + source.position, kind="file")
    finally:
        source.close()
    yield from source.remarks()


def _format(source: SourceFile) -> str:
    """Name the format; plain text whose lines all have as many tabs is a table."""
    is_folder = source.path is not None and source.path.is_dir()
    if not is_folder and not source.head(1):
        raise DamagedFile("the file is empty")
    name = sniff_format(source)
    if name != "text":
        return name
    head = source.head(1 << 16).decode(source.encoding(), errors="replace").splitlines()[:_LINES]
    tabs = {line.count("\t") for line in head if line.strip()}
    return "table" if len(tabs) == 1 and tabs != {0} else "lines"


def _are_documents(path: Path, options: ReadOptions) -> bool:
    """Decide by the first record of JSON or Parquet, whose fields have names, whether none of them are texts to compare."""
    if len(options.text) > 1:
        return False
    source = SourceFile(path, options)
    try:
        records = (item for item in read_records(source, options) if isinstance(item, FieldRecord))
        first = next(records, None)
    except DamagedFile:
        first = None
    finally:
        source.close()
    return first is not None and len(find_named_columns(list(first.fields))) < 2


def _with_header(source: SourceFile, options: ReadOptions) -> ReadOptions:
    """Take a first row that names an anchor and its partner for a header, which labelled data in general have not."""
    if options.header is not None:
        return options
    first = source.head(1 << 12).decode(source.encoding(), errors="replace").split("\n", 1)[0]
    cells = {cell.strip(' "\r\ufeff').lower() for cell in re.split(r"[,\t]", first)}
    is_header = any(cells.issuperset(names) for names in PARTNERS)
    return replace(options, header=True) if is_header else options


def _lines(source: SourceFile) -> CompareItems:
    """Read each line that is not blank."""
    for line in source.lines():
        if isinstance(line, SetAside):
            yield line
        elif line.text.strip():
            yield CompareExample(
                id=f"{source.stem}-{line.number}",
                texts=(line.text.strip(),),
                where=f"{source.name}:{line.number}",
                kind="unsupervised",
            )


def _documents(path: Path, options: ReadOptions) -> CompareItems:
    for item in read_documents(path, options):
        if isinstance(item, Document):
            yield CompareExample(
                id=item.id, texts=(item.text,), where=f"{path}, {item.id}", kind="unsupervised", group=item.id
            )
        elif isinstance(item, SetAside | Remark):
            yield item


def _rows(source: SourceFile, options: ReadOptions) -> CompareItems:
    records: list[FieldRecord] = []
    for item in read_records(source, options):
        if isinstance(item, SetAside):
            yield item
        else:
            records.append(item)
    if not records:
        return
    columns = detect_columns([record.fields for record in records], options)
    yield Remark(source.name, columns.sentence(), 1)
    for number, record in enumerate(records, start=1):
        try:
            yield _row(record, columns, source, number)
        except BadInput as wrong:
            yield source.set_aside(str(wrong), position=record.position)


def _row(record: FieldRecord, columns: CompareColumns, source: SourceFile, number: int) -> CompareExample:
    kind, _, place = record.position.partition(" ")
    return CompareExample(
        id=f"{source.stem}-{number}",
        texts=tuple(_text(record, name) for name in columns.texts),
        where=f"{source.name}:{place}" if kind == "line" else f"{source.name}, {record.position}",
        kind=columns.kind,
        score=None if columns.score is None else _score(record, columns.score),
    )


def _text(record: FieldRecord, name: str) -> str:
    value = get_field(record.fields, name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"there is no text in {name}")
    return value


def _score(record: FieldRecord, name: str) -> float:
    value = get_field(record.fields, name)
    score = None if value is None or isinstance(value, bool) else parse_number(str(value))
    if score is None:
        raise BadInput(f"the score in {name} is not a number")
    return score


def _sentences(example: CompareExample) -> Iterator[CompareExample]:
    """Make an example of each sentence; those of one text stay together when data are divided."""
    (text,) = example.texts
    for number, (start, end) in enumerate(split_sentences(text), start=1):
        yield replace(example, id=f"{example.id}-{number}", texts=(text[start:end],), group=example.group or example.id)


_NAMES: Final[dict[CompareKind, tuple[str, ...]]] = {
    "unsupervised": ("text",),
    "pairs": ("anchor", "positive"),
    "triples": ("anchor", "positive", "negative"),
    "scores": ("sentence1", "sentence2"),
}


class CompareRewriter(Rewriter[CompareExample]):
    """Rewrites texts that are compared."""

    def records(self, example: CompareExample) -> list[dict[str, Any]]:
        names = _NAMES[example.kind or "unsupervised"]
        score = {} if example.score is None else {"score": example.score}
        return [{"id": example.id, **dict(zip(names, example.texts, strict=True)), **score}]


ANCHOR, PARTNER, NEGATIVE = range(3)
"""What a text is in its example."""
RowLabels = Sequence[npt.NDArray[Any] | None]
"""What stands at the first row of each text: its role, or the score; none: not known, or said at another."""


@dataclass(frozen=True, eq=False)
class CompareLayout:
    """Which text of the example each row belongs to, and how much it counts there: by its tokens."""

    owners: IntArray
    weights: IntArray
    texts: int


def encode_texts(
    texts: Sequence[str], ids: Sequence[IntArray], cutting: WindowSpec, labels: RowLabels
) -> EncodedExample:
    """Encode whole texts."""
    parts = [encode_text([text], [own], cutting, None) for text, own in zip(texts, ids, strict=True)]
    rows = [
        replace(row, labels=label if row is part.rows[0] else None)
        for part, label in zip(parts, labels, strict=True)
        for row in part.rows
    ]
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    split = int(len(rows) > len(texts))
    total = Coverage.total(part.coverage for part in parts)
    coverage = replace(total, examples=1, split_examples=split, gold=_count_gold(labels))
    return EncodedExample(tuple(rows), coverage, _layout(rows, owners))


def encode_training_texts(
    texts: Sequence[str], ids: Sequence[IntArray], tokenizer: Tokenizer, limit: int, labels: RowLabels
) -> EncodedExample:
    """Encode the beginnings of texts, one row each."""
    room = limit - 2
    cls, sep = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    rows = tuple(
        Row(ids=np.concatenate([cls, own[:room], sep]), positions=np.zeros(1, np.int64), labels=label)
        for own, label in zip(ids, labels, strict=True)
    )
    coverage = Coverage(
        examples=1,
        characters=sum(map(len, texts)),
        tokens=sum(row.length for row in rows),
        windows=len(rows),
        unknown=sum(int(np.count_nonzero(row.ids == tokenizer.unk_id)) for row in rows),
        gold=_count_gold(labels),
        cut_characters=sum(
            _count_cut_characters(text, tokenizer, room)
            for text, own in zip(texts, ids, strict=True)
            if len(own) > room
        ),
    )
    return EncodedExample(rows, coverage, _layout(rows, np.arange(len(rows))))


def duplicate_rows(encoded: EncodedExample) -> EncodedExample:
    """Let a text that is alone in its example be its own partner; its characters still count once."""
    (row,) = encoded.rows
    partner = None if row.labels is None else np.array([PARTNER])
    rows, once = (row, replace(row, labels=partner)), encoded.coverage
    coverage = replace(once, tokens=2 * once.tokens, windows=2, unknown=2 * once.unknown)
    return EncodedExample(rows, coverage, _layout(rows, np.arange(2)))


def _layout(rows: Sequence[Row], owners: IntArray) -> CompareLayout:
    return CompareLayout(owners, np.array([row.length for row in rows]), int(owners[-1]) + 1)


def _count_cut_characters(text: str, tokenizer: Tokenizer, room: int) -> int:
    """Count the characters behind the last token that is kept."""
    return len(text) - tokenizer.encode(text, add_special_tokens=False).offsets[room - 1][1]


def _count_gold(labels: RowLabels) -> int:
    return int(any(label is not None for label in labels))
