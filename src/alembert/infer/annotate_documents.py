"""Stages of a pipeline over documents: what each returns, and lexicons, whose terms are found beside what models find.

Lexicons take documents with the entities that they have by then, and add an entity for each place where a term stands and
no entity does: what a model found, or what was kept of the input, was chosen by its context, and a term was not. Labelled
sentences are no such entities: they cover the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from alembert.corpus.document import (
    Document,
    add_lexicon_terms,
)
from alembert.tasks.example import Coverage
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import read_lexicon

SOURCE_FILE_KEY: Final = "source_file"
SOURCE_ITEM_KEY: Final = "source_item"


def with_source(document: Document, file: str, item: int | None) -> Document:
    """Write into `meta` which item of which file a document was; one that has been annotated before keeps its source."""
    if SOURCE_FILE_KEY in document.meta:
        return document
    source = {SOURCE_FILE_KEY: file} | ({} if item is None else {SOURCE_ITEM_KEY: str(item)})
    return replace(document, meta={**document.meta, **source})


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
