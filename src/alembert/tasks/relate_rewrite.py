"""Rewrite examples of the task `relate`: entities stay where their words are, and marks and stand-ins as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alembert.corpus.examples.entity_markers import find_marked_pair
from alembert.errors import BadInput
from alembert.tasks.classify_rewrite import labelled_row
from alembert.tasks.relate_example import Mention, RelateExample, UnlinkedRelation
from alembert.tasks.rewriting import Edits, Named, Rewriter, rewritings, sentence_records
from alembert.text.replacement import EditedText, are_isolated, find_editable_spans
from alembert.text.sentences import Span


class RelateRewriter(Rewriter[RelateExample]):
    """Rewrites sentences with two marked entities, and documents with any number of them."""

    def stretches(self, example: RelateExample) -> list[list[Span]]:
        borders = {place for each in example.mentions for place in (each.start, each.end)}
        borders |= {place for span in example.given_sentences for place in span}
        fixed = [span for each in example.mentions for span in _fixed(each)]
        return [find_editable_spans(len(example.text), borders=borders, fixed=fixed)]

    def entities(self, example: RelateExample) -> list[list[Named]]:
        """Give entities of documents; one that stands for a concept is left, since others may stand for it too."""
        if example.form != "document":
            return [[]]
        alone = are_isolated([each.whole for each in example.mentions])
        return [
            [
                (each.start, each.end, each.type)
                for each, is_alone in zip(example.mentions, alone, strict=True)
                if is_alone and not each.concepts and not _holds_border(each, example)
            ]
        ]

    def rewritten(self, example: RelateExample, edits: Edits, name: str) -> RelateExample | None:
        (made,) = rewritings(example, edits)
        is_document = example.form == "document"
        found = replace(
            example,
            id=name,
            texts=(made.text,),
            mentions=tuple(_moved(each, made) for each in example.mentions),
            given_sentences=tuple(map(made.span, example.given_sentences)),
            group=name if is_document else example.group,
        )
        return found if is_document or _is_marked_alike(found) else None

    def records(self, example: RelateExample) -> list[dict[str, Any]]:
        """Write a marked sentence as a row with its labels, a document with its entities and relations."""
        links = example.links or ()
        if example.form != "document":
            labels = [link.label for link in links]
            row = labelled_row({"text": example.text}, labels if len(labels) > 1 else labels[0], example.group)
            return [{"id": example.id} | row]
        record = {
            "id": example.id,
            "text": example.text,
            "sections": sentence_records(example.given_sentences),
            "entities": [_entity(each) for each in example.mentions],
            "relations": [
                {
                    "id": f"R{number}",
                    "label": link.label,
                    "arguments": [["Arg1", link.head], ["Arg2", link.tail]],
                }
                for number, link in enumerate(links, start=1)
            ],
            "unlinked_relations": [
                {"id": f"U{number}", "label": each.label, "arguments": _ends(each)}
                for number, each in enumerate(example.unlinked, start=1)
            ],
        }
        return [{key: value for key, value in record.items() if value}]


def _fixed(mention: Mention) -> list[Span]:
    """Give what stands for the reader of the file: marks around an entity, or a word such as @GENE$ in its place."""
    start, end = mention.whole
    if mention.outer == (mention.start, mention.end):
        return [mention.outer]
    return [(start, mention.start), (mention.end, end)]


def _holds_border(mention: Mention, example: RelateExample) -> bool:
    places = (place for span in example.given_sentences for place in span)
    return any(mention.start < place < mention.end for place in places)


def _moved(mention: Mention, made: EditedText) -> Mention:
    start, end = made.span((mention.start, mention.end))
    outer = None if mention.outer is None else made.span(mention.outer)
    return replace(mention, start=start, end=end, outer=outer)


def _is_marked_alike(example: RelateExample) -> bool:
    """Tell whether a reader would find the two entities where they are."""
    try:
        pair = find_marked_pair(example.text)
    except BadInput:
        return False
    found = [] if pair is None else [(mark.start, mark.end) for mark in (pair.first, pair.second)]
    return found == [(each.start, each.end) for each in example.mentions]


def _ends(relation: UnlinkedRelation) -> list[list[str]]:
    """Write what an unlinked relation is between, with no name for an end that is not known."""
    return [[f"Arg{number}", end] for number, end in enumerate([*relation.ends, "", ""][:2], start=1)]


def _entity(mention: Mention) -> dict[str, Any]:
    concepts = {"concepts": list(mention.concepts)} if mention.concepts else {}
    spans = [[mention.start, mention.end]]
    return {"id": mention.id, "label": mention.type, "spans": spans, **concepts}
