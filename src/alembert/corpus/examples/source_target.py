"""Pairs of source and target texts: abstracts with titles, articles with summaries, questions with answers.

In: JSON lines, Parquet, or a table. Out: unchanged pairs of source and target, each with file and line; a remark on the
columns; and what cannot be used, set aside with its line. Columns are those of the options, or have a usual name, or
are the only two of a table. Unlike a label, a target is never read as a number or a list of classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from alembert.corpus.examples.labelled import collect_records
from alembert.corpus.examples.records import (
    ROW_ID_COLUMNS,
    FieldRecord,
    check_text,
    find_column,
    format_location,
    join_names,
)
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, Remark, SetAside, describe_option
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

SOURCE_FIELDS: Final = ("source", "src", "document", "article", "abstract", "text", "content", "input", "question")
TARGET_FIELDS: Final = ("target", "tgt", "summary", "highlights", "title", "headline", "output", "answer")
"""The first one in a file is used."""


@dataclass(frozen=True, slots=True)
class SourceTargetPair:
    """A source text and its target."""

    id: str
    source: str
    target: str
    where: str
    """File and line."""


@dataclass(frozen=True)
class SourceTargetFile:
    """The pairs of a file, and what was set aside."""

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
    """Read the pairs of a file; a damaged file is set aside after the pairs before the damage."""
    options = options or ReadOptions()
    source = SourceFile(Path(path), options)
    records: list[FieldRecord] = []
    aside: list[SetAside] = []
    pairs: list[SourceTargetPair] = []
    remarks: list[Remark] = []
    try:
        collect_records(source, options, records, aside)
        if records:
            columns = _columns([record.fields for record in records], options)
            remarks.append(Remark(source.name, columns.sentence(), 1))
            pairs = list(_pairs(records, columns, source, aside))
    except DamagedFile as reason:
        aside.append(source.set_aside(str(reason), position="file", kind="file"))
    finally:
        source.close()
    return SourceTargetFile(tuple(pairs), tuple(aside), (*remarks, *source.remarks()))


def _columns(records: Sequence[Mapping[str, Any]], options: ReadOptions) -> _Columns:
    names = list(dict.fromkeys(name for record in records for name in record))
    lower = {name.lower(): name for name in reversed(names)}
    both = names if len(names) == 2 else [None, None]
    target = options.label or find_column(lower, TARGET_FIELDS) or both[1]
    titles = (options.title,) if options.title else ()
    source = find_column(lower, SOURCE_FIELDS, without=target) or both[0]
    sources = titles + options.text or ((source,) if source else ())
    for column, what, option in ((sources, "source", "text"), (target, "target", "label")):
        if not column:
            raise DamagedFile(
                f"no column is known to hold the {what}; the file has {join_names(names)}; {describe_option(option)}"
            )
    assert target is not None
    return _Columns(sources, target, options.id or find_column(lower, ROW_ID_COLUMNS))


def _pairs(
    records: Sequence[FieldRecord], columns: _Columns, source: SourceFile, aside: list[SetAside]
) -> Iterator[SourceTargetPair]:
    for number, record in enumerate(records, start=1):
        stated_id = get_field(record.fields, columns.id) if columns.id else None
        name = str(stated_id).strip() if isinstance(stated_id, str | int) else ""
        name = name or f"{source.stem}-{number}"
        try:
            text = "\n".join(check_text(get_field(record.fields, column), column) for column in columns.sources)
            target = check_text(get_field(record.fields, columns.target), columns.target)
        except BadInput as wrong:
            aside.append(source.set_aside(str(wrong), name, record.position))
        else:
            yield SourceTargetPair(name, text, target, format_location(source.name, record.position))
