"""Labelled examples from files: texts or pairs of texts with a label, several labels or a number.

In: a table (TSV, CSV, with or without header), JSON lines, Parquet, or the sections of PubMed abstracts. Out: rows with
their unchanged texts, their label, the document they belong to, and file and line; remarks on the detected columns; and
what cannot be used, set aside with its line. A label is never guessed: a row without one, or with a word where all
others have numbers, is set aside. Where a text may have any number of labels, a blank cell may mean none: the caller
keeps such rows and decides.

Columns are found by the options first, then by usual names, then by content: a label has few different values or is a
number, texts are the long columns, and a column that counts the rows is neither. Where the content is ambiguous, the
error names the option that decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from alembert.corpus.examples.records import (
    GROUP_COLUMNS,
    LABEL_COLUMNS,
    PAIR_COLUMNS,
    ROW_ID_COLUMNS,
    SECTION_ID,
    TEXT_COLUMNS,
    FieldRecord,
    are_mostly_numbers,
    check_text,
    find_column,
    format_location,
    join_names,
    parse_number,
    read_records,
)
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, Remark, SetAside, describe_option
from alembert.corpus.readers.records import get_field
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

FieldRows = Sequence[Mapping[str, Any]]
_MAX_LABEL_LENGTH: Final = 40
"""Most characters of a label on average, where the content decides."""


@dataclass(frozen=True, kw_only=True)
class LabelledColumns:
    """Names of columns, or paths into nested fields."""

    texts: tuple[str, ...]
    label: str | None
    """None if labels are not read."""
    title: str | None = None
    group: str | None = None
    id: str | None = None
    by_content: bool = False
    unused: tuple[str, ...] = ()

    def describe(self) -> str:
        """Describe the detected columns in a sentence."""
        if self.group == SECTION_ID:
            return f"read as documents ({SECTION_ID} and a name) of sentences with a label each"
        texts = (
            f"the texts of a pair are in columns {self.texts[0]} and {self.texts[1]}"
            if len(self.texts) > 1
            else f"the text is in column {self.texts[0]}"
        )
        how = ", as their content tells" if self.by_content else ""
        rest = f"; not used: {', '.join(self.unused[:12])}" if self.unused else ""
        group = f", the document in column {self.group}" if self.group else ""
        label = f", the label in column {self.label}" if self.label else ""
        return f"{texts}{label}{group}{how}{rest}"


@dataclass(frozen=True)
class _ColumnProfile:
    """Statistics of the values of a column."""

    name: str
    rows: int
    distinct: int
    numbers: int
    is_whole: bool
    length: float
    has_lists: bool

    @property
    def is_number(self) -> bool:
        return are_mostly_numbers(self.numbers, self.rows)

    @property
    def counts_rows(self) -> bool:
        return self.is_number and self.is_whole and self.distinct == self.rows > 2

    @property
    def is_label(self) -> bool:
        is_few = self.distinct <= max(2.0, math.sqrt(self.rows)) and self.length <= _MAX_LABEL_LENGTH
        return self.has_lists or (not self.counts_rows and (self.is_number or is_few))

    @property
    def is_text(self) -> bool:
        return self.rows > 0 and not self.is_number and not self.has_lists


def detect_labelled_columns(records: FieldRows, options: ReadOptions, *, labelled: bool = True) -> LabelledColumns:
    """Detect the columns of a file, or raise `DamagedFile` with the option that decides.

    A column of labels in a file that is not `labelled` is neither text nor used.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    lower = {name.lower(): name for name in reversed(names)}
    title = _find_requested(options.title, names, records, "title")
    group = _find_requested(options.id, names, records, "id") or find_column(lower, GROUP_COLUMNS)
    row_id = find_column(lower, ROW_ID_COLUMNS)
    asked = options.label if labelled or options.label in names else None
    label = _find_requested(asked, names, records, "label") or find_column(lower, LABEL_COLUMNS)
    texts = _find_requested_texts(options, names, records) or _named_texts(lower, label)
    by_content = (labelled and not label) or not texts
    if by_content:
        assigned = {label, title, group, row_id, *texts}
        profiles = [_profile(name, records) for name in names if name not in assigned]
        if labelled:
            label = label or _label_by_content(profiles, names, has_texts=bool(texts))
        texts = texts or _texts_by_content(profiles, label, names)
    label = label if labelled else None
    used = {*texts, label, title, group, row_id}
    return LabelledColumns(
        texts=texts,
        label=label,
        title=title,
        group=group,
        id=row_id,
        by_content=by_content,
        unused=tuple(name for name in names if name not in used),
    )


