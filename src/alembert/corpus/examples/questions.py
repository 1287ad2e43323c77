"""Questions on passages, from files: with answers in the passage, without one, or with yes, no or maybe.

In: SQuAD (1 and 2, also in Chinese and in the layout of Hugging Face), the first layout of CMRC 2018, BioASQ (factoid
and yes/no questions with snippets), PubMedQA, or plain records {question, context, answers | answer} as JSON lines, a
JSON array, a table or Parquet; the layout is detected from the content. Out: questions with their answers at character
offsets of the passage, and what was wrong. The snippets of one question, and the parts of one abstract, are joined by
line breaks. A file is held as a whole.

A right offset is used. A wrong one is corrected, and counted, if the text of the answer occurs once in the passage, or
once nearer to the offset than anywhere else. An answer without an offset has all spans at which its text occurs between
words, because it is not known which one is meant. An answer that is not in its passage is kept, since it counts as
missed in scores, and reported with its position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from alembert.corpus.examples.question_layouts import RawQuestion, read_raw_questions
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, Remark, SetAside
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

Span = tuple[int, int]
SpanOrigin = Literal["stated", "mended", "looked up", "unclear", "absent"]


@dataclass(frozen=True, slots=True)
class AnswerSpans:
    """The spans of an answer in its passage: several if the file does not say which, none if it is not found."""

    spans: tuple[Span, ...]
    how: SpanOrigin


def find_answer_spans(text: str, start: int | None, passage: str) -> AnswerSpans:
    """Find an answer in its passage.

    >>> find_answer_spans("fever", 3, "No fever."), find_answer_spans("fever", 0, "No fever.")
    (AnswerSpans(spans=((3, 8),), how='stated'), AnswerSpans(spans=((3, 8),), how='mended'))
    """
    if start is not None and start >= 0 and text and passage.startswith(text, start):
        return AnswerSpans((_trimmed(text, start),), "stated")
    spans = _occurrences(text, passage)
    if not spans:
        return AnswerSpans((), "absent")
    if start is None:
        return AnswerSpans(tuple(spans), "looked up")
    nearest = _nearest(spans, start, len(passage))
    return AnswerSpans((), "unclear") if nearest is None else AnswerSpans((nearest,), "mended")


def _trimmed(text: str, start: int) -> Span:
    begin = start + len(text) - len(text.lstrip())
    return begin, begin + len(text.strip())


def _nearest(spans: list[Span], start: int, length: int) -> Span | None:
    if len(spans) == 1:
        return spans[0]
    ranked = sorted(spans, key=lambda span: abs(span[0] - start))
    is_clear = 0 <= start < length and abs(ranked[0][0] - start) < abs(ranked[1][0] - start)
    return ranked[0] if is_clear else None


def _occurrences(text: str, passage: str) -> list[Span]:
    """Find a text exactly; failing that, with other white space or in another case."""
    words = text.split()
    if not words:
        return []
    exact = _between_words(re.escape(text.strip()), text.strip())
    loose = _between_words(r"\s+".join(map(re.escape, words)), text.strip())
    patterns = (re.compile(exact), re.compile(loose), re.compile(loose, re.IGNORECASE))
    for pattern in patterns:
        if spans := [match.span() for match in pattern.finditer(passage)]:
            return spans
    return []


def _between_words(pattern: str, text: str) -> str:
    """Let a pattern match whole words alone; Chinese has no such borders."""
    before = r"(?<![A-Za-z0-9])" if _is_plain(text[0]) else ""
    after = r"(?![A-Za-z0-9])" if _is_plain(text[-1]) else ""
    return f"{before}{pattern}{after}"


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


YES_NO_MAYBE: Final = ("yes", "no", "maybe")
"""Answers that are labels, unless an offset places them in the passage."""
_MENDED_REMARK: Final = "answers whose stated offset is wrong were found where their text stands"
_LOOKED_UP_REMARK: Final = "answers without an offset were found by their text"
_EMPTY_LIST_REMARK: Final = "questions with an empty list of answers count as unanswerable"
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False, "": None}
_MISSED: Final = "the question is not learnt from, and counts as missed in scores"
_OTHERS: Final = "the question is learnt from its other answers"


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A right answer to a question."""

    text: str
    spans: tuple[Span, ...]
    """Its span in the passage, or several possible ones; empty if it was not found."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question on a passage, with answers, without one, or with a label."""

    id: str
    question: str
    passage: str
    source: str
    position: str
    """Where in the file: "line 3", "question 7"."""
    answers: tuple[GoldAnswer, ...] = ()
    """Answers of different people; if empty, and without a label, the passage does not answer the question."""
    label: str | None = None
    article: str | None = None
    """The article of the passage."""

    @property
    def where(self) -> str:
        """File and line, as `file:3` where there are lines."""
        kind, _, number = self.position.partition(" ")
        return f"{self.source}:{number}" if kind == "line" else f"{self.source}, {self.position} ({self.id})"


