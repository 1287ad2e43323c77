"""What both kinds of the task `generate` share: examples, and how written texts are compared with the right ones."""

# N examples
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from alembert.corpus.readers.contract import ReadOptions
from alembert.tasks.example import Coverage, Reading
from alembert.tasks.generate_example import GenerateExample, check_texts, read_examples, texts_of
from alembert.tasks.generate_settings import GenerateSettings
from alembert.tasks.metrics.rouge import MEASURES, rouge, words
from alembert.tasks.task import Measure, Scores, Task

MAIN: Final = "rougeL"


@dataclass(frozen=True)
class TextPrediction:
    """What was written for a source."""

    coverage: Coverage

    @property
    @abstractmethod
    def text(self) -> str | None:
        """The best text; none: nothing was asked for."""


class SourceTask(Task[GenerateExample, TextPrediction]):
    """A task whose examples are sources with targets, and whose answers are texts."""

    name: ClassVar[str] = "generate"
    settings_class: ClassVar[type[Any]] = GenerateSettings
    answer_name: ClassVar[str] = "texts"
    settings: GenerateSettings

    @classmethod
    def read(cls, files: Sequence[Path], settings: GenerateSettings, options: ReadOptions) -> Reading[GenerateExample]:
        return read_examples(files, options)

    @classmethod
    def of_texts(cls, texts: Sequence[str], ids: Sequence[str] | None = None) -> list[GenerateExample]:
        return texts_of(texts, ids)

    def check(self, examples: Sequence[GenerateExample]) -> None:
        check_texts(examples)

    def answers(self, example: GenerateExample) -> list[str]:
        return [] if example.target is None else [example.target]

    def score(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> Scores:
        found = _Compared.of(examples, predictions)
        return Scores(
            main=MAIN,
            measures={
                **found.means(),
                "length_ratio": found.length_ratio,
                "scored": float(len(found.places)),
            },
            coverage=Coverage.total(prediction.coverage for prediction in predictions),
        )

    def measure(self, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> Measure:
        found = _Compared.of(examples, predictions)
        values_N, is_scored_N = np.zeros(len(examples)), np.zeros(len(examples), np.bool_)
        values_N[found.places] = found.values[MAIN]
        is_scored_N[found.places] = True
        return lambda indices: float(values_N[indices].sum() / max(is_scored_N[indices].sum(), 1))

    def question(self) -> dict[str, Any]:
        return {"measure": MAIN}


@dataclass(frozen=True, eq=False)
class _Compared:
    """Written texts against right ones, where both are there."""

    places: list[int]
    """Numbers of the examples."""
    values: dict[str, npt.NDArray[np.float64]]
    """ROUGE of each."""
    length_ratio: float

    @classmethod
    def of(cls, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]) -> _Compared:
        pairs = [
            (number, prediction.text, example.target)
            for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True))
            if prediction.text is not None and example.target is not None
        ]
        found = [rouge(written, right) for _, written, right in pairs]
        values = {name: np.array([each[name] for each in found], np.float64) for name in MEASURES}
        lengths = sum(len(words(text)) for _, text, _ in pairs), sum(len(words(text)) for *_, text in pairs)
        return cls([number for number, _, _ in pairs], values, lengths[0] / max(lengths[1], 1))

    def means(self) -> dict[str, float]:
        return {name: float(values.mean()) if len(values) else 0.0 for name, values in self.values.items()}
