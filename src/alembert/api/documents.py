"""`alembert.read` and `alembert.write`: streams of documents in every supported format."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.api.arguments import Paths, StrPath, check_arguments, to_local_files, to_path
from alembert.corpus.document import Document
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.infer.predictions import AnnotatedDocument

if TYPE_CHECKING:
    from alembert.infer.stream import InputStream

_FORMAT_BY_SUFFIX: Final = {
    ".jsonl": "jsonl",
    ".json": "bioc-json",
    ".xml": "bioc-xml",
    ".pubtator": "pubtator",
    ".parquet": "parquet",
    ".conll": "conll",
    "": "brat",
}
"""What a file is written as if no format is named; a path without an ending is a folder, as brat has it."""


_FORMAT_ALIASES: Final = {"bioc": "bioc-xml"}
"""What `annotate` calls a format -> what the writers call it."""


@check_arguments
def read(inputs: Paths, *, format: str | None = None, **options: Any) -> Iterator[Document]:  # noqa: A002
    """Read documents from files, folders or patterns (`notes/*.jsonl`) of any known format, as a stream.

    An input may lie in an object store (`s3://`, `gs://`), and `-` is standard input; both are copied here first. The format
    of each file is recognised unless it is named. `options` say how files are read: `text`, `id`, `title` and `label` name
    columns or fields; `encoding`, `delimiter` and `header` are for tables (docs/formats.md lists all options). Items that could
    not be read, and guesses such as an encoding, are counted in a warning at the end.
    """
    from alembert.corpus.inputs import list_input_files
    from alembert.corpus.readers import FORMATS, ReadOptions
    from alembert.infer.stream import open_input_stream
    from alembert.settings import apply_changes

    if format is not None and format not in FORMATS:
        raise BadSetting(f"`format` is {format!r}, which no reader has. Use one of {', '.join(FORMATS)}.")
    files = list_input_files(to_local_files(inputs, "inputs"), format=format)
    for sentence in files.notes():
        warnings.warn(sentence, stacklevel=3)
    return _documents(open_input_stream(files, apply_changes(ReadOptions(), options, "`read`"), format))


def _documents(supply: InputStream) -> Iterator[Document]:
    from alembert.corpus.readers import Remark, SetAside
    from alembert.infer.stream import StreamPosition

    aside: list[SetAside] = []
    remarks: Counter[str] = Counter()
    for entry in supply.read_from(StreamPosition()):
        if isinstance(entry.item, Document):
            yield entry.item
        elif isinstance(entry.item, SetAside):
            aside.append(entry.item)
        elif isinstance(entry.item, Remark):
            remarks[entry.item.reason] += entry.item.count
        else:
            remarks["records that their file takes back, and that a stream cannot"] += 1
    if aside:
        first = aside[0]
        warnings.warn(
            f"{len(aside):,} items could not be read; the first: {first.source}, {first.position}: {first.reason}",
            stacklevel=2,
        )
    for reason, count in remarks.items():
        warnings.warn(f"{reason} ({count:,})", stacklevel=2)


@check_arguments
def write(documents: Iterable[Document], path: StrPath, *, format: str | None = None) -> Path:  # noqa: A002
    """Write documents, with what models found in them, to a file or folder.

    The format follows from the ending (.jsonl, .jsonl.gz, .json for BioC, .xml for BioC, .pubtator, .parquet, .conll; none
    for a brat folder), or is one of jsonl, bioc-json, bioc-xml, pubtator, parquet, conll, brat and label-studio. The file
    appears when it is complete. What a format cannot hold is counted in a warning.
    """
    from alembert.corpus.writers import write as write_format

    target = to_path(path, "path")
    chosen = _guess_format(target) if format is None else _FORMAT_ALIASES.get(format, format)
    if isinstance(documents, str | bytes | Mapping | Document) or not isinstance(documents, Iterable):
        raise BadInput(f"`documents` is a {type(documents).__name__}; expected an iterable of Documents.")
    if chosen == "brat" and target.exists():
        raise BadFile(f"{target} is there already, and brat has a folder of files. Name a new folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}")  # with the same ending, by which writers tell compression
    failed: list[str] = []
    try:
        losses = Counter(write_format(_check_documents(documents, failed), hidden, chosen))
    except BaseException:
        _remove(hidden)
        raise
    hidden.replace(target)
    if failed:
        losses["documents that could not be annotated"] = len(failed)
    if losses:
        warnings.warn(
            f"{target}: {'; '.join(f'{reason}: {count:,}' for reason, count in losses.items())}", stacklevel=3
        )
    return target


def _guess_format(path: Path) -> str:
    ending = path.with_suffix("").suffix if path.suffix in (".gz", ".zst") else path.suffix
    if ending not in _FORMAT_BY_SUFFIX:
        endings = ", ".join(suffix for suffix in _FORMAT_BY_SUFFIX if suffix)
        raise BadSetting(f"The format of {path} cannot be told from {ending!r}; expected {endings}, or `format=`.")
    return _FORMAT_BY_SUFFIX[ending]


def _check_documents(documents: Iterable[Any], failed: list[str]) -> Iterator[Document]:
    """Pass documents on; `failed` gets the ids of those that a stream could not annotate."""
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, Document):
            raise BadInput(f"Item {number} is a {type(document).__name__}; expected a Document.")
        if isinstance(document, AnnotatedDocument) and document.problem:
            failed.append(document.id)
        yield document


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
