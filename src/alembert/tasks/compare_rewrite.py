"""Rewrite examples of the task `compare`: what is said of texts (that they are alike, and how much) stays as it is."""

from __future__ import annotations

from typing import Any, Final

from alembert.tasks.compare_example import CompareExample
from alembert.tasks.compare_settings import Kind
from alembert.tasks.rewriting import Rewriter

_NAMES: Final[dict[Kind, tuple[str, ...]]] = {
    "unsupervised": ("text",),
    "pairs": ("anchor", "positive"),
    "triples": ("anchor", "positive", "negative"),
    "scores": ("sentence1", "sentence2"),
}


class CompareRewriter(Rewriter[CompareExample]):
    """Rewrites texts that are compared."""

    def records(self, example: CompareExample) -> list[dict[str, Any]]:
        names = _NAMES[example.kind or "unsupervised"]
        score = {} if example.score is None else {"score": example.score}
        return [{"id": example.id, **dict(zip(names, example.texts, strict=True)), **score}]
