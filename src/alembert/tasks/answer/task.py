"""The task `answer`: answers in a passage, or yes, no and other labels.

In: files of questions (SQuAD, CMRC, BioASQ, PubMedQA, plain records). Out: the answer at character offsets of the
passage as it was given, what else it might be, and how much speaks for no answer at all. Passages of any length are
read through windows, in training, evaluation and prediction alike.

Whether answers are words or labels, and whether a passage may have none, is detected from the training data and
reported. Questions that are answered with a label (`LabelAnswerTask`) are learnt by `classify`, as pairs of question
and passage.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from alembert.errors import BadInput
from alembert.tasks.answer.data import (
    AnswerExample,
    AnswerRewriter,
    AnswerSettings,
    BaseAnswerTask,
    check_examples,
    get_main_metric,
)
from alembert.tasks.answer.margin import AnswerMargins, LabelAnswerMargins
from alembert.tasks.answer.rows import AnswerRowBuilder, count_answer_tokens
from alembert.tasks.answer.scores import (
    QuestionScores,
    SpanAnswerPrediction,
    build_sample_metric,
    compute_scores,
    decode_answer,
)
from alembert.tasks.classify.data import ClassifyExample, ClassifyMetric, ClassifySettings
from alembert.tasks.classify.scores import ClassifyPrediction
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.example import EncodedExample
from alembert.tasks.metrics.answers import ANSWER_SCORERS, AnswerScorer, AnswerScorerName, best_no_answer_threshold
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.settings import MAX_MAGNITUDE, DistillLossSettings, LossSettings, load_number, load_settings
from alembert.tasks.task import DelegatingTask, LossUnit, SampleMetric, Task, TaskScores
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


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


# N questions


_CHINESE: Final = re.compile("[\u4e00-\u9fa5]")


@dataclass(frozen=True, eq=False)
class AnswerTask(BaseAnswerTask[SpanAnswerPrediction]):
    """Answer questions with words of their passages."""

    default_settings: ClassVar[Mapping[str, Any]] = {"batch": {"tokens": 2048, "micro_tokens": 512}}
    """A dozen questions."""

    settings: AnswerSettings
    has_none: bool
    """Whether some questions are not answered by their passage."""
    script_name: AnswerScorerName
    threshold: float = 0.0
    """How much better no answer must score than the best one to be given."""
    is_training: bool = False
    """Whether questions whose answer cannot be pointed at are left out."""

    # -- reading

    @classmethod
    def learn(cls, examples: Sequence[AnswerExample], settings: AnswerSettings) -> Task[AnswerExample, Any]:
        """Detect what the answers are; questions with labels make a task of their own."""
        if examples and all(example.kind == "label" for example in examples):
            return LabelAnswerTask.learn(examples, settings)
        if not any(example.training_answer() for example in examples):
            raise BadInput(
                f"None of the {len(examples):,} training questions has an answer that stands in its passage, so there is "
                "nothing to learn. Check what was set aside, and why."
            )
        get_main_metric(settings, "span")
        has_none = any(example.answers == () for example in examples)
        threshold = settings.null_threshold or 0.0
        return cls(replace(settings, kind="span"), has_none, _choose_script(examples, settings, has_none), threshold)

    def describe(self) -> list[str]:
        none = (
            "some questions have no answer in their passage, and the model may say so"
            if self.has_none
            else "each question has an answer in its passage, so one is always given"
        )
        words = {
            "squad1": "words are compared as in SQuAD 1",
            "squad2": "words are compared as in SQuAD 2",
            "cmrc": "characters and words are compared as in CMRC 2018",
        }
        return [
            f"Answers are words of the passage; {none}; {words[self.script_name]}.",
            f"Models are chosen by {self.main}.",
        ]

    def check(self, examples: Sequence[AnswerExample]) -> None:
        check_examples(examples, "span")

    def gold_answers(self, example: AnswerExample) -> list[str]:
        return list(dict.fromkeys(example.gold_texts))

    def advice(self, examples: Sequence[AnswerExample], encoded: Sequence[EncodedExample]) -> Iterator[str]:
        pairs = zip(examples, encoded, strict=True)
        lengths = [tokens for example, rows in pairs if (tokens := count_answer_tokens(example, rows.layout))]
        most = self.settings.max_answer_length
        over = sum(tokens > most for tokens in lengths)
        if over:
            enough = sorted(lengths)[math.ceil(0.99 * len(lengths)) - 1]
            needed, whom = (enough, "99 of 100") if most < enough < max(lengths) else (max(lengths), "all")
            yield (
                f"{over:,} of {len(lengths):,} answers to train on ({100 * over / len(lengths):.1f} %) are longer than "
                f"`max_answer_length` ({most} tokens) and can never be given whole; max_answer_length = {needed} under [task] is "
                f"enough for {whom} of them"
            )

    def rewriter(self) -> AnswerRewriter:
        return AnswerRewriter()

    # -- encoding

    @property
    def main(self) -> str:
        """The measure that models are chosen by."""
        return get_main_metric(self.settings, "span")

    @property
    def script(self) -> AnswerScorer:
        """How answers are compared with the right ones."""
        return ANSWER_SCORERS[self.script_name]

    @property
    def loss_unit(self) -> LossUnit:
        return "rows"

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="span", dropout=0.0)

    def for_training(self) -> AnswerTask:
        """Return the task that encodes training data: questions whose right answer is not in the passage are left out."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[AnswerExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        limit = min(self.settings.max_length, longest)
        return AnswerRowBuilder(tokenizer, limit, self.settings, self.script, self.is_training).encode(examples)

    # -- loss

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.losses import span_loss

        return span_loss(outputs, target, settings)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import span_divergence

        return span_divergence(one, other, target)

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.losses import span_distillation_loss

        return span_distillation_loss(outputs, taught, target, settings.temperature)

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> SpanAnswerPrediction:
        threshold = self.threshold if self.has_none else None
        return decode_answer(encoded.layout, outputs, encoded.coverage, self.settings, threshold)

    def margins(self) -> AnswerMargins:
        return AnswerMargins(self)

    def apply_min_score(self, prediction: SpanAnswerPrediction, min_score: float) -> SpanAnswerPrediction:
        if prediction.answer is None or prediction.score >= min_score:
            return prediction
        coverage = replace(prediction.coverage, withheld=prediction.coverage.withheld + 1)
        return replace(prediction, is_null=True, coverage=coverage)

    def tune(
        self, examples: Sequence[AnswerExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> AnswerTask:
        """Choose when to give no answer, by F1, if passages may have none and nothing was asked for."""
        compared = self._compared(examples, [self.decode(*pair) for pair in zip(encoded, outputs, strict=True)])
        if not self.has_none or self.settings.null_threshold is not None or not compared.has_none:
            return self
        threshold, _ = best_no_answer_threshold(compared.best_f1_N, compared.is_none_N, compared.null_N)
        return replace(self, threshold=threshold)

    # -- scores

    def score(self, examples: Sequence[AnswerExample], predictions: Sequence[SpanAnswerPrediction]) -> TaskScores:
        tunes = self.settings.null_threshold is None
        return compute_scores(self._compared(examples, predictions), self.main, predictions, tunes=tunes)

    def sample_metric(
        self, examples: Sequence[AnswerExample], predictions: Sequence[SpanAnswerPrediction]
    ) -> SampleMetric:
        return build_sample_metric(self._compared(examples, predictions), self.main)

    def _compared(
        self, examples: Sequence[AnswerExample], predictions: Sequence[SpanAnswerPrediction]
    ) -> QuestionScores:
        return QuestionScores.of(examples, predictions, self.script)

    def confidences(self, example: AnswerExample, prediction: SpanAnswerPrediction) -> Iterator[tuple[float, bool]]:
        if example.answers is not None and prediction.answer is not None:
            yield prediction.score, self.script.best(example.gold_texts, prediction.text)[0] == 1

    def comparison_key(self) -> dict[str, Any]:
        return {"kind": "span", "measure": self.main, "script": self.script_name}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "kind": "span",
            "settings": asdict(self.settings),
            "has_none": self.has_none,
            "script": self.script_name,
            "threshold": self.threshold,
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Task[AnswerExample, Any]:
        if table["kind"] == "label":
            return LabelAnswerTask.from_table(table)
        settings = load_settings(AnswerSettings, table["settings"])
        script = table["script"]
        if script not in ANSWER_SCORERS:
            raise ValueError(f"there is no script {script!r}")
        return cls(
            settings, bool(table["has_none"]), script, load_number(table, "threshold", -MAX_MAGNITUDE, MAX_MAGNITUDE)
        )


def _choose_script(examples: Sequence[AnswerExample], settings: AnswerSettings, has_none: bool) -> AnswerScorerName:
    chinese = sum(bool(_CHINESE.search(example.question)) for example in examples)
    if settings.script == "cmrc" or (settings.script == "auto" and 2 * chinese > len(examples)):
        return "cmrc"
    return "squad2" if has_none else "squad1"
