"""Errors of the task `relate`: those of a classifier, each pair being a text of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alembert.inspect.errors import ErrorAnalysis, ErrorQuestion, classify
from alembert.tasks.classify.data import ClassifyExample
from alembert.tasks.classify.scores import ClassifyPrediction
from alembert.tasks.relate.data import RelateExample
from alembert.tasks.relate.pairs import CandidatePair, get_context
from alembert.tasks.relate.scores import RelatePrediction

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


def analyse_errors(
    model: TaskModel, examples: Sequence[RelateExample], predictions: Sequence[RelatePrediction]
) -> ErrorAnalysis:
    """Sort the errors of a relation model."""
    pairs = [pair for both in zip(examples, predictions, strict=True) for pair in _pairs(*both)]
    texts, answers, questions = ([pair[side] for pair in pairs] for side in range(3))
    return classify.analyse_errors(model, texts, answers, questions)


def _pairs(example: RelateExample, prediction: RelatePrediction) -> Iterator[tuple[Any, Any, Any]]:
    """Yield each pair that has a right answer as a text, with its prediction and the question about it."""
    for pair, answer in zip(prediction.pairs, prediction.answers, strict=True):
        if pair.label is not None:
            text = ClassifyExample(
                id=example.id, texts=(_format_pair(example, pair),), where=example.where, golds=(pair.label,)
            )
            yield text, ClassifyPrediction((answer,), prediction.coverage), ErrorQuestion(example=_alone(example, pair))


def _alone(example: RelateExample, pair: CandidatePair) -> RelateExample:
    """Return the example with the entities of a pair alone, so that nothing but this pair can be asked about."""
    if example.form == "marked":
        return example
    kept = sorted((pair.head, pair.tail))
    return replace(example, mentions=tuple(example.mentions[number] for number in kept), links=None)


def _format_pair(example: RelateExample, pair: CandidatePair) -> str:
    """Return the text of a pair; in documents, with the entities behind it, since nothing marks them."""
    if example.form != "document":
        return example.text
    start, end = get_context(example, pair)
    head, tail = (example.mentions[number] for number in (pair.head, pair.tail))
    words = [f"{example.text[mention.start : mention.end]} ({mention.type})" for mention in (head, tail)]
    return f"{example.text[start:end]} | {words[0]} -> {words[1]}"
