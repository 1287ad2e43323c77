"""Errors of the task `generate`: where written texts share little with the right ones; the furthest apart first.

A written text is never quite right, so ROUGE-L takes the place of accuracy, and all texts but perfect ones are cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from alembert.inspect.errors import ErrorAnalysis, ErrorCase
from alembert.inspect.tables import Grouping, Table
from alembert.tasks.generate.data import MAIN_METRIC, GenerateExample, TextPrediction
from alembert.tasks.metrics.rouge import rouge, rouge_words

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

_TOKENS: Final = (0, 128, 256, 384, 512)
_WORDS: Final = (0, 5, 10, 15, 20, 30, 60)


@dataclass(frozen=True)
class _ScoredText:
    example: GenerateExample
    written: str
    right: str
    tokens: int
    cut: int
    value: float


_GROUPINGS: Final[tuple[Grouping[_ScoredText], ...]] = (
    Grouping.by_range("by_tokens", "By tokens that the model reads", "tokens", _TOKENS, lambda e: e.tokens),
    Grouping.by_range("by_words", "By words of the right text", "words", _WORDS, lambda e: len(rouge_words(e.right))),
    Grouping("by_cut", "By what is cut", "source", ("whole", "cut"), lambda e: "cut" if e.cut else "whole"),
)


def analyse_errors(
    model: TaskModel, examples: Sequence[GenerateExample], predictions: Sequence[TextPrediction]
) -> ErrorAnalysis:
    """Sort what a model writes by how far it is from what is right."""
    found = [
        _score_text(example, prediction.text, example.target, prediction)
        for example, prediction in zip(examples, predictions, strict=True)
        if prediction.text is not None and example.target is not None
    ]
    worst = sorted((each for each in found if each.value < 1), key=lambda each: each.value)
    mean = fmean(each.value for each in found) if found else 0.0
    strange = sum(each.value == 0 for each in found)
    return ErrorAnalysis(
        summary=f"{MAIN_METRIC} is {mean:.3f} over {len(found):,} texts; {strange:,} share no word with the right one",
        tables=tuple(_table(found, sorting) for sorting in _GROUPINGS),
        cases=tuple(map(_case, worst)),
    )


def _score_text(example: GenerateExample, written: str, right: str, prediction: TextPrediction) -> _ScoredText:
    coverage = prediction.coverage
    value = rouge(written, right)[MAIN_METRIC]
    return _ScoredText(example, written, right, coverage.tokens, coverage.cut_characters, value)


def _table(found: Sequence[_ScoredText], sorting: Grouping[_ScoredText]) -> Table:
    rows = []
    for group in sorting.groups:
        part = [each for each in found if sorting.group(each) == group]
        if part:
            ratio = sum(len(rouge_words(e.written)) for e in part) / max(
                1, sum(len(rouge_words(e.right)) for e in part)
            )
            rows.append((group, len(part), fmean(each.value for each in part), ratio))
    header = (sorting.unit, "texts", MAIN_METRIC, "length ratio")
    return Table(name=sorting.name, title=sorting.title, header=header, rows=tuple(rows))


def _case(each: _ScoredText) -> ErrorCase:
    return ErrorCase(
        id=each.example.id,
        where=each.example.where,
        told=f"{MAIN_METRIC} {each.value:.2f}",
        texts=(f"written: {each.written}", f"right: {each.right}", each.example.source),
    )
