"""Settings and examples of the task `answer`: questions with their passages, read from files or given as texts.

When examples are rewritten, the answers in a passage stay as they are, and are found where they went. An answer may be
known by its text alone, and is then wherever its text stands. If new words made it stand in another place too, or made
its place unclear, the example is not used.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from alembert.corpus.examples.question_layouts import PASSAGE_FIELDS, QUESTION_FIELDS
from alembert.corpus.examples.questions import GoldAnswer, Question, find_answer_spans, read_questions
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.data.order import stable_hash
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Edits, Example, P, ReadResult, Rewriter, apply_edits, collect
from alembert.tasks.settings import check_choices
from alembert.tasks.task import Task
from alembert.text.replacement import EditedText, find_editable_spans
from alembert.text.sentences import Span

AnswerKind = Literal["span", "label"]
"""Answers are stretches of the passage, or labels such as yes, no and maybe."""
ANSWER_METRICS: Final[dict[str, tuple[str, ...]]] = {
    "span": ("f1", "exact", "mrr", "strict_accuracy", "lenient_accuracy"),
    "label": ("accuracy", "macro_f1"),
}
"""Kind -> the measures that models can be chosen by, the usual one first."""
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "kind": ("auto", *ANSWER_METRICS),
    "script": ("auto", "squad", "cmrc"),
    "main": ("auto", *(name for names in ANSWER_METRICS.values() for name in names)),
}
_MINIMUMS: Final = {"max_length": 16, "overlap": 0, "max_question_length": 1, "max_answer_length": 1, "n_best": 1}


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """Settings of question answering."""

    kind: Literal["auto", "span", "label"] = "auto"
    """span (extractive) or label (yes, no, maybe); auto: detected from the training data."""
    script: Literal["auto", "squad", "cmrc"] = "auto"
    """Script whose metric is used: squad (English words) or cmrc (Chinese characters); auto: detected from the questions."""
    main: str = "auto"
    """Metric for model selection; auto: f1 for span, accuracy for label."""
    max_length: int = 384
    """Maximum tokens of a window, question and special tokens included; longer passages are read in several windows."""
    overlap: int = 128
    """Tokens that neighbouring windows of a passage share."""
    max_question_length: int = 64
    """Maximum tokens of a question; truncated text is reported."""
    max_answer_length: int = 30
    """Maximum tokens of a predicted answer."""
    n_best: int = 20
    """Number of best start and end positions that are combined, and of answers that are kept."""
    null_threshold: float | None = None
    """Predict no answer if its score exceeds the best answer's by this margin; none: tuned on the development data."""

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES)
        for name, least in _MINIMUMS.items():
            if getattr(self, name) < least:
                raise BadSetting(f"`{name}` of the task is {getattr(self, name)}; expected {least} or more.")
        if self.overlap > self.max_length // 2:
            raise BadSetting(
                f"`overlap` of the task is {self.overlap}; expected 0 to half of `max_length` ({self.max_length // 2})."
            )
        if self.kind != "auto" and self.main not in ("auto", *ANSWER_METRICS[self.kind]):
            raise BadSetting(describe_wrong_metric(self.main, self.kind))


def get_main_metric(settings: AnswerSettings, kind: AnswerKind) -> str:
    """Name the measure that models of a kind are chosen by."""
    if settings.main not in ("auto", *ANSWER_METRICS[kind]):
        raise BadSetting(describe_wrong_metric(settings.main, kind))
    return ANSWER_METRICS[kind][0] if settings.main == "auto" else settings.main


def describe_wrong_metric(main: str, kind: str) -> str:
    return f"`main` of the task is {main}, and its kind is {kind}; expected one of {', '.join(ANSWER_METRICS[kind])}."


@dataclass(frozen=True, kw_only=True)
class AnswerExample(Example):
    """A question and its passage, with what is right if it is known."""

    answers: tuple[GoldAnswer, ...] | None = None
    """Right answers in the passage; empty: it has none; none: they are not known, or the answer is a label."""
    label: str | None = None
    article: str | None = None

    @property
    def question(self) -> str:
        return self.texts[0]

    @property
    def passage(self) -> str:
        return self.texts[1] if len(self.texts) > 1 else ""

    @property
    def kind(self) -> AnswerKind | None:
        """What the right answer is; none: it is not known."""
        return "label" if self.label is not None else None if self.answers is None else "span"

    @property
    def group_id(self) -> int | str:
        return stable_hash("passage", self.passage) if self.article is None else self.article

    @property
    def gold_texts(self) -> list[str]:
        """The texts of the right answers."""
        return [answer.text for answer in self.answers or ()]

    def training_answer(self) -> GoldAnswer | None:
        """Choose the answer to learn: of those whose place is known the one that most people gave, or the first."""
        located = [answer for answer in self.answers or () if answer.spans]
        return Counter(located).most_common(1)[0][0] if located else None


def read_examples(files: Sequence[Path], settings: AnswerSettings, options: ReadOptions) -> ReadResult[AnswerExample]:
    """Read files of questions; where some have answers and some labels, those with labels are set aside."""
    questions: list[Question] = []

    def read_file(path: Path) -> Iterator[AnswerExample | Item]:
        file = read_questions(path, options)
        questions.extend(file.questions)
        yield from map(_example, file.questions)
        yield from file.set_aside
        yield from file.remarks

    reading = collect(files, read_file)
    kind = _detect_kind(reading.examples, settings)
    others = [
        _set_aside_other_kind(question, example, kind)
        for question, example in zip(questions, reading.examples, strict=True)
        if example.kind != kind
    ]
    kept = tuple(example for example in reading.examples if example.kind == kind)
    return replace(reading, examples=kept, set_aside=(*reading.set_aside, *others))


