"""Files of the task `relate`: labelled sentences with two marked entities, or annotated documents.

Which of both a file is, is told from its format, and from its records where the format leaves it open (JSON, Parquet):
those with entities are documents. What cannot be used is set aside with file and line; what is unusual is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from alembert.corpus import readers
from alembert.corpus.document import Document
from alembert.corpus.examples.labelled import LabelledRow, LabelValue, read_labelled
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadInput
from alembert.tasks.example import Reading
from alembert.tasks.relate_example import RelateExample, of_document, of_marked

_ANNOTATED: Final = ("bioc-json", "bioc-xml", "brat", "pubtator")
_PERHAPS: Final = ("jsonl", "parquet")
IN_PARTS: Final = "entities have a gap inside; they are marked from their first to their last character"
OVERLAPPING: Final = "entities overlap another; the marks of such a pair stand inside each other"

UNLINKED: Final = (
    "relations name an entity that the document does not have; they count as missed, and pairs that may be meant are not "
    "learnt as unrelated"
)


def read_examples(files: Sequence[Path], options: ReadOptions) -> Reading[RelateExample]:
    """Read files of either kind."""
    parts = [_read(path, options) for path in files]
    return Reading(
        tuple(example for part in parts for example in part.examples),
        tuple(aside for part in parts for aside in part.set_aside),
        tuple(remark for part in parts for remark in part.remarks),
    )


def _read(path: Path, options: ReadOptions) -> Reading[RelateExample]:
    try:
        kind = readers.detect_file_format(path)
    except BadFile:
        kind = ""  # what is wrong with it is said when it is read
    if kind in (*_ANNOTATED, *_PERHAPS):
        items = list(readers.read(path, options))
        documents = [item for item in items if isinstance(item, Document)]
        if kind in _ANNOTATED or any(each.entities or each.relations for each in documents):
            return _of_documents(path, items, documents)
    return _of_rows(path, options)


def _of_rows(path: Path, options: ReadOptions) -> Reading[RelateExample]:
    found = read_labelled(path, options)
    examples: list[RelateExample] = []
    aside = list(found.set_aside)
    for row in found.rows:
        try:
            examples.append(_of_row(row))
        except BadInput as wrong:
            aside.append(SetAside(row.source, row.position, row.id, str(wrong)))
    return Reading(tuple(examples), tuple(aside), found.remarks)


def _of_row(row: LabelledRow) -> RelateExample:
    if len(row.texts) > 1:
        raise BadInput("the row is a pair of texts; expected one text with two marked entities")
    labels = _labels(row.label)
    return of_marked(row.texts[0], labels, id=row.id, where=row.where, group=row.group)


def _labels(label: LabelValue) -> tuple[str, ...]:
    if isinstance(label, float):
        raise BadInput(f"the label is the number {label:g}; expected the name of a relation")
    labels = (label,) if isinstance(label, str) else label
    if not labels:
        raise BadInput("the row has no label")
    return labels


def _of_documents(path: Path, items: Iterable[readers.Item], documents: Sequence[Document]) -> Reading[RelateExample]:
    examples: list[RelateExample] = []
    aside = [item for item in items if isinstance(item, SetAside)]
    for document in documents:
        example, lost = of_document(document, f"{path}, document {document.id}")
        examples.append(example)
        aside += [SetAside(str(path), f"document {document.id}", document.id, reason, "annotation") for reason in lost]
    in_parts = sum(len(entity.spans) > 1 for each in documents for entity in each.entities)
    counts = {IN_PARTS: in_parts, OVERLAPPING: sum(map(_overlapping, examples))}
    counts[UNLINKED] = sum(len(each.unlinked) for each in examples)
    told = [Remark(str(path), reason, count) for reason, count in counts.items() if count]
    return Reading(tuple(examples), tuple(aside), (*(item for item in items if isinstance(item, Remark)), *told))


def _overlapping(example: RelateExample) -> int:
    """Count the entities that begin before one of those before them has ended."""
    count = reached = 0
    for mention in example.mentions:
        count += mention.start < reached
        reached = max(reached, mention.end)
    return count
