"""Questions with choices from files: exams, continuations, reading comprehension.

In: HEAD-QA (a JSON file of exams), SWAG and its like (tables or JSON with `ending0`, `ending1`, ... or `endings`), and
JSON lines or Parquet with a question, its choices, the answer and perhaps a passage, as in RACE, ARC and MedQA. Out:
questions with any number of choices, of which one is right, each with file and position; and what cannot be used, set
aside with its position. An answer is never guessed: a question whose answer is missing, out of range, or could mean two
choices is set aside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final

from alembert.corpus.examples.labelled import collect_records
from alembert.corpus.examples.records import FieldRecord
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.corpus.readers.records import get_first_field
from alembert.corpus.readers.source import SourceFile
from alembert.errors import BadInput

QUESTION_FIELDS: Final = ("question", "qtext", "sent2", "startphrase", "ctx", "stem")
PASSAGE_FIELDS: Final = ("passage", "article", "context", "sent1")
CHOICE_FIELDS: Final = ("choices", "options", "endings", "answers")
ANSWER_FIELDS: Final = ("answer", "label", "ra", "answerKey", "answer_idx")
ID_FIELDS: Final = ("id", "qid", "example_id", "ind")
_TEXTS: Final = ("text", "atext")
_NAMES: Final = ("label", "aid")
_COLUMN: Final = re.compile(r"(?:ending|choice|option|answer)[ _-]?(\d+)", re.IGNORECASE)
"""A column of a table that holds one choice."""
_SHORT: Final = 4
_EXPECTED: Final = "expected its number from 0, its letter or its text"


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """A question with its choices."""

    question: str
    choices: tuple[str, ...]
    passage: str | None = None
    answer_index: int | None = None
    """The right choice, from 0; None if it is not known."""
    id: str = ""
    source: str = ""
    position: str = ""
    """Where in the file: "line 3", "exam 2013-B, question 7"."""

    @property
    def where(self) -> str:
        return f"{self.source}, {self.position}"


@dataclass(frozen=True)
class ChoiceQuestionFile:
    """The questions of a file, and what was set aside."""

    questions: tuple[ChoiceQuestion, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


def read_choice_questions(path: str | Path, options: ReadOptions | None = None) -> ChoiceQuestionFile:
    """Read the questions of a file; one without a clear right answer is set aside."""
    options = options or ReadOptions()
    source = SourceFile(Path(path), options)
    records: list[FieldRecord] = []
    aside: list[SetAside] = []
    try:
        collect_records(source, options, records, aside)
        questions = list(_questions(records, source, options, aside))
    finally:
        source.close()
    return ChoiceQuestionFile(tuple(questions), tuple(aside), tuple(source.remarks()))


def parse_choice_question(fields: Mapping[str, Any], options: ReadOptions | None = None) -> ChoiceQuestion:
    """Read one question of named fields, such as a JSON object; the answer may be missing.

    >>> parse_choice_question({"question": "Which is a drug?", "choices": ["BRAF", "imatinib"], "answer": "B"}).answer_index
    1
    """
    options = options or ReadOptions()
    fields = _flatten_question(fields)
    names, texts = _choices(fields)
    passage, question = _read_passage_and_question(fields, options)
    answer = get_first_field(fields, (options.label,) if options.label else ANSWER_FIELDS)
    return ChoiceQuestion(
        question=question,
        choices=texts,
        passage=passage,
        answer_index=None if answer in (None, "") else _find_right_choice(answer, names, texts),
    )


def _questions(
    records: Sequence[FieldRecord], source: SourceFile, options: ReadOptions, aside: list[SetAside]
) -> Iterator[ChoiceQuestion]:
    number = 0
    for record in records:
        for fields, position, name in _unnest_questions(record):
            number += 1
            stated_id = get_first_field(fields, (options.id,) if options.id else ID_FIELDS)
            question_id = name or (str(stated_id) if stated_id not in (None, "") else f"{source.stem}-{number}")
            try:
                question = parse_choice_question(fields, options)
                if question.answer_index is None:
                    raise BadInput(f"the question has no answer; {_EXPECTED} in {_join_names(ANSWER_FIELDS)}")
            except BadInput as wrong:
                aside.append(source.set_aside(str(wrong), question_id, position))
                continue
            _remark(fields, source)
            yield replace(question, id=question_id, source=source.name, position=position)


def _unnest_questions(record: FieldRecord) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """Yield the questions of a record with their positions and ids: that of a HEAD-QA file holds whole exams."""
    exams = record.fields.get("exams")
    if not isinstance(exams, Mapping | list):
        yield record.fields, record.position, None
        return
    named_exams = (
        exams.items() if isinstance(exams, Mapping) else ((str(number), exam) for number, exam in enumerate(exams))
    )
    for name, exam in named_exams:
        data = exam.get("data") if isinstance(exam, Mapping) else None
        for number, fields in enumerate(data if isinstance(data, list) else [exam], start=1):
            question = fields.get("qid", number) if isinstance(fields, Mapping) else number
            yield (
                fields if isinstance(fields, Mapping) else {},
                f"exam {name}, question {question}",
                f"{name}-{question}",
            )


def _remark(fields: Mapping[str, Any], source: SourceFile) -> None:
    """Count images, and rows with fewer choices than the table has columns for."""
    if fields.get("image"):
        source.tally["the question has an image, which is not read"] += 1
    columns = [name for name in fields if _COLUMN.fullmatch(name)]
    if columns and not str(fields[max(columns, key=_column_number)] or "").strip():
        source.tally["the row has fewer choices than the table has columns for them"] += 1


# -- fields


def _flatten_question(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move fields inside of `question` (ARC: stem and choices) up to the other fields."""
    inner = fields.get("question")
    if not isinstance(inner, Mapping):
        return fields
    return {**{name: value for name, value in fields.items() if name != "question"}, **inner}


