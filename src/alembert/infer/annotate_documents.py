"""What models say, put into documents: entities, labels and relations beside the text, which stays as it is.

In: a document and the prediction of one model for it. Out: the document with what was found. Each entity and relation
has how sure the model is as its attribute `score`, and an id that no other annotation of the document has. Labels of a
document have theirs under `label_scores` in its `meta`. A model that classifies the sentences of a document gives an
entity for each: a stretch of the text with a label, which every format can hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from alembert.corpus.document import (
    SCORE_ATTRIBUTE,
    Document,
    Entity,
    Relation,
    Span,
    StringPairs,
    generate_unused_ids,
)
from alembert.tasks.classify.decode import ClassifyAnswer
from alembert.tasks.relate.data import RelateExample
from alembert.tasks.relate.scores import RelatePrediction, find_related_pairs
from alembert.tasks.tag.data import PredictedEntity

Field = Literal["entities", "relations", "labels"]
LABEL_SCORES: Final = "label_scores"
VALUE: Final = "value"
SOURCE_FILE: Final = "source_file"
SOURCE_ITEM: Final = "source_item"


def without(document: Document, fields: Iterable[Field]) -> Document:
    """Leave out annotations that the input had; without entities there are no relations between them."""
    left: dict[str, Any] = dict.fromkeys(fields, ())
    if "relations" in left:
        left["unlinked_relations"] = ()
    if "labels" in left:
        left["meta"] = {name: value for name, value in document.meta.items() if name != LABEL_SCORES}
    return replace(document, **left)


def with_source(document: Document, file: str, item: int | None) -> Document:
    """Write into `meta` which item of which file a document was; one that has been annotated before keeps its source."""
    if SOURCE_FILE in document.meta:
        return document
    source = {SOURCE_FILE: file} | ({} if item is None else {SOURCE_ITEM: str(item)})
    return replace(document, meta={**document.meta, **source})


def with_entities(document: Document, found: Iterable[PredictedEntity]) -> Document:
    """Add the entities that a tagger found, in the order of the text."""
    names = generate_unused_ids("T", document)
    fresh = [
        Entity(next(names), each.label, ((each.start, each.end),), attributes=_score(each.score)) for each in found
    ]
    together = sorted((*document.entities, *fresh), key=lambda entity: entity.start)
    return replace(document, entities=tuple(together))


def with_labels(document: Document, answer: ClassifyAnswer) -> Document:
    """Add the label or labels that a classifier gave the document; a number goes into `meta`."""
    if answer.value is not None:
        return replace(document, meta={**document.meta, VALUE: round(answer.value, 6)})
    scores = {label: round(answer.probabilities[label], 4) for label in _labels(answer)}
    known = document.meta.get(LABEL_SCORES)
    merged = {**known, **scores} if isinstance(known, dict) else scores
    labels = tuple(dict.fromkeys((*document.labels, *scores)))
    return replace(document, labels=labels, meta={**document.meta, LABEL_SCORES: merged})


def with_labelled_sentences(document: Document, spans: Iterable[Span], answers: Iterable[ClassifyAnswer]) -> Document:
    """Add an entity for each label of each sentence."""
    found = [
        PredictedEntity(start, end, label, answer.probabilities[label])
        for (start, end), answer in zip(spans, answers, strict=True)
        for label in _labels(answer)
    ]
    return with_entities(document, found)


def with_relations(
    document: Document, example: RelateExample, prediction: RelatePrediction, negative: str | None
) -> Document:
    """Add the relations that were found between entities of the document."""
    names = generate_unused_ids("R", document)
    fresh = [
        Relation(
            next(names),
            str(answer.label),
            (("Arg1", example.mentions[pair.head].id), ("Arg2", example.mentions[pair.tail].id)),
            _score(answer.score),
        )
        for pair, answer in find_related_pairs(prediction, negative)
    ]
    return replace(document, relations=(*document.relations, *fresh))


def _labels(answer: ClassifyAnswer) -> tuple[str, ...]:
    if answer.labels is not None:
        return answer.labels
    return () if answer.label is None else (answer.label,)


def _score(score: float | None) -> StringPairs:
    # Four digits: what a model means, and not what the order of its sums left behind.
    return () if score is None else ((SCORE_ATTRIBUTE, f"{score:.4f}"),)
