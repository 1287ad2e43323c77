"""Terms of lexicons as annotations, beside what models find.

In: documents with the entities that they have by then. Out: the same with an entity for each place where a term stands
and no entity does: what a model found, or what was kept of the input, was chosen by its context, and a term was not.
Labelled sentences are no such entities: they cover the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alembert.corpus.document import Document, add_lexicon_terms
from alembert.infer.annotate_stage import Annotated
from alembert.tasks.example import Coverage
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import read_lexicon


@dataclass(frozen=True)
class Matching:
    """Lexicons that are looked up in documents."""

    gazetteer: Gazetteer
    sentence_labels: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What a user should know about the terms."""

    @classmethod
    def of(cls, lexicons: Mapping[str, Path], sentence_labels: frozenset[str] = frozenset()) -> Matching:
        """Read lexicons, which are given by their labels in order of precedence."""
        read = [read_lexicon(path, label) for label, path in lexicons.items()]
        gazetteer = Gazetteer.of(read)
        notes = [note for lexicon in read for note in lexicon.warnings()]
        return cls(gazetteer, sentence_labels, (*notes, *gazetteer.built.warnings()))

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        found = self.gazetteer.find_all([document.text for document in documents])
        for document, matches in zip(documents, found, strict=True):
            taken = self._taken(document)
            free = [match for match in matches if taken.find(1, match.start, match.end) < 0]
            yield Annotated(add_lexicon_terms(document, free), Coverage())

    def _taken(self, document: Document) -> bytearray:
        """Mark the characters of entities."""
        taken = bytearray(len(document.text))
        for entity in document.entities:
            if entity.label not in self.sentence_labels:
                for start, end in entity.spans:
                    taken[start:end] = b"\1" * (end - start)
        return taken
