"""What the answers of tasks are in documents: which field they go into, and how entities with scores are added.

In: a document, and what a task found in it. Out: the document with it; the text stays as it is. Each entity and relation
has how sure the model is as its attribute `score`, and an id that no other annotation of the document has. Labels of a
document have theirs under `label_scores` in its `meta`. A task that classifies the sentences of a document adds an
entity for each: a stretch of the text with a label, which every format can hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from alembert.corpus.document import SCORE_ATTRIBUTE, Document, Entity, StringPairs, generate_unused_ids

AnnotationField = Literal["entities", "relations", "labels"]
LABEL_SCORES_KEY: Final = "label_scores"
VALUE_KEY: Final = "value"


@dataclass(frozen=True, kw_only=True)
class AnnotationSpec:
    """What a task reads of a document, and what it adds to it."""

    writes: AnnotationField | None = None
    """The field that it adds to; none: its answers are no annotations."""
    reads: Literal["text", "entities"] = "text"
    """Whether it needs the text alone, or the entities that the document has by then."""
    entity_types: tuple[str, ...] = ()
    """Types of the entities that it finds."""
    sentence_labels: tuple[str, ...] = ()
    """Labels of the entities that it adds for whole sentences."""
    pair_types: tuple[tuple[str, str], ...] = ()
    """Types of entities that it relates; empty: entities of any types."""
    problem: str = ""
    """Why it cannot annotate documents, to be read after the name of the model."""

    def can_relate(self, types: Iterable[str]) -> bool:
        """Return whether entities of these types have a pair that the task relates."""
        known = {name.casefold() for name in types}
        return not self.pair_types or any({head.casefold(), tail.casefold()} <= known for head, tail in self.pair_types)


def drop_annotations(document: Document, fields: Iterable[AnnotationField]) -> Document:
    """Leave out annotations that the input had; without entities there are no relations between them."""
    left: dict[str, Any] = dict.fromkeys(fields, ())
    if "relations" in left:
        left["unlinked_relations"] = ()
    if "labels" in left:
        left["meta"] = {name: value for name, value in document.meta.items() if name != LABEL_SCORES_KEY}
    return replace(document, **left)


def with_entities(document: Document, found: Iterable[tuple[int, int, str, float | None]]) -> Document:
    """Add entities, each given by start, end, label and score, in the order of the text."""
    names = generate_unused_ids("T", document)
    fresh = [
        Entity(next(names), label, ((start, end),), attributes=score_attributes(score))
        for start, end, label, score in found
    ]
    together = sorted((*document.entities, *fresh), key=lambda entity: entity.start)
    return replace(document, entities=tuple(together))


def score_attributes(score: float | None) -> StringPairs:
    """Return the attributes of an annotation that say how sure the model is."""
    # Four digits: what a model means, and not what the order of its sums left behind.
    return () if score is None else ((SCORE_ATTRIBUTE, f"{score:.4f}"),)
