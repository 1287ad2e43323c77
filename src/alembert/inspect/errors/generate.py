"""Errors of the task `generate`: texts that share little with the right ones; the worst first.

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
from alembert.tasks.metrics.answers import rouge, rouge_words

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
    scored = [
        _score_text(example, prediction.text, example.target, prediction)
        for example, prediction in zip(examples, predictions, strict=True)
        if prediction.text is not None and example.target is not None
    ]
    worst = sorted((text for text in scored if text.value < 1), key=lambda text: text.value)
    mean = fmean(text.value for text in scored) if scored else 0.0
    unrelated = sum(text.value == 0 for text in scored)
    return ErrorAnalysis(
        summary=f"{MAIN_METRIC} is {mean:.3f} over {len(scored):,} texts; {unrelated:,} share no word with the right one",
        tables=tuple(_table(scored, grouping) for grouping in _GROUPINGS),
        cases=tuple(map(_case, worst)),
    )


def _score_text(example: GenerateExample, written: str, right: str, prediction: TextPrediction) -> _ScoredText:
    coverage = prediction.coverage
    value = rouge(written, right)[MAIN_METRIC]
    return _ScoredText(example, written, right, coverage.tokens, coverage.cut_characters, value)


def _table(scored: Sequence[_ScoredText], grouping: Grouping[_ScoredText]) -> Table:
    rows = []
    for group in grouping.groups:
        part = [text for text in scored if grouping.group(text) == group]
        if part:
            ratio = sum(len(rouge_words(e.written)) for e in part) / max(
                1, sum(len(rouge_words(e.right)) for e in part)
            )
            rows.append((group, len(part), fmean(text.value for text in part), ratio))
    header = (grouping.unit, "texts", MAIN_METRIC, "length ratio")
    return Table(name=grouping.name, title=grouping.title, header=header, rows=tuple(rows), shares={MAIN_METRIC: ""})


def _case(text: _ScoredText) -> ErrorCase:
    return ErrorCase(
        id=text.example.id,
        where=text.example.where,
        problem=f"{MAIN_METRIC} {text.value:.2f}",
        texts=(f"written: {text.written}", f"right: {text.right}", text.example.source),
    )
