"""Files of the task `relate`: labelled sentences with two marked entities, or annotated documents.

Which of both a file is, is detected from its format, and from its records where the format leaves it open (JSON,
Parquet): those with entities are documents. What cannot be used is set aside with file and line; what is unusual is
counted. When examples are rewritten, entities stay where their words are, and marks and stand-ins as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from alembert.corpus import readers
from alembert.corpus.document import Document
from alembert.corpus.examples.labelled import LabelledRow, LabelValue, read_labelled
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadInput
from alembert.tasks.classify.rows import build_labelled_row
from alembert.tasks.example import Edits, EntitySpan, Rewriter, apply_edits, build_sentence_records
from alembert.tasks.relate.data import (
    EntityMention,
    RelateExample,
    UnlinkedRelation,
    example_from_document,
    example_from_marked_text,
    find_marked_pair,
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


def read_file(path: Path, options: ReadOptions) -> Iterator[RelateExample | readers.Item]:
    """Read a file of either kind."""
    try:
        kind = readers.detect_file_format(path)
    except BadFile:
        kind = ""  # what is wrong with it is said when it is read
    if kind in (*_ANNOTATED_FORMATS, *_MAYBE_ANNOTATED_FORMATS):
        items = list(readers.read(path, options))
        documents = [item for item in items if isinstance(item, Document)]
        if kind in _ANNOTATED_FORMATS or any(document.entities or document.relations for document in documents):
            return chain(items, _read_documents(path, documents))
    return _read_rows(path, options)


def _read_rows(path: Path, options: ReadOptions) -> Iterator[RelateExample | readers.Item]:
    file = read_labelled(path, options)
    yield from file.set_aside
    yield from file.remarks
    for row in file.rows:
        try:
            yield _example_from_row(row)
        except BadInput as wrong:
            yield SetAside(row.source, row.position, row.id, str(wrong))


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


def _read_documents(path: Path, documents: Sequence[Document]) -> Iterator[RelateExample | readers.Item]:
    examples = []
    for document in documents:
        example, lost = example_from_document(document, f"{path}, document {document.id}")
        examples.append(example)
        for reason in lost:
            yield SetAside(str(path), f"document {document.id}", document.id, reason, "annotation")
    yield from examples
    counts = {
        DISCONTINUOUS_ENTITIES: sum(len(entity.spans) > 1 for document in documents for entity in document.entities),
        OVERLAPPING_ENTITIES: sum(map(_count_overlapping, examples)),
        UNLINKED_RELATIONS: sum(len(example.unlinked) for example in examples),
    }
    yield from (Remark(str(path), reason, count) for reason, count in counts.items() if count)


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
        borders = {border for mention in example.mentions for border in (mention.start, mention.end)}
        borders |= {border for span in example.given_sentences for border in span}
        fixed = [span for mention in example.mentions for span in _fixed_spans(mention)]
        return [find_editable_spans(len(example.text), borders=borders, fixed=fixed)]

    def entities(self, example: RelateExample) -> list[list[EntitySpan]]:
        """List entities of documents; one that stands for a concept is left, since others may stand for it too."""
        if example.form != "document":
            return [[]]
        alone = are_isolated([mention.whole for mention in example.mentions])
        return [
            [
                (mention.start, mention.end, mention.type)
                for mention, is_alone in zip(example.mentions, alone, strict=True)
                if is_alone and not mention.concepts and not _crosses_sentence(mention, example)
            ]
        ]

    def rewrite(self, example: RelateExample, edits: Edits, name: str) -> RelateExample | None:
        (made,) = apply_edits(example, edits)
        is_document = example.form == "document"
        rewritten = replace(
            example,
            id=name,
            texts=(made.text,),
            mentions=tuple(_move_mention(mention, made) for mention in example.mentions),
            given_sentences=tuple(map(made.map_span, example.given_sentences)),
            group=name if is_document else example.group,
        )
        return rewritten if is_document or _keeps_marks(rewritten) else None

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
            "entities": list(map(_write_entity, example.mentions)),
            "relations": [
                {
                    "id": f"R{number}",
                    "label": link.label,
                    "arguments": [["Arg1", link.head], ["Arg2", link.tail]],
                }
                for number, link in enumerate(links, start=1)
            ],
            "unlinked_relations": [
                {"id": f"U{number}", "label": relation.label, "arguments": _write_arguments(relation)}
                for number, relation in enumerate(example.unlinked, start=1)
            ],
        }
        return [{key: value for key, value in record.items() if value}]


def _fixed_spans(mention: EntityMention) -> list[Span]:
    """List what the reader of the file needs as it is: marks around an entity, or a word such as @GENE$ in its place."""
    start, end = mention.whole
    if mention.outer == (mention.start, mention.end):
        return [mention.outer]
    return [(start, mention.start), (mention.end, end)]


def _crosses_sentence(mention: EntityMention, example: RelateExample) -> bool:
    return any(mention.start < border < mention.end for span in example.given_sentences for border in span)


def _move_mention(mention: EntityMention, made: EditedText) -> EntityMention:
    start, end = made.map_span((mention.start, mention.end))
    outer = None if mention.outer is None else made.map_span(mention.outer)
    return replace(mention, start=start, end=end, outer=outer)


def _keeps_marks(example: RelateExample) -> bool:
    """Whether a reader would find the two entities where they are."""
    try:
        pair = find_marked_pair(example.text)
    except BadInput:
        return False
    marked = [] if pair is None else [(mark.start, mark.end) for mark in (pair.first, pair.second)]
    return marked == [(mention.start, mention.end) for mention in example.mentions]


def _write_arguments(relation: UnlinkedRelation) -> list[list[str]]:
    """Write what an unlinked relation is between, with no name for an end that is not known."""
    return [[f"Arg{number}", end] for number, end in enumerate([*relation.ends, "", ""][:2], start=1)]


def _write_entity(mention: EntityMention) -> dict[str, Any]:
    concepts = {"concepts": list(mention.concepts)} if mention.concepts else {}
    spans = [[mention.start, mention.end]]
    return {"id": mention.id, "label": mention.type, "spans": spans, **concepts}