def _find_requested(name: str | None, names: Sequence[str], records: FieldRows, option: str) -> str | None:
    """Find a requested column by its name, by its number, or by a path into nested fields."""
    if name is None or name in names:
        return name
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return names[int(name) - 1]
    if any(get_field(record, name) is not None for record in records):
        return name
    raise DamagedFile(f"there is no column {name}; the file has {join_names(names)}; {describe_option(option)}")


def _find_requested_texts(options: ReadOptions, names: Sequence[str], records: FieldRows) -> tuple[str, ...]:
    if len(options.text) > 2:
        raise DamagedFile(
            f"{len(options.text)} columns of text were asked for; expected one, or two for pairs; "
            + describe_option("text")
        )
    return tuple(column for name in options.text if (column := _find_requested(name, names, records, "text")))


def _named_texts(lower: Mapping[str, str], label: str | None) -> tuple[str, ...]:
    pair = next(((lower[a], lower[b]) for a, b in PAIR_COLUMNS if a in lower and b in lower), None)
    if pair and label not in pair:
        return pair
    column = find_column(lower, TEXT_COLUMNS, without=label)
    return (column,) if column else ()


def _profile(name: str, records: FieldRows) -> _ColumnProfile:
    values = [value for record in records if (value := record.get(name)) not in (None, "")]
    spelt = [value.strip() if isinstance(value, str) else str(value) for value in values]
    numbers = [number for value in spelt if (number := parse_number(value)) is not None]
    return _ColumnProfile(
        name=name,
        rows=len(values),
        distinct=len(set(spelt)),
        numbers=len(numbers),
        is_whole=all(number.is_integer() for number in numbers),
        length=sum(map(len, spelt)) / max(1, len(spelt)),
        has_lists=any(isinstance(value, list) for value in values),
    )


def _label_by_content(profiles: Sequence[_ColumnProfile], names: Sequence[str], *, has_texts: bool) -> str:
    longest = max(
        (profile for profile in profiles if profile.is_text), key=lambda profile: profile.length, default=None
    )
    fit = [profile.name for profile in profiles if profile.is_label and (has_texts or profile is not longest)]
    if len(fit) == 1:
        return fit[0]
    problem = f"{join_names(fit)} could each hold the label" if fit else "no column looks like a label"
    raise DamagedFile(f"{problem}; the file has {join_names(names)}; {describe_option('label')}")


def _texts_by_content(profiles: Sequence[_ColumnProfile], label: str | None, names: Sequence[str]) -> tuple[str, ...]:
    rest = [profile for profile in profiles if profile.is_text and profile.name != label]
    fit = [profile.name for profile in rest if not profile.is_label] or [profile.name for profile in rest]
    if len(fit) in (1, 2):
        return tuple(fit)
    problem = f"{join_names(fit)} could each hold the text" if fit else "no column looks like text"
    raise DamagedFile(f"{problem}; the file has {join_names(names)}; {describe_option('text')}")


