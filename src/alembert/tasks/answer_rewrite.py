"""Rewrite examples of the task `answer`: the answers in a passage stay as they are, and are found where they went.

An answer may be known by its text alone, and is then wherever its text stands. If new words made it stand in another
place too, or made its place unclear, the example is not used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from alembert.corpus.examples.questions import GoldAnswer, find_answer_spans
from alembert.tasks.answer_example import AnswerExample
from alembert.tasks.rewriting import Edits, Rewriter, rewritings
from alembert.text.replacement import EditedText, find_editable_spans
from alembert.text.sentences import Span

_NOWHERE: Final = -1
"""An offset that says: the answer is in none of the places where its text stands."""


class AnswerRewriter(Rewriter[AnswerExample]):
    """Rewrites questions, and passages around the answers."""

    def stretches(self, example: AnswerExample) -> list[list[Span]]:
        fixed = [span for answer in example.answers or () for span in _written(answer)]
        return [[(0, len(example.question))], find_editable_spans(len(example.passage), fixed=fixed)]

    def rewritten(self, example: AnswerExample, edits: Edits, name: str) -> AnswerExample | None:
        question, passage = rewritings(example, edits)
        answers = None if example.answers is None else tuple(_moved(each, passage) for each in example.answers)
        for answer in answers or ():
            if find_answer_spans(answer.text, _start(answer), passage.text).spans != answer.spans:
                return None
        return replace(example, id=name, texts=(question.text, passage.text), answers=answers)

    def records(self, example: AnswerExample) -> list[dict[str, Any]]:
        record: dict[str, Any] = {
            "id": example.id,
            "question": example.question,
            "context": example.passage,
        }
        if example.article is not None:
            record["title"] = example.article
        if example.label is not None:
            return [record | {"label": example.label}]
        answers = [{"text": each.text, "answer_start": _start(each)} for each in example.answers or ()]
        return [record | {"answers": answers, "is_impossible": not answers}]


def _written(answer: GoldAnswer) -> list[Span]:
    """Give the places of an answer with the white space that its text has around it."""
    before = len(answer.text) - len(answer.text.lstrip())
    after = len(answer.text) - len(answer.text.rstrip())
    return [(max(0, start - before), end + after) for start, end in answer.spans]


def _start(answer: GoldAnswer) -> int | None:
    """Give the offset to state for an answer: none where it stands in several places."""
    if not answer.spans:
        return _NOWHERE
    return _written(answer)[0][0] if len(answer.spans) == 1 else None


def _moved(answer: GoldAnswer, passage: EditedText) -> GoldAnswer:
    return replace(answer, spans=tuple(map(passage.span, answer.spans)))