def _detect_kind(examples: Sequence[AnswerExample], settings: AnswerSettings) -> AnswerKind:
    if settings.kind != "auto":
        return settings.kind
    return "span" if any(example.kind == "span" for example in examples) else "label"


def _set_aside_other_kind(question: Question, example: AnswerExample, kind: AnswerKind) -> SetAside:
    answer = "a label such as yes or no" if example.kind == "label" else "an answer in its passage, or none there"
    reason = f"the question has {answer}, and `kind` of the task is {kind}"
    return SetAside(question.source, question.position, question.id, reason)


def _example(question: Question) -> AnswerExample:
    return AnswerExample(
        id=question.id,
        texts=(question.question, question.passage),
        where=question.where,
        answers=question.answers if question.label is None else None,
        label=question.label,
        article=question.article,
    )


def _texts_from_record(record: Mapping[str, Any]) -> tuple[str, ...]:
    sides = [_first_value(record, names) for names in (QUESTION_FIELDS, PASSAGE_FIELDS)]
    return tuple(side for side in sides if isinstance(side, str))


def _first_value(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if name in record), None)


def _parse_record(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and any(name in record for name in QUESTION_FIELDS) else None


def check_examples(examples: Sequence[AnswerExample], kind: AnswerKind) -> None:
    """Refuse questions without a passage, and right answers of another kind."""
    for example in examples:
        where = example.where or f"Example {example.id}"
        if len(example.texts) != 2 or not all(text.strip() for text in example.texts):
            raise BadInput(
                f"{where} is not a question with its passage. Give both, parted by a tab: question<TAB>passage; or as a "
                "JSON object with `question` and `context`."
            )
        if example.kind not in (None, kind):
            present = "a label" if example.kind == "label" else "an answer in its passage, or none there"
            expected = "labels" if kind == "label" else "answers in the passage"
            raise BadInput(
                f"{where} has {present}, and this task gives {expected}. Use data of the same kind, or name the kind with "
                "`kind` under [task] when you fine-tune."
            )


class BaseAnswerTask(Task[AnswerExample, P]):
    """What both kinds of the task `answer` share: examples are questions with their passages."""

    name: ClassVar[str] = "answer"
    settings_class: ClassVar[type[Any]] = AnswerSettings
    text_name: ClassVar[str] = "question-"
    settings: AnswerSettings

    @classmethod
    def read(cls, files: Sequence[Path], settings: AnswerSettings, options: ReadOptions) -> ReadResult[AnswerExample]:
        return read_examples(files, settings, options)

    @classmethod
    def example_from_text(cls, text: str, name: str) -> AnswerExample:
        """Make an example of `question<TAB>passage`, or of a JSON object with `question` and `context`."""
        record = _parse_record(text)
        texts = tuple(text.split("\t", 1)) if record is None else _texts_from_record(record)
        return AnswerExample(id=name, texts=texts)

    @classmethod
    def example_from_record(cls, record: Mapping[str, Any], name: str) -> AnswerExample:
        """Make an example of a dict with `question` and `passage` (or `context`)."""
        return AnswerExample(id=name, texts=_texts_from_record(record))


_NOWHERE: Final = -1
"""An offset that says: the answer is in none of the places where its text stands."""


class AnswerRewriter(Rewriter[AnswerExample]):
    """Rewrites questions, and passages around the answers."""

    def editable_spans(self, example: AnswerExample) -> list[list[Span]]:
        fixed = [span for answer in example.answers or () for span in _spans_with_whitespace(answer)]
        return [[(0, len(example.question))], find_editable_spans(len(example.passage), fixed=fixed)]

    def rewrite(self, example: AnswerExample, edits: Edits, name: str) -> AnswerExample | None:
        question, passage = apply_edits(example, edits)
        answers = (
            None if example.answers is None else tuple(_move_answer(answer, passage) for answer in example.answers)
        )
        for answer in answers or ():
            if find_answer_spans(answer.text, _stated_offset(answer), passage.text).spans != answer.spans:
                return None
        return replace(example, id=name, texts=(question.text, passage.text), answers=answers)

    def records(self, example: AnswerExample) -> list[dict[str, Any]]:
        record: dict[str, Any] = {
            "id": example.id,
            "question": example.question,
            "context": example.passage,
        }
        if example.article is not None:
            record["title"] = example.article
        if example.label is not None:
            return [record | {"label": example.label}]
        answers = [{"text": gold.text, "answer_start": _stated_offset(gold)} for gold in example.answers or ()]
        return [record | {"answers": answers, "is_impossible": not answers}]


def _spans_with_whitespace(answer: GoldAnswer) -> list[Span]:
    """List the places of an answer with the white space that its text has around it."""
    before = len(answer.text) - len(answer.text.lstrip())
    after = len(answer.text) - len(answer.text.rstrip())
    return [(max(0, start - before), end + after) for start, end in answer.spans]


def _stated_offset(answer: GoldAnswer) -> int | None:
    """Return the offset to state for an answer: none where it stands in several places."""
    if not answer.spans:
        return _NOWHERE
    return _spans_with_whitespace(answer)[0][0] if len(answer.spans) == 1 else None


def _move_answer(answer: GoldAnswer, passage: EditedText) -> GoldAnswer:
    return replace(answer, spans=tuple(map(passage.map_span, answer.spans)))
