"""What models say, put into documents: entities, labels and relations beside the text, which stays as it is.

In: a document and the prediction of one model for it. Out: the document with what was found. Each entity and relation
has how sure the model is as its attribute `score`, and an id that no other annotation of the document has. Labels of a
document have theirs under `label_scores` in its `meta`. A model that classifies the sentences of a document gives an
entity for each: a stretch of the text with a label, which every format can hold.

What each step of annotating gives: documents with what was found in them.

Terms of lexicons as annotations, beside what models find.

In: documents with the entities that they have by then. Out: the same with an entity for each place where a term stands
and no entity does: what a model found, or what was kept of the input, was chosen by its context, and a term was not.
Labelled sentences are no such entities: they cover the whole text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from alembert.corpus.document import (
    SCORE_ATTRIBUTE,
    Document,
    Entity,
    Relation,
    Span,
    StringPairs,
    add_lexicon_terms,
    generate_unused_ids,
)
from alembert.tasks.classify.decode import ClassifyAnswer
from alembert.tasks.example import Coverage
from alembert.tasks.relate.data import RelateExample
from alembert.tasks.relate.scores import RelatePrediction, find_related_pairs
from alembert.tasks.tag.data import PredictedEntity
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import read_lexicon

AnnotationField = Literal["entities", "relations", "labels"]
LABEL_SCORES_KEY: Final = "label_scores"
VALUE_KEY: Final = "value"
SOURCE_FILE_KEY: Final = "source_file"
SOURCE_ITEM_KEY: Final = "source_item"


def drop_annotations(document: Document, fields: Iterable[AnnotationField]) -> Document:
    """Leave out annotations that the input had; without entities there are no relations between them."""
    left: dict[str, Any] = dict.fromkeys(fields, ())
    if "relations" in left:
        left["unlinked_relations"] = ()
    if "labels" in left:
        left["meta"] = {name: value for name, value in document.meta.items() if name != LABEL_SCORES_KEY}
    return replace(document, **left)


def with_source(document: Document, file: str, item: int | None) -> Document:
    """Write into `meta` which item of which file a document was; one that has been annotated before keeps its source."""
    if SOURCE_FILE_KEY in document.meta:
        return document
    source = {SOURCE_FILE_KEY: file} | ({} if item is None else {SOURCE_ITEM_KEY: str(item)})
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
        return replace(document, meta={**document.meta, VALUE_KEY: round(answer.value, 6)})
    scores = {label: round(answer.probabilities[label], 4) for label in _labels(answer)}
    known = document.meta.get(LABEL_SCORES_KEY)
    merged = {**known, **scores} if isinstance(known, dict) else scores
    labels = tuple(dict.fromkeys((*document.labels, *scores)))
    return replace(document, labels=labels, meta={**document.meta, LABEL_SCORES_KEY: merged})


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


@dataclass(frozen=True)
class PipelineOutput:
    """A document with what was found in it."""

    document: Document
    coverage: Coverage
    """Tokens and windows of all models together; characters count once."""
    unread_pairs: int = 0
    """Pairs of entities that are too far apart for the relation model."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of every label that classifiers of the document know."""
    value: float | None = None
    """The number that a regression model gives the document."""
    has_no_pairs: bool = False
    """Whether it has no two entities of types that the relation model relates."""


class PipelineStage(Protocol):
    """A model, or several that run together."""

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        """Add to each document what is found."""


@dataclass(frozen=True)
class LexiconMatcher:
    """Lexicons that are looked up in documents."""

    gazetteer: Gazetteer
    sentence_labels: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What a user should know about the terms."""

    @classmethod
    def from_lexicons(
        cls, lexicons: Mapping[str, Path], sentence_labels: frozenset[str] = frozenset()
    ) -> LexiconMatcher:
        """Read lexicons by label, in order of precedence."""
        read = [read_lexicon(path, label) for label, path in lexicons.items()]
        gazetteer = Gazetteer.from_lexicons(read)
        notes = [note for lexicon in read for note in lexicon.warnings()]
        return cls(gazetteer, sentence_labels, (*notes, *gazetteer.counts.warnings()))

    def annotate(self, documents: Sequence[Document]) -> Iterator[PipelineOutput]:
        matches_by_document = self.gazetteer.find_all([document.text for document in documents])
        for document, matches in zip(documents, matches_by_document, strict=True):
            covered = self._mark_entities(document)
            free = [match for match in matches if covered.find(1, match.start, match.end) < 0]
            yield PipelineOutput(add_lexicon_terms(document, free), Coverage())

    def _mark_entities(self, document: Document) -> bytearray:
        """Return a byte for each character: 1 where an entity is."""
        covered = bytearray(len(document.text))
        for entity in document.entities:
            if entity.label not in self.sentence_labels:
                for start, end in entity.spans:
                    covered[start:end] = b"\1" * (end - start)
        return covered
