"""The contract of readers: the options they take and the items they yield.

A reader is a module with ``read(source, options)``, a generator that holds one record at a time. It yields a `Document`
for each good record, a `SetAside` for each bad one and a `DeletedRecord` for each record that its file withdraws, and
continues after each of them. Corrections (white space in a mention, a lone surrogate, a detected encoding) are counted
and reported as `Remark` items at the end of the file. Readers raise only for wrong options, never for wrong input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from alembert.corpus.document import Document
from alembert.errors import BadSetting

MEGABYTE = 1 << 20
SetAsideKind = Literal["record", "annotation", "file"]
DELIMITERS: Final = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
"""Signs between the columns of a table, which are detected from its lines."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """What could not be used: the file, the position in it ("line 3", "record 7", "file"), the reason and the kind.

    An "annotation" is missing from a document that is used; a "file" is a whole file, or the rest of one.
    """

    source: str
    position: str
    id: str | None
    reason: str
    kind: SetAsideKind = "record"

    def describe(self) -> str:
        return f"{self.source}, {self.position} set aside: {self.reason}"


@dataclass(frozen=True, slots=True)
class DeletedRecord:
    """A record that its source has withdrawn: earlier documents with this id are to be dropped."""

    source: str
    position: str
    id: str


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that was corrected or detected while reading, and how often."""

    source: str
    reason: str
    count: int

    def describe(self) -> str:
        return f"{self.source}: {self.reason}" + f" ({self.count:,} times)" * (self.count > 1)


Item = Document | SetAside | DeletedRecord | Remark


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read; the defaults suit files that follow their format."""

    encoding: str | None = None
    """The encoding of the file; recognised when not given."""
    max_record: int = 64 * MEGABYTE
    """A line, record or document of more bytes than this is set aside without being held in memory."""
    id: str | None = None
    """Field or column (name, or number counted from 1) that holds the document id."""
    text: tuple[str, ...] = ()
    """Fields or columns that hold the text; several are joined by a line break."""
    title: str | None = None
    """Field or column that holds the title, which goes before the text."""
    label: str | None = None
    """Field or column that holds the label or labels of the document."""
    entities: str | None = None
    """Field that holds the entities of the document (JSON)."""
    header: bool | None = None
    """Whether the first row of a table names its columns; found out when not given."""
    delimiter: str | None = None
    """Sign between the columns of a table, or its name (comma, semicolon, tab, bar); found out when not given."""
    quotes: bool | None = None
    """Whether double quotes enclose the cells of a table; found out when not given."""
    documents: Literal["file", "blank"] = "file"
    """Plain text: the whole file is one document, or blank lines separate documents."""
    entity_label: str = "entity"
    """Label of entities in CoNLL files whose tags are bare B, I and O."""
    token_labels: bool = False
    """CoNLL: each token is an entity whose label is its tag; for part of speech."""
    types: tuple[str, ...] = ()
    """tag: types of entities that files annotate, as "TYPE,TYPE" for all or "FILE=TYPE,TYPE" for a file or a folder;
    other types are unknown there. Empty: files annotate all types."""
    captions: bool = False
    """JATS: also read the captions of figures and tables."""
    translations: bool = True
    """MEDLINE and JATS: give abstracts and titles in other languages as documents of their own."""

    def __post_init__(self) -> None:
        if self.max_record < 1:
            raise BadSetting(
                f"`max_record` is {self.max_record}; it is a number of bytes of at least 1. "
                f"Leave it out for {64 * MEGABYTE}."
            )
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", DELIMITERS.get(self.delimiter, self.delimiter))
            _check_delimiter(self.delimiter)


def _check_delimiter(sign: str) -> None:
    if len(sign) != 1 or sign in '"\r\n':
        raise BadSetting(
            f"`delimiter` is {sign!r}; expected one character such as ; or one of {', '.join(DELIMITERS)}."
        )


def describe_option(option: str) -> str:
    """Explain how to set an option on the command line and in Python."""
    return f"set `{option}` under [read] in the --config file (in Python: alembert.read(..., {option}=...))"


class DamagedFile(Exception):
    """The rest of a file cannot be read; what came before it is good. Readers catch it themselves."""
