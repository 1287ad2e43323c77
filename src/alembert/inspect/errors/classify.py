"""Errors of the task `classify`: what is taken for what, and where; the most confident first.

An answer is what is said of one text, pair, or sentence of a document. Of several labels an answer is right if all are.
Numbers are never quite right: of them the mean absolute error takes the place of accuracy, and the largest comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, cast

from alembert.corpus.examples.labelled import LabelValue
from alembert.infer.evaluate import ConfusionMatrix
from alembert.inspect.errors import ErrorAnalysis, ErrorCase, ErrorQuestion
from alembert.inspect.tables import SCORE_HEADER, SCORE_SHARES, Grouping, Table, score_cells
from alembert.tasks.classify.data import ClassifyExample, convert_label, find_sentence_spans
from alembert.tasks.classify.scores import ClassifyAnswer, ClassifyPrediction
from alembert.tasks.metrics import Tally

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

_CHARACTERS: Final = (0, 50, 100, 200, 400, 800, 1600, 3200)
_WINDOWS: Final = (1, 2, 3, 5, 10)
_CONFIDENCES: Final = (0.0, 0.5, 0.7, 0.9, 0.99)
_QUANTILES: Final = 5
"""Groups of equal size that right numbers are sorted into."""


@dataclass(frozen=True, slots=True)
class _ScoredPrediction:
    """One prediction beside the right answer."""

    id: str
    where: str
    texts: tuple[str, ...]
    gold: LabelValue
    prediction: ClassifyAnswer
    windows: int
    question: ErrorQuestion
    """What is asked if it is wrong, without the label."""

    @property
    def right_labels(self) -> frozenset[str]:
        return frozenset(self.gold if isinstance(self.gold, tuple) else (str(self.gold),))

    @property
    def labels(self) -> frozenset[str]:
        one = (self.prediction.label,) if self.prediction.label is not None else ()
        return frozenset(self.prediction.labels if self.prediction.labels is not None else one)

    @property
    def error(self) -> float:
        """How wrong it is: 0 or 1, or the distance of a number."""
        if self.prediction.value is not None:
            return abs(self.prediction.value - self.number)
        return float(self.right_labels != self.labels)

    @property
    def confidence(self) -> float:
        return self.prediction.score or 0.0

    @property
    def number(self) -> float:
        return cast(float, self.gold)


def analyse_errors(
    model: TaskModel,
    examples: Sequence[ClassifyExample],
    predictions: Sequence[ClassifyPrediction],
    questions: Sequence[ErrorQuestion] | None = None,
) -> ErrorAnalysis:
    """Sort the errors of a classifier; `questions` are those of examples that stand for examples of another task."""
    task: Any = model.task
    asked = questions or [ErrorQuestion(example=example) for example in examples]
    scored = [
        answer
        for example, prediction, question in zip(examples, predictions, asked, strict=True)
        for answer in _answers(example, prediction, question, kind=task.kind)
    ]
    wrong = sorted(
        (answer for answer in scored if answer.error), key=lambda answer: (-answer.error, -answer.confidence)
    )
    is_number = task.kind == "number"
    tables = _number_tables(scored) if is_number else _label_tables(scored, task.labels)
    summary = (
        f"the guesses for {len(scored):,} texts are off by {fmean(answer.error for answer in scored):.4g} on average"
        if is_number
        else f"{len(wrong):,} of {len(scored):,} answers are wrong"
    )
    return ErrorAnalysis(
        summary=summary,
        tables=tuple(tables),
        cases=tuple(map(_case, wrong)),
        totals={} if is_number else {"answers": len(scored), "wrong answers": len(wrong)},
        confusion=_confusion_matrix(scored, task.labels) if task.kind == "single" else None,
    )


def _answers(
    example: ClassifyExample, prediction: ClassifyPrediction, question: ErrorQuestion, *, kind: Any
) -> Iterator[_ScoredPrediction]:
    spans = find_sentence_spans(example) if example.is_document else None
    for index, (gold, answer) in enumerate(zip(example.golds, prediction.answers, strict=True)):
        fitting = convert_label(gold, kind)
        if fitting is not None:
            texts = (example.texts[index],) if example.is_document else example.texts
            where, windows = example.line_of(index), prediction.coverage.windows
            asked = replace(question, span=spans[index]) if spans else question
            yield _ScoredPrediction(example.id, where, texts, fitting, answer, windows, asked)


# -- tables


def _label_tables(scored: Sequence[_ScoredPrediction], labels: Sequence[str]) -> Iterator[Table]:
    yield from _confusions(scored)
    yield _by_label(scored, labels)
    names = [_confidence_name(index) for index in range(len(_CONFIDENCES))]
    yield _group_table(Grouping("by_confidence", "By confidence", "confidence", names, _confidence), scored)
    for grouping in _GROUPINGS:
        yield _group_table(grouping, scored)


def _number_tables(scored: Sequence[_ScoredPrediction]) -> Iterator[Table]:
    ordered = sorted(scored, key=lambda answer: answer.number)
    size = -(-len(ordered) // _QUANTILES)
    rows = []
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        name = f"{part[0].number:g} to {part[-1].number:g}"
        rows.append((name, len(part), fmean(answer.error for answer in part)))
    header = ("right value", "answers", "mean error")
    yield Table(name="by_value", title="By the right value", header=header, rows=tuple(rows))
    for grouping in _GROUPINGS:
        yield _group_table(grouping, scored)


def _group_table(grouping: Grouping[_ScoredPrediction], scored: Sequence[_ScoredPrediction]) -> Table:
    is_number = any(answer.prediction.value is not None for answer in scored)
    errors: dict[str, list[float]] = {}
    for answer in scored:
        errors.setdefault(grouping.group(answer), []).append(answer.error)
    rows = []
    for group in (group for group in grouping.groups if group in errors):
        mean = fmean(errors[group])
        rows.append((group, len(errors[group]), mean if is_number else 1 - mean))
    header = (grouping.unit, "answers", "mean error" if is_number else "accuracy")
    shares = {} if is_number else {"accuracy": "answers"}
    return Table(name=grouping.name, title=grouping.title, header=header, rows=tuple(rows), shares=shares)


def _confusion_matrix(scored: Sequence[_ScoredPrediction], labels: Sequence[str]) -> ConfusionMatrix:
    pairs = Counter((*answer.right_labels, *answer.labels) for answer in scored)
    return ConfusionMatrix(
        labels=tuple(labels), counts=tuple(tuple(pairs[gold, guess] for guess in labels) for gold in labels)
    )


def _confusions(scored: Sequence[_ScoredPrediction]) -> Iterator[Table]:
    counts = Counter(
        (gold, guess)
        for answer in scored
        for gold in answer.right_labels - answer.labels
        for guess in answer.labels - answer.right_labels
    )
    if counts:
        rows = tuple(
            (gold, guess, count)
            for (gold, guess), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )
        header = ("gold", "guess", "count")
        yield Table(name="confusions", title="Labels taken for others", header=header, rows=rows)


def _by_label(scored: Sequence[_ScoredPrediction], labels: Sequence[str]) -> Table:
    rows = []
    for label in labels:
        tp = sum(label in answer.right_labels and label in answer.labels for answer in scored)
        gold = sum(label in answer.right_labels for answer in scored)
        guess = sum(label in answer.labels for answer in scored)
        rows.append((gold, (label, *score_cells(Tally(tp=tp, fp=guess - tp, fn=gold - tp)))))
    rows.sort(key=lambda row: -row[0])
    return Table(
        name="by_label",
        title="By label, the most frequent first",
        header=("label", *SCORE_HEADER),
        rows=tuple(row for _, row in rows),
        shares=SCORE_SHARES,
    )


def _confidence(answer: _ScoredPrediction) -> str:
    return _confidence_name(max(index for index, low in enumerate(_CONFIDENCES) if answer.confidence >= low))


def _confidence_name(index: int) -> str:
    high = _CONFIDENCES[index + 1] if index + 1 < len(_CONFIDENCES) else 1
    return f"{_CONFIDENCES[index]:g} to {high:g}"


_GROUPINGS: Final[tuple[Grouping[_ScoredPrediction], ...]] = (
    Grouping.by_range(
        "by_text_length",
        "By length of the text",
        "characters",
        _CHARACTERS,
        lambda answer: sum(map(len, answer.texts)),
    ),
    Grouping.by_range(
        "by_windows",
        "By windows that the example was read through",
        "windows",
        _WINDOWS,
        lambda answer: answer.windows,
    ),
)


# -- examples


def _case(answer: _ScoredPrediction) -> ErrorCase:
    if answer.prediction.value is not None:
        problem = f"right: {answer.number:g}; guessed: {answer.prediction.value:.4g}"
    else:
        right, guess = (", ".join(sorted(side)) or "(none)" for side in (answer.right_labels, answer.labels))
        problem = f"right: {right}; guessed: {guess} ({answer.confidence:.2f})"
    asked = replace(answer.question, label=_asked_label(answer))
    return ErrorCase(id=answer.id, where=answer.where, problem=problem, texts=answer.texts, question=asked)


def _asked_label(answer: _ScoredPrediction) -> str | None:
    """Ask about a label that is given and wrong, or one that is missing; numbers have none."""
    if answer.prediction.value is not None:
        return None
    sides = (answer.labels - answer.right_labels, answer.right_labels - answer.labels)
    return next((label for side in sides for label in sorted(side)), None)
