"""Questions with choices from files: exams, continuations, reading comprehension.

In: HEAD-QA (a JSON file of exams), SWAG and its like (tables or JSON with `ending0`, `ending1`, ... or `endings`), and
JSON lines or Parquet with a question, its choices, the answer and perhaps a passage, as RACE, ARC and MedQA have them.
Out: questions with any number of choices, of which one is right, each with file and place; and what cannot be used, set
aside with its place. An answer is never guessed: one that is missing, out of range, or that could mean two choices
sets its question aside.
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
from alembert.corpus.readers.records import get_field
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
    """A question and what to choose from."""

    question: str
    choices: tuple[str, ...]
    """The choices."""
    passage: str | None = None
    answer_index: int | None = None
    """Which choice is right, from 0; none: not known."""
    id: str = ""
    source: str = ""
    position: str = ""
    """Where in the file: "line 3", "exam 2013-B, question 7"."""

    @property
    def where(self) -> str:
        return f"{self.source}, {self.position}"


@dataclass(frozen=True)
class ChoiceQuestionFile:
    """What a file gave."""

    questions: tuple[ChoiceQuestion, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()


def read_choice_questions(path: str | Path, options: ReadOptions | None = None) -> ChoiceQuestionFile:
    """Read the questions of a file; one without a right answer that can be told is set aside."""
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

    >>> parse_choice_question({"question": "Which is a drug?", "choices": ["BRAF", "imatinib"], "answer": "B"}).right
    1
    """
    options = options or ReadOptions()
    fields = _flatten_question(fields)
    names, texts = _choices(fields)
    passage, question = _read_passage_and_question(fields, options)
    answer = _first(fields, (options.label,) if options.label else ANSWER_FIELDS)
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
            given = _first(fields, (options.id,) if options.id else ID_FIELDS)
            named = name or (str(given) if given not in (None, "") else f"{source.stem}-{number}")
            try:
                found = parse_choice_question(fields, options)
                if found.answer_index is None:
                    raise BadInput(f"the question has no answer; {_EXPECTED} in {_listed(ANSWER_FIELDS)}")
            except BadInput as wrong:
                aside.append(source.set_aside(str(wrong), named, position))
                continue
            _remark(fields, source)
            yield replace(found, id=named, source=source.name, position=position)


def _unnest_questions(record: FieldRecord) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """Give the questions of a record with their places and names: that of a HEAD-QA file holds whole exams."""
    exams = record.fields.get("exams")
    if not isinstance(exams, Mapping | list):
        yield record.fields, record.position, None
        return
    named = exams.items() if isinstance(exams, Mapping) else ((str(n), each) for n, each in enumerate(exams))
    for name, exam in named:
        data = exam.get("data") if isinstance(exam, Mapping) else None
        for number, fields in enumerate(data if isinstance(data, list) else [exam], start=1):
            question = fields.get("qid", number) if isinstance(fields, Mapping) else number
            yield (
                fields if isinstance(fields, Mapping) else {},
                f"exam {name}, question {question}",
                f"{name}-{question}",
            )


def _remark(fields: Mapping[str, Any], source: SourceFile) -> None:
    """Count what a question has beside its text, and choices that a table has room for."""
    if fields.get("image"):
        source.tally["the question has an image, which is not read"] += 1
    columns = [name for name in fields if _COLUMN.fullmatch(name)]
    if columns and not str(fields[max(columns, key=_column_number)] or "").strip():
        source.tally["the row has fewer choices than the table has columns for them"] += 1


# -- fields


