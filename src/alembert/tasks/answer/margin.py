"""Margins of answers to questions: the answer that is given against the runner-up, which may be no answer at all.

Questions that are answered with a label have the margins of the pairs that are classified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from alembert.errors import BadInput
from alembert.tasks.answer.data import AnswerExample
from alembert.tasks.answer.rows import AnswerLayout
from alembert.tasks.answer.scores import find_candidates
from alembert.tasks.example import EncodedExample
from alembert.tasks.margin import Margin, MarginQuestion, TaskMargins, quote, without_changes
from alembert.tasks.runtime import Outputs
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.tasks.answer.task import AnswerTask, LabelAnswerTask

_Cell = tuple[int, int, int]
"""Row, place and column of an output."""


@dataclass(frozen=True, eq=False)
class AnswerMargins(TaskMargins[AnswerExample]):
    """Margins of stretches of a passage; an answer is its first and last token, none stands for no answer."""

    task: AnswerTask

    def questions(
        self,
        example: AnswerExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        if label is not None:
            raise BadInput("Answers of this model are words of the passage and have no label. Leave the label out.")
        prediction = self.task.decode(encoded, outputs)
        answer = prediction.answer
        if span is None and answer is None:
            return [MarginQuestion("why the passage has no answer", "", score=prediction.score)]
        chosen = span or (answer.start, answer.end)  # type: ignore[union-attr]
        tokens = encoded.layout.passage.find_tokens(chosen)
        if tokens is None:
            raise BadInput(
                f"The span {chosen[0]}:{chosen[1]} has no word of the passage. Give the characters of an answer."
            )
        is_given = answer is not None and chosen == (answer.start, answer.end)
        verb = "is the answer" if is_given else "is not the answer"
        score = answer.score if is_given and answer is not None else None
        return [MarginQuestion(f"why {quote(example.passage, chosen)} {verb}", "", tokens, chosen, score, is_given)]

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        given, best, no_answer = question.answer, *self._rivals(encoded.layout, outputs, question.answer)
        options = [option for option in (best, no_answer) if option is not None]
        chosen = no_answer if given is None else self._score(encoded.layout, outputs, given)
        rivals = [option for option in options if option is not no_answer or given is not None]
        assert chosen is not None
        rival = max(rivals, key=lambda scored: scored[0], default=(0.0, []))
        gradient = without_changes(outputs)
        for sign, cells in ((1, chosen[1]), (-1, rival[1])):
            for row, place, column in cells:
                gradient[row][place, column] += sign
        return Margin(chosen[0] - rival[0], tuple(gradient))

    def _score(
        self, layout: AnswerLayout, outputs: Sequence[Outputs], tokens: tuple[int, int]
    ) -> tuple[float, list[_Cell]]:
        """Return the score of an answer, and the outputs that it is the sum of."""
        first, last = tokens
        for row, window in enumerate(layout.windows):
            if window.own_start <= first < window.own_end and last < window.end:
                cells = [(row, first - window.start + 1, 0), (row, last - window.start + 1, 1)]
                return sum(float(outputs[row][place, column]) for row, place, column in cells), cells
        raise BadInput("The span goes over the end of the window in which the model reads it. Give a shorter one.")

    def _rivals(
        self, layout: AnswerLayout, outputs: Sequence[Outputs], given: tuple[int, int] | None
    ) -> tuple[tuple[float, list[_Cell]] | None, tuple[float, list[_Cell]] | None]:
        """Return the best answer with other words than the given one, and no answer if there may be none."""
        passage, best = layout.passage, None
        text = None if given is None else passage.text_of(*given)
        for window, part in zip(layout.windows, outputs, strict=True):
            for first, last, score in zip(*find_candidates(window, part, passage, self.task.settings), strict=True):
                if (best is None or score > best[0]) and passage.text_of(first, last) != text:
                    best = float(score), (int(first), int(last))
        nulls = [float(part[0].sum()) for part in outputs]
        row = nulls.index(min(nulls))
        no_answer = (nulls[row] - self.task.threshold, [(row, 0, 0), (row, 0, 1)])
        rival = None if best is None else self._score(layout, outputs, best[1])
        return rival, no_answer if self.task.has_none or given is None else None


@dataclass(frozen=True, eq=False)
class LabelAnswerMargins(TaskMargins[AnswerExample]):
    """Margins of labels that answer questions: those of the pairs that are classified."""

    task: LabelAnswerTask

    def questions(
        self,
        example: AnswerExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        (pair,) = self.task.to_inner([example])
        return self.task.inner.margins().questions(pair, encoded, outputs, span, label)

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        return self.task.inner.margins().margin(encoded, outputs, question)