LabelValue = str | tuple[str, ...] | float
"""One label, any number of labels, or a number."""


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One row of labelled data."""

    id: str
    texts: tuple[str, ...]
    """One text, or the two of a pair."""
    label: LabelValue
    source: str
    position: str
    """Where in the file: "line 3", "record 7"."""
    group: str | None = None
    """The document that the row is a part of, if the file has it."""

    @property
    def where(self) -> str:
        return format_location(self.source, self.position)


@dataclass(frozen=True)
class LabelledFile:
    """The rows of a file, and what was set aside."""

    rows: tuple[LabelledRow, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


BLANK_LABEL_REASON: Final = "the label is empty"

LabelPresence = Literal["all", "some", "none"]
"""Which rows have a label: all; some, and rows with a blank cell have the label ""; or none is read."""


def read_labelled(
    path: str | Path, options: ReadOptions | None = None, *, labels: LabelPresence = "all"
) -> LabelledFile:
    """Read the labelled rows of a file; a damaged file is set aside after the rows before the damage."""
    options = options or ReadOptions()
    source = SourceFile(Path(path), options)
    records: list[FieldRecord] = []
    aside: list[SetAside] = []
    rows: list[LabelledRow] = []
    remarks: list[Remark] = []
    try:
        collect_records(source, options, records, aside)
        if records:
            columns = detect_labelled_columns([record.fields for record in records], options, labelled=labels != "none")
            remarks.append(Remark(source.name, columns.describe(), 1))
            rows = _rows(records, columns, source, aside, keep_blank=labels != "all")
    except DamagedFile as reason:
        aside.append(source.set_aside(str(reason), position="file", kind="file"))
    finally:
        source.close()
    return LabelledFile(tuple(rows), tuple(aside), (*remarks, *source.remarks()))


def collect_records(
    source: SourceFile, options: ReadOptions, records: list[FieldRecord], aside: list[SetAside]
) -> None:
    """Collect the records up to the end of the file, or to the damage."""
    try:
        for item in read_records(source, options):
            if isinstance(item, SetAside):
                aside.append(item)
            else:
                records.append(item)
    except DamagedFile as damage:
        after = "" if source.position == "file" else "after "
        aside.append(source.set_aside(str(damage), position=after + source.position, kind="file"))


def _rows(
    records: Sequence[FieldRecord],
    columns: LabelledColumns,
    source: SourceFile,
    aside: list[SetAside],
    *,
    keep_blank: bool,
) -> list[LabelledRow]:
    rows: list[LabelledRow] = []
    for number, record in enumerate(records, start=1):
        try:
            row = _row(record, columns, source, number)
            if not keep_blank and row.label == "":
                raise BadInput(BLANK_LABEL_REASON)
            rows.append(row)
        except BadInput as wrong:
            aside.append(source.set_aside(str(wrong), position=record.position))
    return list(_unify_labels(rows, source, aside))


def _row(record: FieldRecord, columns: LabelledColumns, source: SourceFile, number: int) -> LabelledRow:
    return LabelledRow(
        id=_name(record.fields, columns.id) or f"{source.stem}-{number}",
        texts=_texts(record.fields, columns),
        label=_label(get_field(record.fields, columns.label)) if columns.label else "",
        source=source.name,
        position=record.position,
        group=_name(record.fields, columns.group),
    )


def _name(fields: Mapping[str, Any], column: str | None) -> str | None:
    value = get_field(fields, column) if column else None
    return str(value).strip() or None if isinstance(value, str | int) else None


def _texts(fields: Mapping[str, Any], columns: LabelledColumns) -> tuple[str, ...]:
    texts = [_text(get_field(fields, name), name) for name in columns.texts]
    title = get_field(fields, columns.title) if columns.title else None
    if isinstance(title, str) and title.strip():
        texts[0] = f"{title}\n{texts[0]}"
    return tuple(texts)


def _text(value: Any, name: str) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return check_text(str(value) if is_number else value, name)


def _label(value: Any) -> LabelValue:
    if isinstance(value, list):
        labels = tuple(dict.fromkeys(_parse_label(part) for part in value))
        if "" in labels:
            raise BadInput(BLANK_LABEL_REASON)
        return labels
    return _parse_label(value)


def _parse_label(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput("the label is not a finite number")
    if value is not None and not isinstance(value, str | int | float):
        raise BadInput("the label is neither a word nor a number nor a list of them")
    if value is None:
        raise BadInput(BLANK_LABEL_REASON)
    return str(value).strip()


def _unify_labels(rows: list[LabelledRow], source: SourceFile, aside: list[SetAside]) -> Iterator[LabelledRow]:
    """Make the labels of all rows one type: lists if some are lists, numbers if they are numbers with fractions."""
    labels = [row.label for row in rows if row.label != ""]
    if any(isinstance(label, tuple) for label in labels):
        for row in rows:
            is_single = isinstance(row.label, str) and row.label
            yield replace(row, label=(str(row.label),)) if is_single else row
    elif are_numeric_labels([str(label) for label in labels]):
        yield from _parse_numeric_labels(rows, source, aside)
    else:
        yield from rows


def are_numeric_labels(labels: Sequence[str]) -> bool:
    """Whether labels are numbers and not names of classes: nearly all are numbers, and some are not whole.

    >>> are_numeric_labels(["5.0", "3.8"]), are_numeric_labels(["0", "1"])
    (True, False)
    """
    numbers = [number for label in labels if (number := parse_number(label)) is not None]
    return are_mostly_numbers(len(numbers), len(labels)) and any(not number.is_integer() for number in numbers)


def _parse_numeric_labels(
    rows: Sequence[LabelledRow], source: SourceFile, aside: list[SetAside]
) -> Iterator[LabelledRow]:
    for row in rows:
        number = parse_number(str(row.label))
        if row.label == "":
            yield row
        elif number is None:
            reason = "the label is not a number, as those of the other rows are"
            aside.append(source.set_aside(reason, row.id, row.position))
        else:
            yield replace(row, label=number)
