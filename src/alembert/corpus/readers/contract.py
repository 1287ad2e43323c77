"""The contract of readers: the options they take and the items they yield.

A reader is a module with ``read(source, options)``, a generator that holds one record at a time. It yields a `Document`
for each good record, a `SetAside` for each bad one and a `DeletedRecord` for each record that its file withdraws, and
continues after each of them. Corrections (white space in a mention, a lone surrogate, a detected encoding) are counted
and reported as `Remark` items at the end of the file. Readers raise only for wrong options, never for wrong input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from alembert.corpus.document import Document
from alembert.errors import BadSetting

MEGABYTE = 1 << 20
_DETAIL = re.compile(r"\s*[(:;].*")
_NUMBER = re.compile(r"(?<![\w-])[A-Z]?\d+(?:[.,]\d+)*")
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

    def to_record(self) -> dict[str, str | None]:
        """Return the record of `set-aside.jsonl`."""
        return {
            "file": self.source,
            "position": self.position,
            "id": self.id,
            "reason": self.reason,
            "kind": self.kind,
        }


def generalise_reason(reason: str) -> str:
    """Remove numbers, ids and details from a reason, so that similar ones are counted together.

    >>> generalise_reason("the row has 3 columns where the first has 12 (see line 1)")
    'the row has N columns where the first has N'
    """
    return _NUMBER.sub("N", _DETAIL.sub("", reason))


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
    """Encoding of the files; none: detected."""
    max_record: int = 64 * MEGABYTE
    """Maximum bytes of a line, record or document; longer ones are set aside."""
    id: str | None = None
    """Field or column (name, or number from 1) of the document id."""
    text: tuple[str, ...] = ()
    """Fields or columns of the text; several are joined by line breaks."""
    title: str | None = None
    """Field or column of the title, which is put before the text."""
    label: str | None = None
    """Field or column of the label or labels."""
    entities: str | None = None
    """Field of the entities (JSON)."""
    header: bool | None = None
    """Whether the first row of a table names its columns; none: detected."""
    delimiter: str | None = None
    """Separator of the columns of a table: a character, or comma, semicolon, tab or bar; none: detected."""
    quotes: bool | None = None
    """Whether double quotes enclose cells of a table; none: detected."""
    documents: Literal["file", "blank"] = "file"
    """Plain text: file (each file is one document) or blank (blank lines separate documents)."""
    entity_label: str = "entity"
    """Label of entities in CoNLL files whose tags have no type (B, I and O)."""
    token_labels: bool = False
    """CoNLL: treat each token as an entity with its tag as label, as for part of speech."""
    types: tuple[str, ...] = ()
    """tag: entity types that files annotate, as "TYPE,TYPE" for all files or "FILE=TYPE,TYPE" for a file or folder; other
    types are treated as unannotated there. Empty: files annotate all types."""
    captions: bool = False
    """JATS: also read the captions of figures and tables."""
    translations: bool = True
    """MEDLINE and JATS: read abstracts and titles in other languages as separate documents."""

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