def _read_passage_and_question(fields: Mapping[str, Any], options: ReadOptions) -> tuple[str | None, str]:
    """Return passage and question; the first of two sentences that choices continue is their passage."""
    if len(options.text) > 2:
        raise BadInput(f"{len(options.text)} columns of text were asked for; expected passage and question")
    *before, name = options.text or (None,)
    question = _text(get_first_field(fields, (name,) if name else QUESTION_FIELDS))
    passage = _text(get_first_field(fields, before or (() if name else PASSAGE_FIELDS)))
    if not question:
        question, passage = passage, ""
    if not question:
        raise BadInput(f"there is no question, or it is empty; expected it in {name or _join_names(QUESTION_FIELDS)}")
    return passage or None, question


def _text(value: Any) -> str:
    """Return a text, or nothing if there is only white space."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() else ""


def _choices(fields: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the choices, if they have any, and their texts."""
    choices = get_first_field(fields, CHOICE_FIELDS)
    if isinstance(choices, Mapping):
        names, texts = _read_mapping(choices)
    elif isinstance(choices, list):
        names, texts = _read_list(choices)
    else:
        names, texts = (), _read_columns(fields)
    if len(texts) < 2:
        raise BadInput(
            f"the question has {f'{len(texts)} choice' if texts else 'no choices'}; expected two or more in {_join_names(CHOICE_FIELDS)}, or in columns ending0, "
            "ending1 and so on"
        )
    empty = next((number for number, text in enumerate(texts, start=1) if not text), None)
    if empty:
        raise BadInput(f"choice {empty} of {len(texts)} is empty, or no text")
    return names, texts


def _read_mapping(choices: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read `{"A": ..., "B": ...}`, or columns in one field: `{"text": [...], "label": [...]}`."""
    texts, labels = choices.get("text"), choices.get("label")
    if isinstance(texts, list):
        names = tuple(map(str, labels)) if isinstance(labels, list) and len(labels) == len(texts) else ()
        return names, tuple(map(_text, texts))
    return tuple(choices), tuple(map(_text, choices.values()))


def _read_list(choices: Sequence[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read texts, or objects with a text and perhaps a name: `{"aid": 1, "atext": ...}`."""
    objects = [choice for choice in choices if isinstance(choice, Mapping)]
    if len(objects) < len(choices):
        return (), tuple(map(_text, choices))
    names = [get_first_field(choice, _NAMES) for choice in objects]
    texts = tuple(_text(get_first_field(choice, _TEXTS)) for choice in objects)
    return () if None in names else tuple(map(str, names)), texts


def _read_columns(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Read numbered columns; the last of them may be empty where other rows have more choices."""
    columns = sorted((name for name in fields if _COLUMN.fullmatch(name)), key=_column_number)
    texts = [_text(fields[name]) for name in columns]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts)


def _column_number(name: str) -> int:
    match = _COLUMN.fullmatch(name)
    assert match
    return int(match[1])


# -- answers


def _find_right_choice(answer: Any, names: Sequence[str], texts: Sequence[str]) -> int:
    """Find the choice that an answer means: a name if the choices have names, a number, a letter, or the text itself."""
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)  # as tables write numbers where some are missing
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        raise BadInput(f"the answer is neither a whole number nor a text; {_EXPECTED}")
    spelt = str(answer).strip()
    by_name = {number for number, name in enumerate(names) if name == spelt}
    if by_name or any(name.isdecimal() for name in names):
        candidates = by_name or _by_text(spelt, texts)
    elif isinstance(answer, int):
        candidates = {answer}
    else:
        candidates = _by_text(spelt, texts) | _by_letter(spelt) | _by_number(spelt)
    valid = {number for number in candidates if 0 <= number < len(texts)}
    if len(valid) == 1:
        return valid.pop()
    raise BadInput(_explain_no_answer(candidates, valid, names, texts))


def _by_text(spelt: str, texts: Sequence[str]) -> set[int]:
    return {number for number, text in enumerate(texts) if text.strip() == spelt}


def _by_letter(spelt: str) -> set[int]:
    return {ascii_uppercase.index(spelt.upper())} if re.fullmatch("[A-Za-z]", spelt) else set()


def _by_number(spelt: str) -> set[int]:
    return {int(spelt)} if re.fullmatch(r"-?\d{1,9}", spelt) else set()


def _explain_no_answer(candidates: set[int], valid: set[int], names: Sequence[str], texts: Sequence[str]) -> str:
    count = len(texts)
    if len(valid) > 1:
        first, second = sorted(valid)[:2]
        return f"the answer could mean choice {first + 1} or {second + 1} of {count}; give its letter, or a JSON number"
    if names and max(map(len, names)) <= _SHORT:  # longer ones may be text of the user
        return f"the answer is none of the {count} choices, which are called {_join_names(names)}"
    if candidates:
        return f"the answer is number {min(candidates)}, out of range: the {count} choices are counted from 0"
    return f"the answer is none of the {count} choices; {_EXPECTED}"


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
