"""Margins of labels and numbers: a class against the next, a label against its threshold, a number against the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from alembert.errors import BadInput
from alembert.tasks.classify.data import ClassifyExample, find_sentence_spans, split_sides
from alembert.tasks.classify.rows import ClassifyLayout
from alembert.tasks.classify.scores import ClassifyAnswer
from alembert.tasks.example import EncodedExample
from alembert.tasks.margin import Margin, MarginQuestion, TaskMargins, compare_class, find_class, quote, refuse_span
from alembert.tasks.metrics import Floats
from alembert.tasks.runtime import Outputs
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.tasks.classify.task import ClassifyTask


@dataclass(frozen=True, eq=False)
class ClassifyMargins(TaskMargins[ClassifyExample]):
    """Margins of a classifier's answers; an answer is the number of the sentence, 0 for whole texts."""

    task: ClassifyTask

    def questions(
        self,
        example: ClassifyExample,
        encoded: EncodedExample,
        outputs: Sequence[Outputs],
        span: Span | None,
        label: str | None,
    ) -> list[MarginQuestion]:
        if self.task.kind != "number":
            find_class(label, self.task.classes)
        elif label is not None:
            raise BadInput("The answers of this model are numbers and have no label. Leave the label out.")
        answers = self.task.decode(encoded, outputs).answers
        places = self._places(example, span, len(answers))
        asked = [self._question(answers[number], number, label, *place) for number, place in places.items()]
        return sorted(asked, key=lambda question: question.score or 0)

    def _places(self, example: ClassifyExample, span: Span | None, count: int) -> dict[int, tuple[str, Span | None]]:
        """Name the texts that have an answer: the text itself, or the sentences that a span touches."""
        if not self.task.is_document:
            refuse_span(span, "the whole text")
            return {0: ("the text", None)}
        spans = find_sentence_spans(example)
        if spans is None:
            refuse_span(span, "a sentence of a list")
            return {number: (f"sentence {number + 1}", None) for number in range(count)}
        text = "\n\n".join(example.texts)
        chosen = {n: each for n, each in enumerate(spans) if span is None or (each[0] < span[1] and span[0] < each[1])}
        if not chosen:
            raise BadInput("The span has no sentence of the text. Give the characters of one.")
        return {number: (quote(text, each), each) for number, each in chosen.items()}

    def _question(
        self, answer: ClassifyAnswer, number: int, label: str | None, where: str, span: Span | None
    ) -> MarginQuestion:
        if answer.value is not None:
            return MarginQuestion(
                f"why {where} has {answer.value:.4g} and not {self.task.mean:.4g}, the mean in training",
                "",
                number,
                span,
            )
        given = answer.all_labels
        sure = answer.probabilities
        ranked = sorted(given or sure, key=lambda name: sure[name], reverse=not given)  # what is least certain first
        name = label or ranked[0]
        is_given = name in given
        score = sure[name] if is_given else None
        return MarginQuestion(
            f"why {where} {'is' if is_given else 'is not'} {name}", name, number, span, score, is_given
        )

    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        value, gradient_C = self._compare(self.task.pool(encoded, outputs)[question.answer], question.label)
        pool = self.task.settings.pool
        return Margin(value, tuple(spread_gradient(outputs, encoded.layout, pool, question.answer, gradient_C)))

    def _compare(self, logits_C: Floats, label: str) -> tuple[float, Outputs]:
        if self.task.kind == "number":
            scale = self.task.deviation
            return float(logits_C[0]) * scale, np.array([scale], np.float32)
        chosen = self.task.classes.index(label)
        if self.task.kind == "single":
            return compare_class(logits_C, chosen)
        calibration = self.task.calibration
        threshold = calibration.thresholds[chosen] if calibration.thresholds else 0.5
        least = calibration.temperature * float(np.log(threshold / (1 - threshold))) if 0 < threshold < 1 else 0.0
        return float(logits_C[chosen]) - least, (np.arange(len(logits_C)) == chosen).astype(np.float32)

    def readings(self, example: ClassifyExample) -> Iterator[tuple[str, int, int]]:
        if not self.task.is_document:
            sides = split_sides(example, self.task.pairs)
            if len(sides) > len(example.texts):  # one text, in which a tab separates the two of a pair
                yield from ((sides[0], 0, 0), (sides[1], 0, len(sides[0]) + 1))
                return
        spans = find_sentence_spans(example) if self.task.is_document else None
        text = example.texts[0]
        yield from super().readings(example) if spans is None else ((text[a:b], 0, a) for a, b in spans)


def spread_gradient(
    outputs: Sequence[npt.NDArray[np.float32]],
    layout: ClassifyLayout,
    pool: str,
    answer: int,
    gradient_C: npt.NDArray[np.float32],
) -> list[npt.NDArray[np.float32]]:
    """Return how an answer's pooled outputs change with those of all windows, weighted by `gradient_C`."""
    outputs_PC = np.concatenate(outputs)
    own_P = np.flatnonzero(layout.owners == answer)
    spread_PC = np.zeros(outputs_PC.shape, np.float32)
    if pool == "max":
        highest_C = own_P[outputs_PC[own_P].argmax(0)]
        spread_PC[highest_C, np.arange(len(gradient_C))] = gradient_C
    else:
        spread_PC[own_P] = gradient_C / len(own_P)
    return np.split(spread_PC, np.cumsum([len(each) for each in outputs])[:-1])
