"""Labelled examples from files: texts or pairs of texts with a label, several labels or a number.

In: a table (TSV, CSV, with or without header), JSON lines, Parquet, or the sections of PubMed abstracts. Out: rows with
their texts as they were written, what they are labelled with, the document they belong to, and file and line; what was
told from the file, in sentences; and what cannot be used, set aside with its line. A label is never guessed: a row
without one, or with a word where all others have numbers, is set aside. Where a text may have any number of labels, a
blank cell is an answer too: who reads such files keeps it, and decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from alembert.corpus.labelled_columns import Columns, columns_of
from alembert.corpus.labelled_records import Record, as_number, mostly_numbers, records_of
from alembert.corpus.readers.contract import Damaged, ReadOptions, Remark, SetAside
from alembert.corpus.readers.records import field
from alembert.corpus.readers.source import Source
from alembert.errors import BadInput

Label = str | tuple[str, ...] | float
"""One label, several (also none of them), or a number."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One row of labelled data."""

    id: str
    texts: tuple[str, ...]
    """One text, or the two of a pair."""
    label: Label
    source: str
    position: str
    """Where in the file: "line 3", "record 7"."""
    group: str | None = None
    """The document that the row is a part of, if the file says so."""

    @property
    def where(self) -> str:
        """File and line, as `file:3` where there are lines."""
        kind, _, number = self.position.partition(" ")
        return f"{self.source}:{number}" if kind == "line" else f"{self.source}, {self.position}"


@dataclass(frozen=True)
class LabelledFile:
    """What a file gave."""

    rows: tuple[Labelled, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


BLANK: Final = "the label is empty"
"""Why a row without a label is set aside."""


Labels = Literal["all", "some", "none"]
"""Which rows have a label: all; some, and those whose cell is blank are kept with the label ""; or none is looked at."""


def read_labelled(path: str | Path, options: ReadOptions | None = None, *, labels: Labels = "all") -> LabelledFile:
    """Read the labelled rows of a file; one that cannot be read is set aside, with what of it was read before."""
    options = options or ReadOptions()
    source = Source(Path(path), options)
    records: list[Record] = []
    aside: list[SetAside] = []
    rows: list[Labelled] = []
    told: list[Remark] = []
    try:
        collect(source, options, records, aside)
        if records:
            columns = columns_of([record.fields for record in records], options, labelled=labels != "none")
            told.append(Remark(source.name, columns.sentence(), 1))
            rows = _rows(records, columns, source, aside, keep_blank=labels != "all")
    except Damaged as reason:
        aside.append(source.aside(str(reason), position="file", kind="file"))
    finally:
        source.close()
    return LabelledFile(tuple(rows), tuple(aside), (*told, *source.remarks()))


def collect(source: Source, options: ReadOptions, records: list[Record], aside: list[SetAside]) -> None:
    """Gather the records up to the end of the file, or to where it is damaged."""
    try:
        for item in records_of(source, options):
            if isinstance(item, SetAside):
                aside.append(item)
            else:
                records.append(item)
    except Damaged as damage:
        after = "" if source.position == "file" else "after "
        aside.append(source.aside(str(damage), position=after + source.position, kind="file"))


def _rows(
    records: Sequence[Record], columns: Columns, source: Source, aside: list[SetAside], *, keep_blank: bool
) -> list[Labelled]:
    rows: list[Labelled] = []
    for number, record in enumerate(records, start=1):
        try:
            row = _row(record, columns, source, number)
            if not keep_blank and row.label == "":
                raise BadInput(BLANK)
            rows.append(row)
        except BadInput as wrong:
            aside.append(source.aside(str(wrong), position=record.position))
    return list(_alike(rows, source, aside))


def _row(record: Record, columns: Columns, source: Source, number: int) -> Labelled:
    return Labelled(
        id=_name(record.fields, columns.id) or f"{source.stem}-{number}",
        texts=_texts(record.fields, columns),
        label=_label(field(record.fields, columns.label)) if columns.label else "",
        source=source.name,
        position=record.position,
        group=_name(record.fields, columns.group),
    )


def _name(fields: Mapping[str, Any], column: str | None) -> str | None:
    value = field(fields, column) if column else None
    return str(value).strip() or None if isinstance(value, str | int) else None


def _texts(fields: Mapping[str, Any], columns: Columns) -> tuple[str, ...]:
    texts = [_text(field(fields, name), name) for name in columns.texts]
    title = field(fields, columns.title) if columns.title else None
    if isinstance(title, str) and title.strip():
        texts[0] = f"{title}\n{texts[0]}"
    return tuple(texts)


def _text(value: Any, name: str) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise BadInput(f"there is no text in {name}")
    if not value.strip():
        raise BadInput(f"the text in {name} is empty")
    return value


def _label(value: Any) -> Label:
    if isinstance(value, list):
        labels = tuple(dict.fromkeys(_one_label(part) for part in value))
        if "" in labels:
            raise BadInput(BLANK)
        return labels
    return _one_label(value)


def _one_label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput("the label is not a finite number")
    if value is not None and not isinstance(value, str | int | float):
        raise BadInput("the label is neither a word nor a number nor a list of them")
    if value is None:
        raise BadInput(BLANK)
    return str(value).strip()


def _alike(rows: list[Labelled], source: Source, aside: list[SetAside]) -> Iterator[Labelled]:
    """Give all rows labels of one kind: lists if some have lists, numbers if they are numbers with fractions."""
    labels = [row.label for row in rows if row.label != ""]
    if any(isinstance(label, tuple) for label in labels):
        for row in rows:
            is_one = isinstance(row.label, str) and row.label
            yield replace(row, label=(str(row.label),)) if is_one else row
    elif are_numbers([str(label) for label in labels]):
        yield from _numbered(rows, source, aside)
    else:
        yield from rows


def are_numbers(labels: Sequence[str]) -> bool:
    """Tell numbers from names of classes: nearly all are numbers, and some are no whole ones.

    >>> are_numbers(["5.0", "3.8"]), are_numbers(["0", "1"])
    (True, False)
    """
    numbers = [number for label in labels if (number := as_number(label)) is not None]
    return mostly_numbers(len(numbers), len(labels)) and any(not number.is_integer() for number in numbers)


def _numbered(rows: Sequence[Labelled], source: Source, aside: list[SetAside]) -> Iterator[Labelled]:
    for row in rows:
        number = as_number(str(row.label))
        if row.label == "":
            yield row
        elif number is None:
            reason = "the label is not a number, as those of the other rows are"
            aside.append(source.aside(reason, row.id, row.position))
        else:
            yield replace(row, label=number)
