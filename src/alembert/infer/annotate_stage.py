"""What each step of annotating gives: documents with what was found in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


class Stage(Protocol):
    """A model, or several that run together."""

    def add(self, documents: Sequence[Document]) -> Iterator[Annotated]:
        """Add to each document what is found."""
