"""Margins of relations: the relation of a pair of entities against the next best, which may be none."""

# R rows, C labels
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alembert.errors import BadInput
from alembert.tasks.classify.scores import ClassifyAnswer
from alembert.tasks.example import EncodedExample
from alembert.tasks.margin import (
    Margin,
    MarginQuestion,
    ReadPiece,
    TaskMargins,
    TextPlace,
    compare_class,
    find_class,
    piece_place,
    quote,
    without_changes,
)
from alembert.tasks.relate.data import EntityMention, RelateExample
from alembert.tasks.relate.pairs import CandidatePair
from alembert.tasks.relate.rows import draft_row
from alembert.tasks.runtime import Outputs
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.tasks.relate.task import RelateTask


@dataclass(frozen=True, eq=False)
class RelateMargins(TaskMargins[RelateExample]):
    """Margins of relations; an answer is the number of the pair's row."""

    task: RelateTask

    def questions(
        self,
        example: RelateExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        find_class(label, self.task.classes)
        prediction = self.task.decode(encoded, outputs)
        read = [
            (pair, answer)
            for pair, answer, is_read in zip(prediction.pairs, prediction.answers, encoded.layout.is_read, strict=True)
            if is_read
        ]
        asked = [
            self._question(example, pair, row, answer, label)
            for row, (pair, answer) in enumerate(read)
            if span is None or span in [(each.start, each.end) for each in _ends(example, pair)]
        ]
        if not asked:
            where = "" if span is None else f" with an entity at {span[0]}:{span[1]}"
            raise BadInput(f"The model reads no pair of entities{where} in the text, so there is none to explain.")
        return sorted(asked, key=self._rank)

    def _rank(self, question: MarginQuestion) -> tuple[bool, bool, float]:
        """Sort relations before none, what is answered before what is not, and what is least certain first."""
        return question.label == self.task.rules.negative, not question.is_given, question.score or 0

    def _question(
        self, example: RelateExample, pair: CandidatePair, row: int, answer: ClassifyAnswer, label: str | None
    ) -> MarginQuestion:
        head, tail = (quote(example.text, (each.start, each.end)) for each in _ends(example, pair))
        name = label or str(answer.label)
        is_given = name == answer.label
        sentence = f"why {head} and {tail} {'are' if is_given else 'are not'} related as {name}"
        return MarginQuestion(sentence, name, row, score=answer.score if is_given else None, is_given=is_given)

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        row, chosen = question.answer, self.task.classes.index(question.label)
        logits_C = self.task.compute_logits([outputs[row]])[0]
        value, gradient_C = compare_class(logits_C, chosen)
        gradient = without_changes(outputs)
        if self.task.reads_markers:
            gradient[row][0, : len(gradient_C)] = gradient[row][1, len(gradient_C) :] = gradient_C
        else:
            gradient[row][0] = gradient_C
        return Margin(value, tuple(gradient))

    def locate(
        self, example: RelateExample, encoded: EncodedExample, row: int, pieces: Sequence[ReadPiece | None]
    ) -> list[TextPlace | None]:
        pair = encoded.layout.pairs[int(np.flatnonzero(encoded.layout.is_read)[row])]
        draft = draft_row(example, pair, self.task.stand_ins)
        assert draft is not None
        # The first token is [CLS]; each special one after it stands between two stretches of the text.
        stretch_T = np.cumsum([piece is None for piece in pieces]) - 1
        return [
            None if piece is None else piece_place(piece, 0, draft.starts[stretch])
            for piece, stretch in zip(pieces, stretch_T.tolist(), strict=True)
        ]


def _ends(example: RelateExample, pair: CandidatePair) -> list[EntityMention]:
    return [example.mentions[pair.head], example.mentions[pair.tail]]
