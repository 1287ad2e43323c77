"""Examples of the task `compare`: read from files of any kind.

A line of plain text is an example without supervision, and so is a document of any format that `corpus build` reads, or
each of its sentences (`unit` sentence). Rows of tables, and of JSON lines and Parquet whose fields are called so, are
texts, pairs, triples, or pairs with a score. What cannot be used is set aside with its line.
When examples are rewritten, what is said of texts (that they are alike, and how much) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from alembert.corpus.document import Document
from alembert.corpus.examples.records import FieldRecord, parse_number, read_records
from alembert.corpus.readers import read as read_documents
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, Remark, SetAside
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.sniff import sniff_format
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput
from alembert.tasks.compare.columns import (
    PARTNERS,
    CompareColumns,
    CompareKind,
    CompareSettings,
    detect_columns,
    find_named_columns,
)
from alembert.tasks.example import Example
from alembert.tasks.rewriting import Rewriter
from alembert.text.sentences import split_sentences

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