@dataclass(frozen=True)
class QuestionFile:
    """The questions of a file, and what was set aside."""

    questions: tuple[Question, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


def read_questions(path: str | Path, options: ReadOptions | None = None) -> QuestionFile:
    """Read the questions of a file; what cannot be used is set aside, and the next question is read."""
    source = SourceFile(Path(path), options or ReadOptions())
    questions: list[Question] = []
    aside: list[SetAside] = []
    try:
        for item in _items(source):
            if isinstance(item, SetAside):
                aside.append(item)
            else:
                questions.append(item)
    except DamagedFile as damage:
        after = "" if source.position == "file" else "after "
        aside.append(source.set_aside(str(damage), position=after + source.position, kind="file"))
    finally:
        source.close()
    return QuestionFile(tuple(questions), tuple(aside), tuple(source.remarks()))


def _items(source: SourceFile) -> Iterator[Question | SetAside]:
    for number, raw in enumerate(read_raw_questions(source), start=1):
        if isinstance(raw, SetAside):
            yield raw
            continue
        name = raw.id or f"{source.stem}-{number}"
        position = raw.position if raw.position.startswith("line ") else f"question {number}"
        try:
            question, problems = _check_question(raw, name, position, source)
        except BadInput as wrong:
            yield source.set_aside(str(wrong), name, position)
        else:
            yield question
            yield from problems


def _check_question(raw: RawQuestion, name: str, position: str, source: SourceFile) -> tuple[Question, list[SetAside]]:
    """Return a question that can be used, and what is wrong with its answers."""
    question_text = _text(raw.question, "there is no question")
    passage = _text(raw.passage, "the question has no passage")
    question = Question(name, question_text, passage, source.name, position, article=raw.article)
    stated = list(_read_answers(raw.answers))
    label = _label(raw, stated)
    if label is not None:
        return replace(question, label=label), []
    is_impossible = _truth(raw.is_impossible)
    if raw.answers is None and not is_impossible:
        raise BadInput("the question has no answer, and is not marked as unanswerable")
    if is_impossible and stated:
        raise BadInput("the question is marked as unanswerable, and has answers")
    if not stated:
        source.tally[_EMPTY_LIST_REMARK] += is_impossible is None
        return question, []
    located = [_locate_answer(text, start, passage, source) for text, start in stated]
    has_span = any(answer.spans for answer, _ in located)
    reasons = {} if raw.any_of and has_span else dict.fromkeys(reason for _, reason in located if reason)
    effect = _OTHERS if has_span else _MISSED
    problems = [source.set_aside(f"{problem}: {effect}", name, position, "annotation") for problem in reasons]
    return replace(question, answers=tuple(answer for answer, _ in located)), problems


def _text(value: Any, missing: str) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = "\n".join(dict.fromkeys(value))
    if not isinstance(value, str) or not value.strip():
        raise BadInput(missing)
    return value


def _label(raw: RawQuestion, stated: list[tuple[str, int | None]]) -> str | None:
    """Read a label from its own field, or from a single answer that is yes, no or maybe."""
    if raw.label is not None:
        if not isinstance(raw.label, str) or not raw.label.strip():
            raise BadInput("the label of the question is not a word; expected one such as yes or no")
        return _decision(raw.label) or raw.label.strip()
    if len(stated) == 1 and stated[0][1] is None:
        return _decision(stated[0][0])
    return None


def _decision(text: str) -> str | None:
    spelt = text.strip().lower()
    return spelt if spelt in YES_NO_MAYBE else None


def _truth(value: Any) -> bool | None:
    """Parse whether a question has no answer: a JSON value, or a word or number in a table."""
    if value is None or isinstance(value, bool):
        return value
    spelt = str(value).strip().lower()
    if spelt not in _TRUTHS:
        raise BadInput("the is_impossible of the question is neither true nor false")
    return _TRUTHS[spelt]


def _read_answers(value: Any) -> Iterator[tuple[str, int | None]]:
    """Yield text and offset of each answer, in any of the forms."""
    if value is None:
        return
    if isinstance(value, str):
        yield value, None
    elif isinstance(value, list):
        for part in value:
            yield from _read_answers(part)
    elif isinstance(value, Mapping) and isinstance(value.get("text"), list):
        yield from _zip_answer_columns(value["text"], value.get("answer_start"))
    elif isinstance(value, Mapping) and isinstance(value.get("text"), str):
        yield value["text"], _offset(value.get("answer_start"))
    else:
        raise BadInput("an answer is neither a text nor a text with its answer_start")


def _zip_answer_columns(texts: list[Any], starts: Any) -> Iterator[tuple[str, int | None]]:
    if not isinstance(starts, list) or len(starts) != len(texts) or not all(isinstance(t, str) for t in texts):
        raise BadInput("the answers do not have as many offsets as texts")
    yield from ((text, _offset(start)) for text, start in zip(texts, starts, strict=True))


def _offset(value: Any) -> int | None:
    """Parse a JSON number, or the digits in a table."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, str) or not re.fullmatch(r"\s*(-?[0-9]{1,9})?\s*", value):
        raise BadInput("the answer_start of an answer is not a whole number")
    return int(value) if value.strip() else None


def _locate_answer(text: str, start: int | None, passage: str, source: SourceFile) -> tuple[GoldAnswer, str]:
    """Find an answer in its passage; return also the problem if it was not found."""
    if not text.strip():
        return GoldAnswer(text, ()), "an answer is empty"
    located = find_answer_spans(text, start, passage)
    source.tally[_MENDED_REMARK] += located.how == "mended"
    source.tally[_LOOKED_UP_REMARK] += located.how == "looked up"
    reasons = {
        "absent": "an answer is not in the passage",
        "unclear": "the offset of an answer is wrong, and its text occurs several times in the passage",
    }
    return GoldAnswer(text, located.spans), reasons.get(located.how, "")
