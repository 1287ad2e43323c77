"""Questions that are answered with a label (yes, no, maybe): the task `classify` on pairs of question and passage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, cast

from alembert.errors import BadInput
from alembert.tasks.answer.data import (
    AnswerExample,
    AnswerSettings,
    BaseAnswerTask,
    check_examples,
    get_main_metric,
)
from alembert.tasks.answer.margin import LabelAnswerMargins
from alembert.tasks.classify.data import ClassifyExample, ClassifyMetric, ClassifySettings
from alembert.tasks.classify.decode import ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.delegating import DelegatingTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.settings import load_settings
from alembert.tasks.task import SampleMetric, TaskScores


@dataclass(frozen=True, eq=False)
class LabelAnswerTask(DelegatingTask[AnswerExample, ClassifyPrediction], BaseAnswerTask[ClassifyPrediction]):
    """Answer questions on passages with one of a few labels."""

    answer_name: ClassVar[str] = "labels"

    settings: AnswerSettings
    inner: ClassifyTask
    """What is learnt: a label for each pair."""

    # -- reading

    @classmethod
    def learn(cls, examples: Sequence[AnswerExample], settings: AnswerSettings) -> LabelAnswerTask:
        pairs = ClassifySettings(
            kind="single",
            main=cast(ClassifyMetric, get_main_metric(settings, "label")),
            max_length=settings.max_length,
            overlap=settings.overlap,
        )
        inner = ClassifyTask.learn(to_classify_examples(examples), pairs)
        return cls(replace(settings, kind="label"), inner)

    def describe(self) -> list[str]:
        return [
            "Questions are answered with a label, not with words of the passage.",
            *self.inner.describe(),
        ]

    def check(self, examples: Sequence[AnswerExample]) -> None:
        check_examples(examples, "label")
        for example in examples:
            if example.label not in (None, *self.labels):
                raise BadInput(
                    f"{example.where} is answered with {example.label!r}, which this task does not know; it knows "
                    f"{', '.join(self.labels)}. Use data with the same answers, or fine-tune on all of them."
                )

    def gold_answers(self, example: AnswerExample) -> list[str]:
        return [] if example.label is None else [example.label]

    def to_inner(self, examples: Sequence[AnswerExample]) -> list[ClassifyExample]:
        return to_classify_examples(examples)

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> ClassifyPrediction:
        return self.inner.decode(encoded, outputs)

    def margins(self) -> LabelAnswerMargins:
        return LabelAnswerMargins(self)

    def apply_min_score(self, prediction: ClassifyPrediction, min_score: float) -> ClassifyPrediction:
        return self.inner.apply_min_score(prediction, min_score)

    def tune(
        self, examples: Sequence[AnswerExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> LabelAnswerTask:
        return replace(self, inner=self.inner.tune(to_classify_examples(examples), encoded, outputs))

    # -- scores

    def score(self, examples: Sequence[AnswerExample], predictions: Sequence[ClassifyPrediction]) -> TaskScores:
        scores = self.inner.score(to_classify_examples(examples), predictions)
        label, most = Counter(example.label for example in examples).most_common(1)[0]
        share, accuracy = most / len(examples), scores.measures["accuracy"]
        if accuracy > share:
            return scores
        note = (
            f"Near chance: always saying {label} has an accuracy of {share:.4f}, and this model has {accuracy:.4f}, so the "
            "score does not show that it has learnt anything."
        )
        return replace(scores, notes=(*scores.notes, note))

    def sample_metric(
        self, examples: Sequence[AnswerExample], predictions: Sequence[ClassifyPrediction]
    ) -> SampleMetric:
        return self.inner.sample_metric(to_classify_examples(examples), predictions)

    def confidences(self, example: AnswerExample, prediction: ClassifyPrediction) -> Iterator[tuple[float, bool]]:
        return self.inner.confidences(to_classify_example(example), prediction)

    def label_pairs(
        self, examples: Sequence[AnswerExample], predictions: Sequence[ClassifyPrediction]
    ) -> tuple[Sequence[str], Sequence[str]] | None:
        return self.inner.label_pairs(to_classify_examples(examples), predictions)

    def comparison_key(self) -> dict[str, Any]:
        return {**self.inner.comparison_key(), "kind": "label"}

    def to_record(self, example: AnswerExample, prediction: ClassifyPrediction) -> dict[str, Any]:
        record = self.inner.to_record(to_classify_example(example), prediction)
        record.pop("texts")
        return {"id": record.pop("id"), "question": example.question, "passage": example.passage, **record}

    def to_lines(self, example: AnswerExample, prediction: ClassifyPrediction) -> list[str]:
        answer = prediction.answer
        ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
        withheld = ["(no answer)"] if answer.label is None else []
        return [*withheld, *(f"{score:.2f}  {label}" for label, score in ranked)]

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {"kind": "label", "settings": asdict(self.settings), "classify": self.inner.to_table()}

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> LabelAnswerTask:
        return cls(load_settings(AnswerSettings, table["settings"]), ClassifyTask.from_table(table["classify"]))


def to_classify_examples(examples: Sequence[AnswerExample]) -> list[ClassifyExample]:
    """Turn questions and their passages into pairs with a label."""
    return [to_classify_example(example) for example in examples]


def to_classify_example(example: AnswerExample) -> ClassifyExample:
    """Turn a question and its passage into a pair with a label."""
    return ClassifyExample(
        id=example.id,
        texts=example.texts,
        where=example.where,
        golds=() if example.label is None else (example.label,),
        group=example.article,
    )