def _flatten_question(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Bring what stands inside of `question` (ARC: stem and choices) up to the other fields."""
    inner = fields.get("question")
    if not isinstance(inner, Mapping):
        return fields
    return {**{name: value for name, value in fields.items() if name != "question"}, **inner}


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value for name in names if (value := get_field(fields, name)) is not None), None)


def _read_passage_and_question(fields: Mapping[str, Any], options: ReadOptions) -> tuple[str | None, str]:
    """Give passage and question; the first of two sentences that choices continue is their passage."""
    if len(options.text) > 2:
        raise BadInput(f"{len(options.text)} columns of text were asked for; expected passage and question")
    *before, name = options.text or (None,)
    question = _text(_first(fields, (name,) if name else QUESTION_FIELDS))
    passage = _text(_first(fields, before or (() if name else PASSAGE_FIELDS)))
    if not question:
        question, passage = passage, ""
    if not question:
        raise BadInput(f"there is no question, or it is empty; expected it in {name or _listed(QUESTION_FIELDS)}")
    return passage or None, question


def _text(value: Any) -> str:
    """Give a text, or nothing if there is none but white space."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() else ""


def _choices(fields: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the names of the choices, if they have any, and their texts."""
    found = _first(fields, CHOICE_FIELDS)
    if isinstance(found, Mapping):
        names, texts = _of_mapping(found)
    elif isinstance(found, list):
        names, texts = _of_list(found)
    else:
        names, texts = (), _of_columns(fields)
    if len(texts) < 2:
        raise BadInput(
            f"the question has {f'{len(texts)} choice' if texts else 'no choices'}; expected two or more in {_listed(CHOICE_FIELDS)}, or in columns ending0, "
            "ending1 and so on"
        )
    empty = next((number for number, text in enumerate(texts, start=1) if not text), None)
    if empty:
        raise BadInput(f"choice {empty} of {len(texts)} is empty, or no text")
    return names, texts


def _of_mapping(found: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read `{"A": ..., "B": ...}`, or columns in one field: `{"text": [...], "label": [...]}`."""
    texts, labels = found.get("text"), found.get("label")
    if isinstance(texts, list):
        names = tuple(map(str, labels)) if isinstance(labels, list) and len(labels) == len(texts) else ()
        return names, tuple(map(_text, texts))
    return tuple(found), tuple(map(_text, found.values()))


def _of_list(found: Sequence[Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read texts, or objects of a text and perhaps a name: `{"aid": 1, "atext": ...}`."""
    objects = [each for each in found if isinstance(each, Mapping)]
    if len(objects) < len(found):
        return (), tuple(map(_text, found))
    names = [_first(each, _NAMES) for each in objects]
    texts = tuple(_text(_first(each, _TEXTS)) for each in objects)
    return () if None in names else tuple(map(str, names)), texts


def _of_columns(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Read numbered columns; the last of them may be empty where other rows have more choices."""
    columns = sorted((name for name in fields if _COLUMN.fullmatch(name)), key=_column_number)
    texts = [_text(fields[name]) for name in columns]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts)


def _column_number(name: str) -> int:
    found = _COLUMN.fullmatch(name)
    assert found
    return int(found[1])


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
        meant = by_name or _by_text(spelt, texts)
    elif isinstance(answer, int):
        meant = {answer}
    else:
        meant = _by_text(spelt, texts) | _by_letter(spelt) | _by_number(spelt)
    inside = {number for number in meant if 0 <= number < len(texts)}
    if len(inside) == 1:
        return inside.pop()
    raise BadInput(_no_answer(meant, inside, names, texts))


def _by_text(spelt: str, texts: Sequence[str]) -> set[int]:
    return {number for number, text in enumerate(texts) if text.strip() == spelt}


def _by_letter(spelt: str) -> set[int]:
    return {ascii_uppercase.index(spelt.upper())} if re.fullmatch("[A-Za-z]", spelt) else set()


def _by_number(spelt: str) -> set[int]:
    return {int(spelt)} if re.fullmatch(r"-?\d{1,9}", spelt) else set()


def _no_answer(meant: set[int], inside: set[int], names: Sequence[str], texts: Sequence[str]) -> str:
    count = len(texts)
    if len(inside) > 1:
        one, other = sorted(inside)[:2]
        return f"the answer could mean choice {one + 1} or {other + 1} of {count}; give its letter, or a JSON number"
    if names and max(map(len, names)) <= _SHORT:  # longer ones may be text of the user
        return f"the answer is none of the {count} choices, which are called {_listed(names)}"
    if meant:
        return f"the answer is number {min(meant)}, out of range: the {count} choices are counted from 0"
    return f"the answer is none of the {count} choices; {_EXPECTED}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
