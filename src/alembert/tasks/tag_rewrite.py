"""Rewrite examples of the task `tag`: entities stay around their words, which may be replaced like all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from alembert.tasks.rewriting import Edits, Named, Rewriter, rewritings, sentence_records
from alembert.tasks.tag_examples import ANNOTATED, TagExample
from alembert.tasks.tag_words import Span as Labelled
from alembert.text.replacement import EditedText, are_isolated, find_editable_spans
from alembert.text.sentences import Span


class TagRewriter(Rewriter[TagExample]):
    """Keeps the borders of entities and sentences between edits."""

    def stretches(self, example: TagExample) -> list[list[Span]]:
        borders = {place for start, end, _ in _all(example) for place in (start, end)}
        return [find_editable_spans(len(example.text), borders=borders | {*example.sentences})]

    def entities(self, example: TagExample) -> list[list[Named]]:
        spans = [(start, end) for start, end, _ in _all(example)]
        alone = zip(example.entities or (), are_isolated(spans), strict=False)
        crossed = [
            entity
            for entity, is_alone in alone
            if is_alone and not any(entity[0] < at < entity[1] for at in example.sentences)
        ]
        return [crossed]

    def rewritten(self, example: TagExample, edits: Edits, name: str) -> TagExample:
        (made,) = rewritings(example, edits)
        return replace(
            example,
            id=name,
            texts=(made.text,),
            entities=None if example.entities is None else _moved(example.entities, made),
            in_parts=_moved(example.in_parts, made),
            sentences=tuple(map(made.place, example.sentences)),
        )

    def records(self, example: TagExample) -> list[dict[str, Any]]:
        """Write a document; of an entity with a gap it is not known where the gap is, only that there is one."""
        spans = [
            *((label, [[start, end]]) for start, end, label in example.entities or ()),
            *((label, [[start, start + 1], [start + 1, end]]) for start, end, label in example.in_parts),
        ]
        record = {
            "id": example.id,
            "text": example.text,
            "sections": sentence_records(list(pairwise([*example.sentences, len(example.text)]))),
            "entities": [
                {"id": f"T{number}", "label": label, "spans": places}
                for number, (label, places) in enumerate(spans, start=1)
            ],
            "meta": {} if example.types is None else {ANNOTATED: sorted(example.types)},
        }
        return [{key: value for key, value in record.items() if value}]


def _all(example: TagExample) -> list[Labelled]:
    return [*(example.entities or ()), *example.in_parts]


def _moved(entities: Sequence[Labelled], made: EditedText) -> tuple[Labelled, ...]:
    return tuple((*made.span((start, end)), label) for start, end, label in entities)
