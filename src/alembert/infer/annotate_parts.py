"""The Annotations artefact: numbered parts in one of the writers' formats, and what each of them holds.

    part-00000.jsonl.gz ...   documents in the order of the input, with what was found in them; for brat folders
    parts.jsonl               a line a part: its documents, characters, and from which to which item of the input it goes
    set-aside.jsonl           what is not in a part: file, position, id, reason

In go the documents of a part; out comes its file, under its name only when all of it is on the disk. A part that was
written and is not in the record yet is written again by the next run, with the same bytes. A document that a writer
cannot write at all is left out and named; what a format has no place for is counted by the writer.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from alembert.artifact.disk import iter_visible_files, sync_folder
from alembert.corpus.document import Document
from alembert.corpus.writers import write
from alembert.errors import BadFile, UserError

KIND: Final = "Annotations"
PARTS: Final = "parts.jsonl"
SET_ASIDE: Final = "set-aside.jsonl"
PART: Final = re.compile(r"part-(\d{5,})(\..+)?")
_NO_TEXT: Final = "the format cannot hold it: it has half of a surrogate pair, or another value that is no text"
_MARK: Final = "brat cannot hold it: a text file that begins with U+FEFF is read without it, and offsets would shift"
PartFormat = Literal["jsonl", "bioc", "bioc-json", "pubtator", "brat", "parquet", "conll", "label-studio"]


@dataclass(frozen=True)
class Form:
    """How a format is written: by which writer, and how the name of a part ends."""

    writer: str
    ending: str
    has_meta: bool = True
    """Whether there is room for what is known about a document as a whole."""


FORMS: Final[dict[PartFormat, Form]] = {
    "jsonl": Form("jsonl", ".jsonl.gz"),
    "bioc": Form("bioc-xml", ".xml"),
    "bioc-json": Form("bioc-json", ".json"),
    "pubtator": Form("pubtator", ".pubtator", has_meta=False),
    "brat": Form("brat", "", has_meta=False),
    "parquet": Form("parquet", ".parquet"),
    "conll": Form("conll", ".conll", has_meta=False),
    "label-studio": Form("label-studio", ".json"),
}


@dataclass(frozen=True)
class Written:
    """A part on the disk; without a name, if none of its documents could be written."""

    name: str | None
    losses: Counter[str] = field(default_factory=Counter)
    """What the format could not hold, counted by reason."""
    refused: dict[int, str] = field(default_factory=dict)
    """Numbers of the documents that could not be written, and why."""


def write_part(folder: Path, number: int, documents: Sequence[Document], format: PartFormat) -> Written:  # noqa: A002
    """Write a part under its name; may be killed and called again at any point."""
    form = FORMS[format]
    name = f"part-{number:05}{form.ending}"
    hidden = folder / f".{name}"  # with the same ending, by which writers tell compression
    numbered = dict(enumerate(documents))
    refused = {n: _MARK for n, one in numbered.items() if format == "brat" and one.text.startswith("\ufeff")}
    losses = _written(hidden, _without(numbered, refused), form)
    if losses is None:
        refused |= {n: _NO_TEXT for n, one in numbered.items() if _written(hidden, [one], form) is None}
        losses = _written(hidden, _without(numbered, refused), form)
    if losses is None:
        raise RuntimeError(f"documents that can be written one by one cannot be written together as {format}")
    if len(refused) == len(documents):
        _remove(hidden)
        return Written(None, refused=refused)
    _settle(hidden, folder / name)
    return Written(name, losses, refused)


def clear_from(folder: Path, parts: int) -> None:
    """Remove what a killed run left of parts that were not recorded, and see that those before them are there."""
    left = {int(found[1]): path for path in folder.iterdir() if (found := PART.fullmatch(path.name))}
    for number, path in left.items():
        if number >= parts:
            _remove(path)
    if missing := [number for number in range(parts) if number not in left]:
        raise BadFile(
            f"Part {missing[0]} in {folder} was written, and is not there any more. Delete {folder}, and run the command "
            "again."
        )


def _written(target: Path, documents: Sequence[Document], form: Form) -> Counter[str] | None:
    """Write documents anew; None: one of them cannot be written."""
    _remove(target)
    try:
        return write(documents, target, form.writer)
    except (UserError, OSError):
        raise
    except Exception:  # such as text that is no Unicode: which document it is, is found one by one
        return None


def _without(numbered: Mapping[int, Document], refused: Container[int]) -> list[Document]:
    return [document for number, document in numbered.items() if number not in refused]


def _settle(hidden: Path, target: Path) -> None:
    """Bring a file, or all files of a folder, to the disk, and give it its name."""
    for path in iter_visible_files(hidden) if hidden.is_dir() else [hidden]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if hidden.is_dir():
        sync_folder(hidden)
        _remove(target)
    hidden.replace(target)
    sync_folder(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
