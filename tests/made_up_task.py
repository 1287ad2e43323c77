"""A small task outside of the package, with a head of its own: what a new task must write, and no more.

It grades texts. `made_up` makes it known for the tests of a module, as a line in `TASKS` and one in `HEAD_KINDS` would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor, nn

from alembert.corpus.examples.labelled import read_labelled
from alembert.corpus.readers.contract import Item, ReadOptions
from alembert.data.windows import Row
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HEAD_KINDS, HeadInputs, HeadSpec, register_head
from alembert.nn.losses import cross_entropy
from alembert.tasks.example import Coverage, EncodedExample, Example, ReadResult, TaskPrediction, collect
from alembert.tasks.runtime import Outputs
from alembert.tasks.runtime.export_files import HEAD_IS_PER_TOKEN
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import LossSettings
from alembert.tasks.task import TASKS, Task, TaskScores, register_task
from alembert.text.tokenizer import Tokenizer
from task_cases import Case, topics


@dataclass(frozen=True, kw_only=True)
class GradeSettings:
    max_length: int = 48
    """Tokens of a text that are read."""


@dataclass(frozen=True, kw_only=True)
class GradeExample(Example):
    grade: str | None = None

    @property
    def gold_labels(self) -> tuple[str, ...]:
        return () if self.grade is None else (self.grade,)


@dataclass(frozen=True)
class GradePrediction(TaskPrediction[GradeExample]):
    grade: str
    coverage: Coverage


class GradeHead(nn.Module):
    """Logits (P, C) at the first tokens."""

    def __init__(self, config: EncoderConfig, spec: HeadSpec) -> None:
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, spec.columns)

    def forward(self, states: HeadInputs) -> Tensor:
        return self.linear(states.token_states())


@dataclass(frozen=True, eq=False)
class GradeTask(Task[GradeExample, GradePrediction]):
    """Grade texts."""

    name: ClassVar[str] = "grade"
    settings_class: ClassVar[type[Any]] = GradeSettings
    example_class: ClassVar[type[Example]] = GradeExample

    settings: GradeSettings
    labels: tuple[str, ...] = ()

    @classmethod
    def read(cls, files: Sequence[Path], settings: GradeSettings, options: ReadOptions) -> ReadResult[GradeExample]:
        return collect(files, lambda path: read_file(path, options))

    @classmethod
    def learn(cls, examples: Sequence[GradeExample], settings: GradeSettings) -> GradeTask:
        return cls(settings, tuple(sorted({example.grade for example in examples if example.grade is not None})))

    def head(self) -> HeadSpec:
        return HeadSpec(kind="grade", outputs=len(self.labels))

    def encode(self, examples: Sequence[GradeExample], tokenizer: Tokenizer, longest: int) -> list[EncodedExample]:
        limit = min(self.settings.max_length, longest) - 2
        return [self.encode_one(example, tokenizer, limit) for example in examples]

    def encode_one(self, example: GradeExample, tokenizer: Tokenizer, limit: int) -> EncodedExample:
        ids = tokenizer.encode(example.texts[0], add_special_tokens=False).ids[:limit]
        labels = None if example.grade is None else np.array([self.labels.index(example.grade)])
        row = Row(np.array([tokenizer.cls_id, *ids, tokenizer.sep_id]), np.zeros(1, np.int64), labels)
        coverage = Coverage(examples=1, characters=len(example.texts[0]), tokens=row.length, windows=1)
        return EncodedExample((row,), coverage)

    def loss(self, head: nn.Module, outputs: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
        return cross_entropy(outputs, target.labels, smoothing=settings.label_smoothing)

    def decode(self, encoded: EncodedExample, outputs: Sequence[Outputs]) -> GradePrediction:
        return GradePrediction(self.labels[int(outputs[0].argmax())], encoded.coverage)

    def score(self, examples: Sequence[GradeExample], predictions: Sequence[GradePrediction]) -> TaskScores:
        right = [example.grade == guess.grade for example, guess in zip(examples, predictions, strict=True)]
        coverage = Coverage.total(prediction.coverage for prediction in predictions)
        return TaskScores(main="accuracy", measures={"accuracy": sum(right) / len(right)}, coverage=coverage)


def read_file(path: Path, options: ReadOptions) -> Iterator[GradeExample | Item]:
    file = read_labelled(path, options)
    for row in file.rows:
        yield GradeExample(id=row.id, texts=row.texts, where=row.where, grade=str(row.label))
    yield from file.set_aside
    yield from file.remarks


MADE_UP = Case("grade", {}, topics)


@pytest.fixture(scope="module")
def made_up() -> Iterator[Case]:
    """Register the task and its head, for the tests of a module."""
    register_task(GradeTask)
    register_head("grade", GradeHead)
    HEAD_IS_PER_TOKEN["grade"] = True  # for Exports, which load no torch
    yield MADE_UP
    del TASKS["grade"], HEAD_KINDS["grade"], HEAD_IS_PER_TOKEN["grade"]
