"""What both kinds of the task `generate` share: settings, examples, and how texts are compared with the right ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.corpus.examples.source_target import read_source_target_pairs
from alembert.corpus.readers.contract import Item, ReadOptions
from alembert.errors import BadInput, BadSetting
from alembert.tasks.decoding.search import DecodeSettings
from alembert.tasks.example import Coverage, Example, ReadResult, TaskPrediction, collect
from alembert.tasks.metrics.answers import ROUGE_METRICS, rouge, rouge_words
from alembert.tasks.settings import load_settings
from alembert.tasks.task import SampleMetric, Task, TaskScores

_MIN_TOKENS = 4


def _default_decoding() -> DecodeSettings:
    return DecodeSettings(method="beam", max_new_tokens=64, no_repeat_ngram=3)


@dataclass(frozen=True, kw_only=True)
class GenerateSettings:
    """Settings of text generation."""

    kind: Literal["write", "extract"] = "write"
    """write: generate new text (abstractive). extract: select sentences of the source (extractive)."""
    max_source_length: int | None = None
    """Maximum tokens of a source; none: what the model's maximum leaves beside a target. The rest is truncated."""
    max_target_length: int = 64
    """Maximum tokens of a target in training; truncated text is reported."""
    copy: bool = False
    """write: copy words of the source with a gate (pointer-generator), so that rare words need not be invented."""
    eval_examples: int | None = 200
    """Development examples to generate for in each evaluation during training; none: all."""
    sentences: int = 3
    """extract: number of sentences to select."""
    decoding: DecodeSettings = field(default_factory=_default_decoding)
    """Decoding."""

    def __post_init__(self) -> None:
        if self.kind not in ("write", "extract"):
            raise BadSetting(f"`kind` of the task is {self.kind!r}; expected write or extract.")
        least = {"max_source_length": _MIN_TOKENS, "max_target_length": _MIN_TOKENS, "eval_examples": 1, "sentences": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise BadSetting(f"`{name}` of the task is {value}; expected {lowest} or more.")
        if self.kind == "extract" and self.max_source_length is not None:
            raise BadSetting(
                "`max_source_length` is a setting of the kind write; extract reads sources of any length, in windows. Leave it out."
            )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> GenerateSettings:
        """Make settings of plain values again; raise ValueError for what are none."""
        return load_settings(cls, table)


@dataclass(frozen=True, kw_only=True)
class GenerateExample(Example):
    """A source, and perhaps its target."""

    target: str | None = None
    """What is to be written; none: not known."""

    @property
    def source(self) -> str:
        return self.texts[0]


def read_file(path: Path, options: ReadOptions) -> Iterator[GenerateExample | Item]:
    """Read a file of pairs."""
    file = read_source_target_pairs(path, options)
    for pair in file.pairs:
        yield GenerateExample(id=pair.id, texts=(pair.source,), where=pair.where, target=pair.target)
    yield from file.set_aside
    yield from file.remarks


def check_learnable(examples: Sequence[GenerateExample]) -> None:
    """Refuse training data that say nothing about what to write."""
    if all(example.target is None for example in examples):
        raise BadInput("There are no examples with a target to learn from. Check what was set aside, and why.")


# N examples


MAIN_METRIC: Final = "rougeL"


@dataclass(frozen=True)
class TextPrediction(TaskPrediction[GenerateExample]):
    """What was written for a source."""

    coverage: Coverage

    @property
    @abstractmethod
    def text(self) -> str | None:
        """The best text; none: nothing was asked for."""


class BaseGenerateTask(Task[GenerateExample, TextPrediction]):
    """A task whose examples are sources with targets, and whose answers are texts."""

    name: ClassVar[str] = "generate"
    settings_class: ClassVar[type[Any]] = GenerateSettings
    example_class: ClassVar[type[Example]] = GenerateExample
    answer_name: ClassVar[str] = "texts"
    settings: GenerateSettings

    @classmethod
    def read(
        cls, files: Sequence[Path], settings: GenerateSettings, options: ReadOptions
    ) -> ReadResult[GenerateExample]:
        return collect(files, lambda path: read_file(path, options))

    def check(self, examples: Sequence[GenerateExample]) -> None:
        """Refuse sources without a word."""
        for example in examples:
            if not example.source.strip():
                raise BadInput(f"{example.where or f'example {example.id}'} has no text to write for.")

    def gold_answers(self, example: GenerateExample) -> list[str]:
        return [] if example.target is None else [example.target]

    def score(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> TaskScores:
        compared = _RougeScores.of(examples, predictions)
        return TaskScores(
            main=MAIN_METRIC,
            measures={
                **compared.means(),
                "length_ratio": compared.length_ratio,
                "scored": float(len(compared.numbers)),
            },
            coverage=Coverage.total(prediction.coverage for prediction in predictions),
        )

    def sample_metric(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> SampleMetric:
        compared = _RougeScores.of(examples, predictions)
        values_N, is_scored_N = np.zeros(len(examples)), np.zeros(len(examples), np.bool_)
        values_N[compared.numbers] = compared.values[MAIN_METRIC]
        is_scored_N[compared.numbers] = True
        return lambda indices: float(values_N[indices].sum() / max(is_scored_N[indices].sum(), 1))

    def comparison_key(self) -> dict[str, Any]:
        return {"measure": MAIN_METRIC}


@dataclass(frozen=True, eq=False)
class _RougeScores:
    """Written texts against right ones, where both are there."""

    numbers: list[int]
    """Which examples they are."""
    values: dict[str, npt.NDArray[np.float64]]
    """ROUGE of each."""
    length_ratio: float

    @classmethod
    def of(cls, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> _RougeScores:
        pairs = [
            (number, prediction.text, example.target)
            for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True))
            if prediction.text is not None and example.target is not None
        ]
        scores = [rouge(written, right) for _, written, right in pairs]
        values = {name: np.array([score[name] for score in scores], np.float64) for name in ROUGE_METRICS}
        lengths = sum(len(rouge_words(text)) for _, text, _ in pairs), sum(len(rouge_words(text)) for *_, text in pairs)
        return cls([number for number, _, _ in pairs], values, lengths[0] / max(lengths[1], 1))

    def means(self) -> dict[str, float]:
        return {name: float(values.mean()) if len(values) else 0.0 for name, values in self.values.items()}
