"""What each step of annotating gives: documents with what was found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from alembert.corpus.document import Document
from alembert.tasks.example import Coverage


@dataclass(frozen=True)
class Annotated:
    """A document with what was found in it."""

    document: Document
    coverage: Coverage
    """Tokens and windows of all models together; characters count once."""
    unread: int = 0
    """Pairs of entities that are too far apart for the relation model."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Of every label that classifiers of the document know."""
    value: float | None = None
    """The number that a regression model gives the document."""
    is_pairless: bool = False
    """Whether it has no two entities of types that the relation model relates."""


class Stage(Protocol):
    """A model, or several that run together."""

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        """Add to each document what is found."""
