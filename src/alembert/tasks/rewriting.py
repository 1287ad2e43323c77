"""How examples of a task are rewritten: words of their texts replaced, their right answers carried along exactly.

A `Rewriter` is what a task adds to augmentation, which itself knows no labels: which stretches of the texts may be
rewritten, what becomes of the answers, and how an example is written as JSON lines that the task reads again. Most tasks
differ in little: what is here suits examples whose answers are about whole texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic

from alembert.tasks.example import E
from alembert.text.replacement import EditedText, TextEdit
from alembert.text.sentences import Span

Edits = Sequence[Sequence[TextEdit]]
"""For each text of an example, what is replaced in it."""
EntitySpan = tuple[int, int, str]
"""Start, end and type of an entity."""


class Rewriter(ABC, Generic[E]):
    """Rewrites examples of one task."""

    def editable_spans(self, example: E) -> list[list[Span]]:
        """List for each text the stretches that may be rewritten; no edit may reach across the end of one."""
        return [[(0, len(text))] for text in example.texts]

    def entities(self, example: E) -> list[list[EntitySpan]]:
        """List for each text the entities that may be replaced as a whole: those that share no character with others."""
        return [[] for _ in example.texts]

    def rewrite(self, example: E, edits: Edits, name: str) -> E | None:
        """Return the example with new texts, called `name`, its answers where their words are; none: it cannot be."""
        return replace(example, id=name, texts=tuple(edited.text for edited in apply_edits(example, edits)))

    @abstractmethod
    def records(self, example: E) -> list[dict[str, Any]]:
        """Write an example with its right answers as JSON objects, one a line, of which `read` makes the same example."""


def apply_edits(example: E, edits: Edits) -> list[EditedText]:
    """Edit each text of an example, and keep track of places in it."""
    return [EditedText(text, own) for text, own in zip(example.texts, edits, strict=True)]


def build_sentence_records(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Write sentences as the annotation format has them."""
    return [{"start": start, "end": end, "kind": "sentence"} for start, end in spans]
