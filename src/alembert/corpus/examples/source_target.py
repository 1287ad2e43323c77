"""Texts with what is to be written for them: abstracts with titles, articles with summaries, questions with answers.

In: JSON lines, Parquet, or a table. Out: pairs of source and target as they were written, each with file and line; which
columns they were in, in a sentence; and what cannot be used, set aside with its line. Columns are those that were asked
for, or have a usual name, or are the two that a table has. Unlike a label, a target is never read as a number or a list
of classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembert.corpus.examples.labelled import collect_records
from alembert.corpus.examples.records import ROW_ID_COLUMNS, FieldRecord
from alembert.corpus.readers.contract import (
    DamagedFile,
    ReadOptions,
    Remark,
    SetAside,
    describe_option,
)
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

SOURCE_FIELDS: Final = ("source", "src", "document", "article", "abstract", "text", "content", "input", "question")
TARGET_FIELDS: Final = ("target", "tgt", "summary", "highlights", "title", "headline", "output", "answer")
"""The first of them that a file has is used."""


@dataclass(frozen=True, slots=True)
class SourceTargetPair:
    """A text and what is to be written for it."""

    id: str
    source: str
    target: str
    where: str
    """File and line."""


@dataclass(frozen=True)
class SourceTargetFile:
    """What a file gave."""

    pairs: tuple[SourceTargetPair, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class _Columns:
    sources: tuple[str, ...]
    target: str
    id: str | None

    def sentence(self) -> str:
        return f"the source is in column {' and '.join(self.sources)}, the target in column {self.target}"


def read_source_target_pairs(path: str | Path, options: ReadOptions | None = None) -> SourceTargetFile:
    """Read the pairs of a file; one that cannot be read is set aside, with what of it was read before."""
    options = options or ReadOptions()
    source = SourceFile(Path(path), options)
    records: list[FieldRecord] = []
    aside: list[SetAside] = []
    pairs: list[SourceTargetPair] = []
    told: list[Remark] = []
    try:
        collect_records(source, options, records, aside)
        if records:
            columns = _columns([record.fields for record in records], options)
            told.append(Remark(source.name, columns.sentence(), 1))
            pairs = list(_pairs(records, columns, source, aside))
    except DamagedFile as reason:
        aside.append(source.set_aside(str(reason), position="file", kind="file"))
    finally:
        source.close()
    return SourceTargetFile(tuple(pairs), tuple(aside), (*told, *source.remarks()))


def _columns(records: Sequence[Mapping[str, Any]], options: ReadOptions) -> _Columns:
    names = list(dict.fromkeys(name for record in records for name in record))
    lower = {name.lower(): name for name in reversed(names)}
    both = names if len(names) == 2 else [None, None]
    target = options.label or _first(lower, TARGET_FIELDS) or both[1]
    titles = (options.title,) if options.title else ()
    sources = titles + options.text or _one(_first(lower, SOURCE_FIELDS, without=target) or both[0])
    for found, what, option in ((sources, "source", "text"), (target, "target", "label")):
        if not found:
            raise DamagedFile(
                f"no column is known to hold the {what}; the file has {_listed(names)}; {describe_option(option)}"
            )
    assert target is not None
    return _Columns(sources, target, options.id or _first(lower, ROW_ID_COLUMNS))


def _first(lower: Mapping[str, str], known: Sequence[str], without: str | None = None) -> str | None:
    return next((lower[name] for name in known if name in lower and lower[name] != without), None)


def _one(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _pairs(
    records: Sequence[FieldRecord], columns: _Columns, source: SourceFile, aside: list[SetAside]
) -> Iterator[SourceTargetPair]:
    for number, record in enumerate(records, start=1):
        given = get_field(record.fields, columns.id) if columns.id else None
        name = str(given).strip() if isinstance(given, str | int) else ""
        name = name or f"{source.stem}-{number}"
        try:
            text = "\n".join(_text(record.fields, column) for column in columns.sources)
            target = _text(record.fields, columns.target)
        except BadInput as wrong:
            aside.append(source.set_aside(str(wrong), name, record.position))
        else:
            yield SourceTargetPair(name, text, target, _where(source.name, record.position))


def _where(source: str, position: str) -> str:
    kind, _, number = position.partition(" ")
    return f"{source}:{number}" if kind == "line" else f"{source}, {position}"


def _text(fields: Mapping[str, Any], column: str) -> str:
    value = get_field(fields, column)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise BadInput(f"there is no text in {column}")
    if not value.strip():
        raise BadInput(f"the text in {column} is empty")
    return value


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more
