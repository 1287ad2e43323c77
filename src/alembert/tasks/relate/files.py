"""Files of the task `relate`: labelled sentences with two marked entities, or annotated documents.

Which of both a file is, is told from its format, and from its records where the format leaves it open (JSON, Parquet):
those with entities are documents. What cannot be used is set aside with file and line; what is unusual is counted.

Rewrite examples of the task `relate`: entities stay where their words are, and marks and stand-ins as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from alembert.corpus import readers
from alembert.corpus.document import Document
from alembert.corpus.examples.entity_markers import find_marked_pair
from alembert.corpus.examples.labelled import LabelledRow, LabelValue, read_labelled
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadInput
from alembert.tasks.classify.rows import build_labelled_row
from alembert.tasks.example import ReadResult
from alembert.tasks.relate.data import (
    EntityMention,
    RelateExample,
    UnlinkedRelation,
    example_from_document,
    example_from_marked_text,
)
from alembert.tasks.rewriting import (
    Edits,
    EntitySpan,
    Rewriter,
    apply_edits,
    build_sentence_records,
)
from alembert.text.replacement import EditedText, are_isolated, find_editable_spans
from alembert.text.sentences import Span

_ANNOTATED_FORMATS: Final = ("bioc-json", "bioc-xml", "brat", "pubtator")
_MAYBE_ANNOTATED_FORMATS: Final = ("jsonl", "parquet")
DISCONTINUOUS_ENTITIES: Final = "entities have a gap inside; they are marked from their first to their last character"
OVERLAPPING_ENTITIES: Final = "entities overlap another; the marks of such a pair stand inside each other"

UNLINKED_RELATIONS: Final = (
    "relations name an entity that the document does not have; they count as missed, and pairs that may be meant are not "
    "learnt as unrelated"
)


def read_examples(files: Sequence[Path], options: ReadOptions) -> ReadResult[RelateExample]:
    """Read files of either kind."""
    parts = [_read_file(path, options) for path in files]
    return ReadResult(
        tuple(example for part in parts for example in part.examples),
        tuple(aside for part in parts for aside in part.set_aside),
        tuple(remark for part in parts for remark in part.remarks),
    )


def _read_file(path: Path, options: ReadOptions) -> ReadResult[RelateExample]:
    try:
        kind = readers.detect_file_format(path)
    except BadFile:
        kind = ""  # what is wrong with it is said when it is read
    if kind in (*_ANNOTATED_FORMATS, *_MAYBE_ANNOTATED_FORMATS):
        items = list(readers.read(path, options))
        documents = [item for item in items if isinstance(item, Document)]
        if kind in _ANNOTATED_FORMATS or any(each.entities or each.relations for each in documents):
            return _read_documents(path, items, documents)
    return _read_rows(path, options)


def _read_rows(path: Path, options: ReadOptions) -> ReadResult[RelateExample]:
    found = read_labelled(path, options)
    examples: list[RelateExample] = []
    aside = list(found.set_aside)
    for row in found.rows:
        try:
            examples.append(_example_from_row(row))
        except BadInput as wrong:
            aside.append(SetAside(row.source, row.position, row.id, str(wrong)))
    return ReadResult(tuple(examples), tuple(aside), found.remarks)


def _example_from_row(row: LabelledRow) -> RelateExample:
    if len(row.texts) > 1:
        raise BadInput("the row is a pair of texts; expected one text with two marked entities")
    labels = _labels(row.label)
    return example_from_marked_text(row.texts[0], labels, id=row.id, where=row.where, group=row.group)


def _labels(label: LabelValue) -> tuple[str, ...]:
    if isinstance(label, float):
        raise BadInput(f"the label is the number {label:g}; expected the name of a relation")
    labels = (label,) if isinstance(label, str) else label
    if not labels:
        raise BadInput("the row has no label")
    return labels


def _read_documents(
    path: Path, items: Iterable[readers.Item], documents: Sequence[Document]
) -> ReadResult[RelateExample]:
    examples: list[RelateExample] = []
    aside = [item for item in items if isinstance(item, SetAside)]
    for document in documents:
        example, lost = example_from_document(document, f"{path}, document {document.id}")
        examples.append(example)
        aside += [SetAside(str(path), f"document {document.id}", document.id, reason, "annotation") for reason in lost]
    in_parts = sum(len(entity.spans) > 1 for each in documents for entity in each.entities)
    counts = {DISCONTINUOUS_ENTITIES: in_parts, OVERLAPPING_ENTITIES: sum(map(_count_overlapping, examples))}
    counts[UNLINKED_RELATIONS] = sum(len(each.unlinked) for each in examples)
    told = [Remark(str(path), reason, count) for reason, count in counts.items() if count]
    return ReadResult(tuple(examples), tuple(aside), (*(item for item in items if isinstance(item, Remark)), *told))


def _count_overlapping(example: RelateExample) -> int:
    """Count the entities that begin before one of those before them has ended."""
    count = reached = 0
    for mention in example.mentions:
        count += mention.start < reached
        reached = max(reached, mention.end)
    return count


class RelateRewriter(Rewriter[RelateExample]):
    """Rewrites sentences with two marked entities, and documents with any number of them."""

    def editable_spans(self, example: RelateExample) -> list[list[Span]]:
        borders = {place for each in example.mentions for place in (each.start, each.end)}
        borders |= {place for span in example.given_sentences for place in span}
        fixed = [span for each in example.mentions for span in _fixed_spans(each)]
        return [find_editable_spans(len(example.text), borders=borders, fixed=fixed)]

    def entities(self, example: RelateExample) -> list[list[EntitySpan]]:
        """Give entities of documents; one that stands for a concept is left, since others may stand for it too."""
        if example.form != "document":
            return [[]]
        alone = are_isolated([each.whole for each in example.mentions])
        return [
            [
                (each.start, each.end, each.type)
                for each, is_alone in zip(example.mentions, alone, strict=True)
                if is_alone and not each.concepts and not _crosses_sentence(each, example)
            ]
        ]

    def rewrite(self, example: RelateExample, edits: Edits, name: str) -> RelateExample | None:
        (made,) = apply_edits(example, edits)
        is_document = example.form == "document"
        found = replace(
            example,
            id=name,
            texts=(made.text,),
            mentions=tuple(_move_mention(each, made) for each in example.mentions),
            given_sentences=tuple(map(made.map_span, example.given_sentences)),
            group=name if is_document else example.group,
        )
        return found if is_document or _keeps_marks(found) else None

    def records(self, example: RelateExample) -> list[dict[str, Any]]:
        """Write a marked sentence as a row with its labels, a document with its entities and relations."""
        links = example.links or ()
        if example.form != "document":
            labels = [link.label for link in links]
            row = build_labelled_row({"text": example.text}, labels if len(labels) > 1 else labels[0], example.group)
            return [{"id": example.id} | row]
        record = {
            "id": example.id,
            "text": example.text,
            "sections": build_sentence_records(example.given_sentences),
            "entities": [_write_entity(each) for each in example.mentions],
            "relations": [
                {
                    "id": f"R{number}",
                    "label": link.label,
                    "arguments": [["Arg1", link.head], ["Arg2", link.tail]],
                }
                for number, link in enumerate(links, start=1)
            ],
            "unlinked_relations": [
                {"id": f"U{number}", "label": each.label, "arguments": _write_arguments(each)}
                for number, each in enumerate(example.unlinked, start=1)
            ],
        }
        return [{key: value for key, value in record.items() if value}]


def _fixed_spans(mention: EntityMention) -> list[Span]:
    """Give what stands for the reader of the file: marks around an entity, or a word such as @GENE$ in its place."""
    start, end = mention.whole
    if mention.outer == (mention.start, mention.end):
        return [mention.outer]
    return [(start, mention.start), (mention.end, end)]


def _crosses_sentence(mention: EntityMention, example: RelateExample) -> bool:
    places = (place for span in example.given_sentences for place in span)
    return any(mention.start < place < mention.end for place in places)


def _move_mention(mention: EntityMention, made: EditedText) -> EntityMention:
    start, end = made.map_span((mention.start, mention.end))
    outer = None if mention.outer is None else made.map_span(mention.outer)
    return replace(mention, start=start, end=end, outer=outer)


def _keeps_marks(example: RelateExample) -> bool:
    """Tell whether a reader would find the two entities where they are."""
    try:
        pair = find_marked_pair(example.text)
    except BadInput:
        return False
    found = [] if pair is None else [(mark.start, mark.end) for mark in (pair.first, pair.second)]
    return found == [(each.start, each.end) for each in example.mentions]


def _write_arguments(relation: UnlinkedRelation) -> list[list[str]]:
    """Write what an unlinked relation is between, with no name for an end that is not known."""
    return [[f"Arg{number}", end] for number, end in enumerate([*relation.ends, "", ""][:2], start=1)]


def _write_entity(mention: EntityMention) -> dict[str, Any]:
    concepts = {"concepts": list(mention.concepts)} if mention.concepts else {}
    spans = [[mention.start, mention.end]]
    return {"id": mention.id, "label": mention.type, "spans": spans, **concepts}
