"""Errors of the task `answer`: a wrong span, wrong borders or none; the most confident first.

Questions with labels are analysed as pairs of `classify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from alembert.html import EntityMark
from alembert.inspect.errors import ErrorAnalysis, ErrorCase, ErrorQuestion, classify
from alembert.inspect.tables import Table
from alembert.tasks.answer.data import AnswerExample
from alembert.tasks.answer.scores import SpanAnswerPrediction
from alembert.tasks.answer.task import LabelAnswerTask, to_classify_examples

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

_KINDS: Final = {
    "right": "word for word",
    "borders": "overlaps with a right answer in words",
    "place": "has no word in common with a right answer",
    "invented": "answered, though the passage has no answer",
    "silent": "not answered, though the passage has an answer",
}


@dataclass(frozen=True, slots=True)
class _ScoredAnswer:
    """A question beside its answer."""

    example: AnswerExample
    guess: SpanAnswerPrediction
    exact: float
    f1: float

    @property
    def kind(self) -> str:
        if self.exact == 1:
            return "right"
        if not self.example.answers:
            return "invented"
        if self.guess.answer is None:
            return "silent"
        return "borders" if self.f1 > 0 else "place"


def analyse_errors(model: TaskModel, examples: Sequence[AnswerExample], predictions: Sequence[Any]) -> ErrorAnalysis:
    """Sort the errors of a model that answers questions."""
    task: Any = model.task
    if isinstance(task, LabelAnswerTask):
        questions = [ErrorQuestion(example=example) for example in examples]
        return classify.analyse_errors(
            model.with_task(task.inner), to_classify_examples(examples), predictions, questions
        )
    answers = [
        _ScoredAnswer(example, guess, *task.script.best(example.gold_texts, guess.text))
        for example, guess in zip(examples, predictions, strict=True)
    ]
    wrong = sorted((answer for answer in answers if answer.exact < 1), key=lambda answer: -answer.guess.score)
    unreachable = sum(answer.guess.coverage.unreachable for answer in answers)
    return ErrorAnalysis(
        summary=f"{len(wrong):,} of {len(answers):,} questions are not answered word for word",
        tables=(
            _by_kind(answers),
            _group_table(answers, "by_windows", "By windows of the passage", "windows", _windows),
            _group_table(answers, "by_first_word", "By the first word of the question", "word", _first_word),
        ),
        cases=tuple(map(_case, wrong)),
        totals={"questions": len(answers), "not word for word": len(wrong)},
        notes=(f"{unreachable:,} right answers are out of the model's reach",) if unreachable else (),
    )


def _by_kind(answers: Sequence[_ScoredAnswer]) -> Table:
    kinds = [answer.kind for answer in answers]
    rows = tuple((name, kinds.count(name), meaning) for name, meaning in _KINDS.items() if name in kinds)
    header = ("kind", "questions", "what")
    title = "What became of the questions"
    return Table(name="by_kind", title=title, header=header, rows=rows, stacked=("questions",), undrawn=("right",))


def _group_table(
    answers: Sequence[_ScoredAnswer], name: str, title: str, unit: str, value: Callable[[_ScoredAnswer], str]
) -> Table:
    """Score groups of questions, the ten largest."""
    groups: dict[str, list[_ScoredAnswer]] = {}
    for answer in answers:
        groups.setdefault(value(answer), []).append(answer)
    largest = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:10]
    rows = tuple((key, len(part), _mean([e.exact for e in part]), _mean([e.f1 for e in part])) for key, part in largest)
    header = (unit, "questions", "exact", "f1")
    return Table(name=name, title=title, header=header, rows=rows, shares={"exact": "questions"})


def _windows(answer: _ScoredAnswer) -> str:
    return str(answer.guess.coverage.windows)


def _first_word(answer: _ScoredAnswer) -> str:
    return answer.example.question.split()[0].lower()[:20]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _case(answer: _ScoredAnswer) -> ErrorCase:
    right = " | ".join(dict.fromkeys(answer.example.gold_texts)) or "(no answer)"
    problem = (
        f"{answer.kind}: right: {right}; answered: {answer.guess.text or '(no answer)'} ({answer.guess.score:.2f})"
    )
    example = answer.example
    return ErrorCase(
        id=example.id,
        where=example.where,
        problem=problem,
        texts=(example.passage, example.question),
        marks=tuple(_marks(answer)),
        question=ErrorQuestion(example=example),
    )


def _marks(answer: _ScoredAnswer) -> Iterator[EntityMark]:
    gold = {span for right in answer.example.answers or () for span in right.spans[:1]}
    yield from (EntityMark(start, end, "answer", "gold", answer.kind) for start, end in sorted(gold))
    guess = answer.guess.answer
    if guess is not None:
        yield EntityMark(guess.start, guess.end, "answer", "guess", answer.kind, guess.score)
