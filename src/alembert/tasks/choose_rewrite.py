"""Rewrite examples of the task `choose`: passage and question; the choices are the answers, and stay as they are."""

from __future__ import annotations

from typing import Any

from alembert.tasks.choose_example import ChooseExample
from alembert.tasks.rewriting import Rewriter
from alembert.text.sentences import Span


class ChooseRewriter(Rewriter[ChooseExample]):
    """Rewrites what is asked, not what it is answered with."""

    def stretches(self, example: ChooseExample) -> list[list[Span]]:
        asked = len(example.texts) - len(example.choices)
        return [[(0, len(text))] if number < asked else [] for number, text in enumerate(example.texts)]

    def records(self, example: ChooseExample) -> list[dict[str, Any]]:
        passage = {} if example.passage is None else {"passage": example.passage}
        asked = {"id": example.id, **passage, "question": example.question}
        return [asked | {"choices": list(example.choices), "answer": example.gold}]
