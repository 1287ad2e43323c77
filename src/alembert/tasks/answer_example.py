"""Examples of the task `answer`: questions with their passages, read from files or given as texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembert.corpus.examples.question_layouts import PASSAGE_FIELDS, QUESTION_FIELDS
from alembert.corpus.examples.questions import GoldAnswer, Question, read_questions
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.data.order import stable_hash
from alembert.errors import BadInput
from alembert.tasks.answer_settings import AnswerSettings, Kind
from alembert.tasks.example import Example, Reading


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
    def kind(self) -> Kind | None:
        """What the right answer is; none: it is not known."""
        return "label" if self.label is not None else None if self.answers is None else "span"

    @property
    def kin(self) -> int | str:
        return stable_hash("passage", self.passage) if self.article is None else self.article

    @property
    def rights(self) -> list[str]:
        """The texts of the right answers."""
        return [answer.text for answer in self.answers or ()]

    def taught(self) -> GoldAnswer | None:
        """Give the answer to learn: of those whose place is known the one that most people gave, or the first."""
        known = [answer for answer in self.answers or () if answer.spans]
        return Counter(known).most_common(1)[0][0] if known else None


def read_examples(files: Sequence[Path], settings: AnswerSettings, options: ReadOptions) -> Reading[AnswerExample]:
    """Read files of questions; where some have answers and some labels, those with labels are set aside."""
    found = [read_questions(path, options) for path in files]
    examples = [_example(question) for each in found for question in each.questions]
    kind = _kind(examples, settings)
    others = [
        _other(question, example, kind)
        for question, example in zip((q for each in found for q in each.questions), examples, strict=True)
        if example.kind != kind
    ]
    aside: list[SetAside] = [item for each in found for item in each.set_aside]
    remarks: list[Remark] = [item for each in found for item in each.remarks]
    kept = tuple(example for example in examples if example.kind == kind)
    return Reading(kept, (*aside, *others), tuple(remarks))


def _kind(examples: Sequence[AnswerExample], settings: AnswerSettings) -> Kind:
    if settings.kind != "auto":
        return settings.kind
    return "span" if any(example.kind == "span" for example in examples) else "label"


def _other(question: Question, example: AnswerExample, kind: Kind) -> SetAside:
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


def examples_of(texts: Sequence[str], ids: Sequence[str] | None) -> list[AnswerExample]:
    """Make examples without answers of texts `question<TAB>passage`, or of JSON objects with `question` and `context`."""
    names = ids or [f"question-{count}" for count in range(1, len(texts) + 1)]
    return [AnswerExample(id=name, texts=_sides(text)) for name, text in zip(names, texts, strict=True)]


def examples_of_records(records: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> list[AnswerExample]:
    """Make examples without answers of dicts with `question` and `passage` (or `context`)."""
    return [AnswerExample(id=name, texts=_sides_of(record)) for name, record in zip(ids, records, strict=True)]


def _sides(text: str) -> tuple[str, ...]:
    record = _record(text)
    return tuple(text.split("\t", 1)) if record is None else _sides_of(record)


def _sides_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    sides = [_named(record, each) for each in (QUESTION_FIELDS, PASSAGE_FIELDS)]
    return tuple(side for side in sides if isinstance(side, str))


def _named(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if name in record), None)


def _record(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and any(name in found for name in QUESTION_FIELDS) else None


def check_examples(examples: Sequence[AnswerExample], kind: Kind) -> None:
    """Refuse questions without a passage, and right answers of another kind."""
    for example in examples:
        where = example.where or f"Example {example.id}"
        if len(example.texts) != 2 or not all(text.strip() for text in example.texts):
            raise BadInput(
                f"{where} is not a question with its passage. Give both, parted by a tab: question<TAB>passage; or as a "
                "JSON object with `question` and `context`."
            )
        if example.kind not in (None, kind):
            found = "a label" if example.kind == "label" else "an answer in its passage, or none there"
            expected = "labels" if kind == "label" else "answers in the passage"
            raise BadInput(
                f"{where} has {found}, and this task gives {expected}. Use data of the same kind, or name the kind with "
                "`kind` under [task] when you fine-tune."
            )
