"""Rewrite examples of the task `classify`: labels and numbers are about whole texts, and stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from alembert.corpus.examples.labelled import LabelValue
from alembert.tasks.classify_example import ClassifyExample
from alembert.tasks.rewriting import Edits, Rewriter

GROUP: Final = "document_id"
"""Column of the document that a row is a part of."""


class ClassifyRewriter(Rewriter[ClassifyExample]):
    """Rewrites texts, pairs and sentences of documents."""

    def rewritten(self, example: ClassifyExample, edits: Edits, name: str) -> ClassifyExample | None:
        made = super().rewritten(example, edits, name)
        # The rows of a document are put together by its name.
        return replace(made, group=name) if made is not None and example.is_document else made

    def records(self, example: ClassifyExample) -> list[dict[str, Any]]:
        """Write a row, or one for each sentence of a document."""
        if example.is_document:
            return [_row((text,), gold, example.group) for text, gold in zip(example.texts, example.golds, strict=True)]
        return [{"id": example.id} | _row(example.texts, example.golds[0], example.group)]


def _row(texts: tuple[str, ...], gold: LabelValue, group: str | None) -> dict[str, Any]:
    names = ("text",) if len(texts) == 1 else ("sentence1", "sentence2")
    label = list(gold) if isinstance(gold, tuple) else gold
    return labelled_row(dict(zip(names, texts, strict=True)), label, group)


def labelled_row(texts: dict[str, str], label: Any, group: str | None) -> dict[str, Any]:
    """Put a row of labelled data together; a document is named where the row is a part of one."""
    return {**texts, "label": label} | ({} if group is None else {GROUP: group})
