"""Margins of choices: the choice that is taken against the next best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from alembert.tasks.choose.data import ChooseExample
from alembert.tasks.classify.margin import spread_gradient
from alembert.tasks.classify.scores import pool_windows
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
    refuse_span,
)
from alembert.tasks.runtime import Outputs
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.tasks.choose.task import ChooseTask


@dataclass(frozen=True, eq=False)
class ChooseMargins(TaskMargins[ChooseExample]):
    """Margins of choices, whose labels are their numbers, from 1."""

    task: ChooseTask

    def questions(
        self,
        example: ChooseExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        refuse_span(span, "the choices")
        prediction = self.task.decode(encoded, outputs)
        names = [str(number) for number in range(1, len(example.choices) + 1)]
        taken = names[prediction.choice]
        name = find_class(label, names) or taken
        is_taken = name == taken
        sentence = f"why choice {name} {'is' if is_taken else 'is not'} taken"
        score = prediction.score if is_taken else None
        return [MarginQuestion(sentence, name, int(name) - 1, score=score, is_given=is_taken)]

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        pool = self.task.settings.pool
        scores_C = pool_windows(np.concatenate(outputs), encoded.layout, pool)[:, 0]
        value, gradient_C = compare_class(scores_C, question.answer)
        parts = [
            spread_gradient(outputs, encoded.layout, pool, choice, gradient_C[choice : choice + 1])
            for choice in np.flatnonzero(gradient_C).tolist()
        ]
        return Margin(value, tuple(sum(rows) for rows in zip(*parts, strict=True)))

    def locate(
        self, example: ChooseExample, encoded: EncodedExample, row: int, pieces: Sequence[ReadPiece | None]
    ) -> list[TextPlace | None]:
        shared, _ = example.sides
        asked = len(example.texts) - len(example.choices)
        own = asked + int(encoded.layout.owners[row])
        first = len(example.question) + 1 if example.has_passage else 0

        def place(piece: ReadPiece) -> TextPlace:
            if piece.text == shared:
                return piece_place(piece, 0, 0)
            return piece_place(piece, 1, 0) if piece.start < first else piece_place(piece, own, -first)

        return [None if piece is None else place(piece) for piece in pieces]
