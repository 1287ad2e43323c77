"""The task `choose`: which of several choices answers a question, continues a text, or fits a passage.

In: questions with any number of choices, with or without a passage, from exams (HEAD-QA), continuations (SWAG) or
reading comprehension (RACE, ARC). Out: the choice, with the probability of each. Every choice is read with the question
and gets one score; those of one question are compared by a softmax, so four and five choices may stand in one file.
Texts of any length are read through windows whose scores are pooled, in training, evaluation and prediction alike.

A choice has one row, or several where the text is longer than a window. Without a passage a row is `[CLS] question
[SEP] choice [SEP]`; with one it is `[CLS] passage [SEP] question choice [SEP]`, as RACE and SWAG are usually read. They
are cut as the pairs of `classify` are: the longer side, which is mostly the passage, through windows, the shorter one
whole in each of them. The first row of a choice has the label 1 if the choice is right and 0 if not; its other rows
have none, which is how the loss tells where a choice begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from alembert.corpus.readers.contract import ReadOptions
from alembert.data.windows import IntArray
from alembert.errors import BadInput
from alembert.tasks.choose.data import (
    ChooseExample,
    ChoosePrediction,
    ChooseRewriter,
    ChooseSettings,
    build_sample_metric,
    compute_scores,
    example_from_record,
    example_from_text,
    fit_choice_temperature,
    read_file,
)
from alembert.tasks.choose.margin import ChooseMargins
from alembert.tasks.classify.rows import ClassifyLayout, WindowSpec, encode_text, encode_token_ids
from alembert.tasks.classify.scores import pool_windows
from alembert.tasks.example import Coverage, EncodedExample, ReadResult, collect
from alembert.tasks.metrics import Floats
from alembert.tasks.runtime import ExampleOutputs, Outputs
from alembert.tasks.settings import DistillLossSettings, LossSettings, load_settings, load_temperature
from alembert.tasks.task import LossUnit, SampleMetric, Task, TaskScores
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.runtime.torch import TaskBatch


def encode_examples(examples: Sequence[ChooseExample], cutting: WindowSpec) -> list[EncodedExample]:
    """Encode examples; the texts of all of them go through the tokenizer at once."""
    texts = [text for example in examples for text in (example.sides[0], *example.sides[1])]
    ids = encode_token_ids(texts, cutting.tokenizer)
    return [_encoded(example, next(ids), [next(ids) for _ in example.choices], cutting) for example in examples]


def _encoded(
    example: ChooseExample, first: IntArray, seconds: Sequence[IntArray], cutting: WindowSpec
) -> EncodedExample:
    shared, own = example.sides
    parts = [
        encode_text((shared, text), (first, ids), cutting, _label(example, number))
        for number, (text, ids) in enumerate(zip(own, seconds, strict=True))
    ]
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    return EncodedExample(
        tuple(row for part in parts for row in part.rows),
        _coverage(example, [part.coverage for part in parts]),
        ClassifyLayout(owners, answers=len(parts)),
    )


def _label(example: ChooseExample, number: int) -> IntArray | None:
    return None if example.gold is None else np.array([number == example.gold], np.int64)


def _coverage(example: ChooseExample, parts: Sequence[Coverage]) -> Coverage:
    """Count an example once: what its choices share is read with each, and cut from each alike."""
    return replace(
        Coverage.total(parts),
        examples=1,
        characters=sum(map(len, example.texts)),
        split_examples=int(any(part.split_examples for part in parts)),
        gold=int(example.gold is not None),
        cut_characters=max(part.cut_characters for part in parts),
    )


def pool_choice_scores(encoded: EncodedExample, outputs: Sequence[Outputs], pool: str) -> Floats:
    """Compute one score a choice, from those of its windows."""
    return pool_windows(np.concatenate(outputs), encoded.layout, pool)[:, 0]


# R rows, C choices


@dataclass(frozen=True, eq=False)
class ChooseTask(Task[ChooseExample, ChoosePrediction]):
    """Choose one of several answers."""

    name: ClassVar[str] = "choose"
    settings_class: ClassVar[type[Any]] = ChooseSettings
    answer_name: ClassVar[str] = "choices"

    settings: ChooseSettings
    fewest: int
    """Choices that a question of the training data has at least."""
    most: int
    passages: bool
    """Whether some questions of the training data have a passage."""
    temperature: float = 1.0
    is_training: bool = False
    """Whether texts are cut to `train_windows`."""

    # -- reading

    @classmethod
    def read(cls, files: Sequence[Path], settings: ChooseSettings, options: ReadOptions) -> ReadResult[ChooseExample]:
        return collect(files, lambda path: read_file(path, options))

    @classmethod
    def learn(cls, examples: Sequence[ChooseExample], settings: ChooseSettings) -> ChooseTask:
        labelled = [example for example in examples if example.gold is not None]
        if not labelled:
            raise BadInput("There are no questions with an answer to learn from. Check what was set aside, and why.")
        for example in labelled:
            example.check()
        counts = [len(example.choices) for example in labelled]
        return cls(settings, min(counts), max(counts), any(example.has_passage for example in labelled))

    @classmethod
    def example_from_text(cls, text: str, name: str) -> ChooseExample:
        return example_from_text(text, name)

    @classmethod
    def example_from_record(cls, record: Mapping[str, Any], name: str) -> ChooseExample:
        return example_from_record(record, name)

    def describe(self) -> list[str]:
        count = str(self.fewest) if self.fewest == self.most else f"{self.fewest} to {self.most}"
        passage = ", and some or all have a passage" if self.passages else ""
        cut = (
            [f"Of each choice at most {most} windows are learnt from, as `train_windows` asks."]
            if (most := self.settings.train_windows)
            else []
        )
        return [f"Each question has {count} choices{passage}.", *cut, "Models are chosen by accuracy."]

    def check(self, examples: Sequence[ChooseExample]) -> None:
        for example in examples:
            example.check()

    def gold_answers(self, example: ChooseExample) -> list[str]:
        return [] if example.gold is None else [str(example.gold + 1)]

    def rewriter(self) -> ChooseRewriter:
        return ChooseRewriter()

    # -- encoding

    @property
    def loss_unit(self) -> LossUnit:
        return "examples"

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="choice")

    def for_training(self) -> ChooseTask:
        """Return the task that encodes training data: it cuts texts to `train_windows`, if that was asked for."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[ChooseExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        most = self.settings.train_windows if self.is_training else None
        cutting = WindowSpec(tokenizer, min(self.settings.max_length, longest), self.settings.overlap, most)
        return encode_examples(examples, cutting)

    # -- loss

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        from alembert.tasks.losses import ChoiceLogProbs, choice_loss

        return choice_loss(ChoiceLogProbs.of(outputs, target, self.settings.pool), target.labels, settings)

    def divergence(self, one: Tensor, other: Tensor, target: TaskBatch) -> Tensor:
        from alembert.tasks.losses import ChoiceLogProbs, choice_divergence

        pool = self.settings.pool
        return choice_divergence(ChoiceLogProbs.of(one, target, pool), ChoiceLogProbs.of(other, target, pool))

    def distillation_loss(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: TaskBatch, settings: DistillLossSettings
    ) -> Tensor:
        from alembert.tasks.losses import ChoiceLogProbs, choice_distillation_loss

        pool, temperature = self.settings.pool, settings.temperature
        student = ChoiceLogProbs.of(outputs.float() / temperature, target, pool)
        return choice_distillation_loss(student, ChoiceLogProbs.of(taught.float() / temperature, target, pool))

    # -- decoding

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> ChoosePrediction:
        return ChoosePrediction.of(
            pool_choice_scores(encoded, outputs, self.settings.pool), self.temperature, encoded.coverage
        )

    def margins(self) -> ChooseMargins:
        return ChooseMargins(self)

    def tune(
        self, examples: Sequence[ChooseExample], encoded: Sequence[EncodedExample], outputs: ExampleOutputs
    ) -> ChooseTask:
        """Fit the temperature, which changes no choice."""
        labelled = [
            (pool_choice_scores(rows, parts, self.settings.pool), example.gold)
            for example, rows, parts in zip(examples, encoded, outputs, strict=True)
            if example.gold is not None
        ]
        temperature = fit_choice_temperature([scores for scores, _ in labelled], [gold for _, gold in labelled])
        return replace(self, temperature=temperature)

    # -- scores

    def score(self, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> TaskScores:
        return compute_scores(examples, predictions)

    def sample_metric(self, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> SampleMetric:
        return build_sample_metric(examples, predictions)

    def confidences(self, example: ChooseExample, prediction: ChoosePrediction) -> Iterator[tuple[float, bool]]:
        if example.gold is not None:
            yield prediction.score, prediction.choice == example.gold

    def comparison_key(self) -> dict[str, Any]:
        return {"measure": "accuracy"}

    # -- files

    def to_table(self) -> dict[str, Any]:
        return {
            "choices": [self.fewest, self.most],
            "passages": self.passages,
            "temperature": self.temperature,
            "settings": asdict(self.settings),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> ChooseTask:
        fewest, most = (int(count) for count in table["choices"])
        if not 1 <= fewest <= most:
            raise ValueError(f"`choices` is {fewest} to {most}; expected at least 1, the lower number first")
        settings = load_settings(ChooseSettings, table["settings"])
        return cls(settings, fewest, most, bool(table["passages"]), load_temperature(table))
