"""Errors of the task `classify`: what is taken for what, and by what errors gather; the most confident errors first.

An answer is what is said of one text, pair, or sentence of a document. Of several labels an answer is right if all are.
Numbers are never quite right: of them the mean absolute error takes the place of accuracy, and the largest comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, cast

from alembert.corpus.examples.labelled import LabelValue
from alembert.inspect.errors import ErrorAnalysis, ErrorCase
from alembert.inspect.tables import SCORE_HEADER, Grouping, Table, score_cells
from alembert.tasks.classify.data import ClassifyExample, convert_label
from alembert.tasks.classify.decode import ClassifyAnswer, ClassifyPrediction
from alembert.tasks.metrics.tally import Tally

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

_CHARACTERS: Final = (0, 50, 100, 200, 400, 800, 1600, 3200)
_WINDOWS: Final = (1, 2, 3, 5, 10)
_CONFIDENCES: Final = (0.0, 0.5, 0.7, 0.9, 0.99)
_QUANTILES: Final = 5
"""Groups of equal size that right numbers are sorted into."""


@dataclass(frozen=True, slots=True)
class _ScoredPrediction:
    """One answer beside the right one."""

    id: str
    where: str
    texts: tuple[str, ...]
    gold: LabelValue
    answer: ClassifyAnswer
    windows: int

    @property
    def right_labels(self) -> frozenset[str]:
        return frozenset(self.gold if isinstance(self.gold, tuple) else (str(self.gold),))

    @property
    def labels(self) -> frozenset[str]:
        one = (self.answer.label,) if self.answer.label is not None else ()
        return frozenset(self.answer.labels if self.answer.labels is not None else one)

    @property
    def error(self) -> float:
        """How wrong it is: 0 or 1, or the distance of a number."""
        if self.answer.value is not None:
            return abs(self.answer.value - self.number)
        return float(self.right_labels != self.labels)

    @property
    def sure(self) -> float:
        return self.answer.score or 0.0

    @property
    def number(self) -> float:
        return cast(float, self.gold)


def analyse_errors(
    model: TaskModel, examples: Sequence[ClassifyExample], predictions: Sequence[ClassifyPrediction]
) -> ErrorAnalysis:
    """Sort the errors of a classifier."""
    task: Any = model.task
    found = [each for pair in zip(examples, predictions, strict=True) for each in _answers(*pair, kind=task.kind)]
    wrong = sorted((each for each in found if each.error), key=lambda each: (-each.error, -each.sure))
    is_number = task.kind == "number"
    tables = _number_tables(found) if is_number else _label_tables(found, task.labels)
    told = (
        f"the guesses for {len(found):,} texts are off by {fmean(each.error for each in found):.4g} on average"
        if is_number
        else f"{len(wrong):,} of {len(found):,} answers are wrong"
    )
    return ErrorAnalysis(summary=told, tables=tuple(tables), cases=tuple(map(_case, wrong)))


def _answers(example: ClassifyExample, prediction: ClassifyPrediction, *, kind: Any) -> Iterator[_ScoredPrediction]:
    for place, (gold, answer) in enumerate(zip(example.golds, prediction.answers, strict=True)):
        fitting = convert_label(gold, kind)
        if fitting is not None:
            texts = (example.texts[place],) if example.is_document else example.texts
            where = example.line_of(place)
            yield _ScoredPrediction(example.id, where, texts, fitting, answer, prediction.coverage.windows)


# -- tables


def _label_tables(found: Sequence[_ScoredPrediction], labels: Sequence[str]) -> Iterator[Table]:
    yield from _confusions(found)
    yield _by_label(found, labels)
    names = [_confidence_name(place) for place in range(len(_CONFIDENCES))]
    yield _group_table(Grouping("by_confidence", "By confidence", "confidence", names, _confidence), found)
    for sorting in _GROUPINGS:
        yield _group_table(sorting, found)


def _number_tables(found: Sequence[_ScoredPrediction]) -> Iterator[Table]:
    ordered = sorted(found, key=lambda each: each.number)
    size = -(-len(ordered) // _QUANTILES)
    rows = []
    for start in range(0, len(ordered), size):
        part = ordered[start : start + size]
        name = f"{part[0].number:g} to {part[-1].number:g}"
        rows.append((name, len(part), fmean(each.error for each in part)))
    header = ("right value", "answers", "mean error")
    yield Table(name="by_value", title="By the right value", header=header, rows=tuple(rows))
    for sorting in _GROUPINGS:
        yield _group_table(sorting, found)


def _group_table(sorting: Grouping[_ScoredPrediction], found: Sequence[_ScoredPrediction]) -> Table:
    is_number = any(each.answer.value is not None for each in found)
    errors: dict[str, list[float]] = {}
    for each in found:
        errors.setdefault(sorting.group(each), []).append(each.error)
    rows = []
    for group in (group for group in sorting.groups if group in errors):
        mean = fmean(errors[group])
        rows.append((group, len(errors[group]), mean if is_number else 1 - mean))
    header = (sorting.unit, "answers", "mean error" if is_number else "accuracy")
    return Table(name=sorting.name, title=sorting.title, header=header, rows=tuple(rows))


def _confusions(found: Sequence[_ScoredPrediction]) -> Iterator[Table]:
    counts = Counter(
        (gold, guess)
        for each in found
        for gold in each.right_labels - each.labels
        for guess in each.labels - each.right_labels
    )
    if counts:
        rows = tuple(
            (gold, guess, count)
            for (gold, guess), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )
        header = ("gold", "guess", "count")
        yield Table(name="confusions", title="Labels taken for others", header=header, rows=rows)


def _by_label(found: Sequence[_ScoredPrediction], labels: Sequence[str]) -> Table:
    rows = []
    for label in labels:
        tp = sum(label in each.right_labels and label in each.labels for each in found)
        gold = sum(label in each.right_labels for each in found)
        guess = sum(label in each.labels for each in found)
        rows.append((gold, (label, *score_cells(Tally(tp=tp, fp=guess - tp, fn=gold - tp)))))
    rows.sort(key=lambda row: -row[0])
    return Table(
        name="by_label",
        title="By label, the most frequent first",
        header=("label", *SCORE_HEADER),
        rows=tuple(row for _, row in rows),
    )


def _confidence(each: _ScoredPrediction) -> str:
    return _confidence_name(max(place for place, low in enumerate(_CONFIDENCES) if each.sure >= low))


def _confidence_name(place: int) -> str:
    high = _CONFIDENCES[place + 1] if place + 1 < len(_CONFIDENCES) else 1
    return f"{_CONFIDENCES[place]:g} to {high:g}"


_GROUPINGS: Final[tuple[Grouping[_ScoredPrediction], ...]] = (
    Grouping.by_range(
        "by_text_length",
        "By length of the text",
        "characters",
        _CHARACTERS,
        lambda each: sum(map(len, each.texts)),
    ),
    Grouping.by_range(
        "by_windows",
        "By windows that the example was read through",
        "windows",
        _WINDOWS,
        lambda each: each.windows,
    ),
)


# -- examples


def _case(each: _ScoredPrediction) -> ErrorCase:
    if each.answer.value is not None:
        told = f"right: {each.number:g}; guessed: {each.answer.value:.4g}"
    else:
        right, guess = (", ".join(sorted(side)) or "(none)" for side in (each.right_labels, each.labels))
        told = f"right: {right}; guessed: {guess} ({each.sure:.2f})"
    return ErrorCase(id=each.id, where=each.where, told=told, texts=each.texts)
