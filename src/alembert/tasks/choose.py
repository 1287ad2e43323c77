"""The task `choose`: which of several choices answers a question, continues a text, or fits a passage.

In: questions with any number of choices, with or without a passage, from exams (HEAD-QA), continuations (SWAG) or
reading comprehension (RACE, ARC). Out: the choice, with the probability of each. Every choice is read with the question
and gets one score; those of one question are compared by a softmax, so four and five choices may stand in one file.
Texts of any length are read through windows whose scores are pooled, in training, evaluation and prediction alike.
"""

# R rows, C choices
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadInput
from alembert.tasks.choose_example import ChooseExample, of_record, read_examples, texts_of
from alembert.tasks.choose_rewrite import ChooseRewriter
from alembert.tasks.choose_rows import encode_all
from alembert.tasks.choose_scores import ChoosePrediction, measure_of, scores_of, temperature_of
from alembert.tasks.choose_settings import ChooseSettings
from alembert.tasks.choose_show import lines_of, record_of
from alembert.tasks.classify_decode import pooled
from alembert.tasks.classify_rows import Cutting
from alembert.tasks.example import Encoded, Reading
from alembert.tasks.imitation_settings import ImitationSettings
from alembert.tasks.loss_settings import LossSettings
from alembert.tasks.metrics.tally import Floats
from alembert.tasks.runner import Outputs
from alembert.tasks.setting_checks import saved, saved_temperature
from alembert.tasks.task import Measure, Scores, Task
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from alembert.nn.heads import HeadSpec
    from alembert.tasks.targets import Target


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

    # -- data

    @classmethod
    def read(cls, files: Sequence[Path], settings: ChooseSettings, options: ReadOptions) -> Reading[ChooseExample]:
        return read_examples(files, options)

    @classmethod
    def learn(cls, examples: Sequence[ChooseExample], settings: ChooseSettings) -> ChooseTask:
        known = [example for example in examples if example.gold is not None]
        if not known:
            raise BadInput("There are no questions with an answer to learn from. Check what was set aside, and why.")
        for example in known:
            example.check()
        counts = [len(example.choices) for example in known]
        return cls(settings, min(counts), max(counts), any(example.has_passage for example in known))

    @classmethod
    def of_texts(cls, texts: Sequence[str], ids: Sequence[str] | None = None) -> list[ChooseExample]:
        """Make examples without answers of `question<TAB>choice<TAB>choice...`, or of JSON objects."""
        found = texts_of(texts, ids or [f"text-{number}" for number in range(1, len(texts) + 1)])
        return [replace(example, gold=None) for example in found]

    @classmethod
    def of_records(cls, records: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> list[ChooseExample]:
        found = [of_record(record, name) for record, name in zip(records, ids, strict=True)]
        return [replace(example, gold=None) for example in found]

    def decisions(self) -> list[str]:
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

    def answers(self, example: ChooseExample) -> list[str]:
        return [] if example.gold is None else [str(example.gold + 1)]

    def rewriter(self) -> ChooseRewriter:
        return ChooseRewriter()

    # -- the model

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @property
    def counted(self) -> Literal["places", "rows", "examples"]:
        return "examples"

    def head(self) -> HeadSpec:
        from alembert.nn.heads import HeadSpec

        return HeadSpec(kind="choice")

    def for_training(self) -> ChooseTask:
        """Give the task that encodes training data: it cuts texts to `train_windows`, if that was asked for."""
        return replace(self, is_training=True)

    def encode(self, examples: Sequence[ChooseExample], tokenizer: Tokenizer, longest: int) -> list[Encoded]:
        most = self.settings.train_windows if self.is_training else None
        cutting = Cutting(tokenizer, min(self.settings.length, longest), self.settings.overlap, most)
        return encode_all(examples, cutting)

    def loss(self, head: nn.Module, outputs: Tensor, target: Target, settings: LossSettings) -> Tensor:
        from alembert.tasks.choose_losses import Chosen, loss_of

        return loss_of(Chosen.of(outputs, target, self.settings.pool), target.labels, settings)

    def divergence(self, one: Tensor, other: Tensor, target: Target) -> Tensor:
        from alembert.tasks.choose_losses import Chosen, divergence_of

        pool = self.settings.pool
        return divergence_of(Chosen.of(one, target, pool), Chosen.of(other, target, pool))

    def imitation(
        self, head: nn.Module, outputs: Tensor, taught: Tensor, target: Target, settings: ImitationSettings
    ) -> Tensor:
        from alembert.tasks.choose_losses import Chosen, imitation_of

        pool, temperature = self.settings.pool, settings.temperature
        student = Chosen.of(outputs.float() / temperature, target, pool)
        return imitation_of(student, Chosen.of(taught.float() / temperature, target, pool))

    # -- answers

    def decode(self, encoded: Encoded, outputs: Sequence[Outputs]) -> ChoosePrediction:
        return ChoosePrediction.of(self._scores(encoded, outputs), self.temperature, encoded.coverage)

    def _scores(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Floats:
        """Give one score a choice."""
        return pooled(np.concatenate(outputs), encoded.layout, self.settings.pool)[:, 0]

    def tune(
        self,
        examples: Sequence[ChooseExample],
        encoded: Sequence[Encoded],
        outputs: Sequence[Sequence[Outputs]],
    ) -> ChooseTask:
        """Fit the temperature, which changes no choice."""
        known = [
            (self._scores(each, parts), example.gold)
            for example, each, parts in zip(examples, encoded, outputs, strict=True)
            if example.gold is not None
        ]
        temperature = temperature_of([scores for scores, _ in known], [gold for _, gold in known])
        return replace(self, temperature=temperature)

    def score(self, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> Scores:
        return scores_of(examples, predictions)

    def measure(self, examples: Sequence[ChooseExample], predictions: Sequence[ChoosePrediction]) -> Measure:
        return measure_of(examples, predictions)

    def confidences(self, example: ChooseExample, prediction: ChoosePrediction) -> Iterator[tuple[float, bool]]:
        if example.gold is not None:
            yield prediction.score, prediction.choice == example.gold

    def question(self) -> dict[str, Any]:
        return {"measure": "accuracy"}

    def record(self, example: ChooseExample, prediction: ChoosePrediction) -> dict[str, Any]:
        return record_of(example, prediction)

    def show(self, example: ChooseExample, prediction: ChoosePrediction) -> list[str]:
        return lines_of(example, prediction)

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
        settings = saved(ChooseSettings, table["settings"])
        return cls(settings, fewest, most, bool(table["passages"]), saved_temperature(table))
