"""Examples of the task `choose`: read from files, or made of texts with tabs or JSON objects.

Rewrite examples of the task `choose`: passage and question; the choices are the answers, and stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alembert.corpus.examples.choices import (
    ChoiceQuestion,
    parse_choice_question,
    read_choice_questions,
)
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.data.order import stable_hash
from alembert.errors import BadInput
from alembert.tasks.example import Example, ReadResult
from alembert.tasks.rewriting import Rewriter
from alembert.text.sentences import Span


@dataclass(frozen=True, kw_only=True)
class ChooseExample(Example):
    """A passage, if there is one, a question and its choices, in this order in `texts`."""

    has_passage: bool = False
    gold: int | None = None
    """Which choice is right, from 0; none: not known."""

    @property
    def passage(self) -> str | None:
        return self.texts[0] if self.has_passage else None

    @property
    def question(self) -> str:
        return self.texts[self.has_passage]

    @property
    def choices(self) -> tuple[str, ...]:
        return self.texts[1 + self.has_passage :]

    @property
    def group_id(self) -> int | str:
        """Questions about one passage stay together."""
        if self.passage is None:
            return self.key
        return stable_hash("passage", " ".join(self.passage.split()).casefold())

    @property
    def sides(self) -> tuple[str, tuple[str, ...]]:
        """What is read first, the same for all choices, and what is read after it, one text for each choice.

        The question goes with the choice if there is a passage, so that each window of a long passage has both.
        """
        if self.passage is None:
            return self.question, self.choices
        return self.passage, tuple(f"{self.question} {choice}" for choice in self.choices)

    def check(self) -> None:
        """Refuse what cannot be chosen from."""
        place, count = self.where or f"example {self.id}", len(self.choices)
        if count < 2:
            raise BadInput(f"{place} has {_describe_choice_count(count)}; expected two or more.")
        if self.gold is not None and not 0 <= self.gold < count:
            raise BadInput(f"{place} has the answer {self.gold}, out of range: its {count} choices are counted from 0.")


def _describe_choice_count(count: int) -> str:
    return "one choice" if count else "no choices"


def read_examples(files: Sequence[Path], options: ReadOptions) -> ReadResult[ChooseExample]:
    """Read files of questions with choices."""
    examples: list[ChooseExample] = []
    aside: list[SetAside] = []
    remarks: list[Remark] = []
    for path in files:
        found = read_choice_questions(path, options)
        examples += map(_example, found.questions)
        aside += found.set_aside
        remarks += found.remarks
    return ReadResult(tuple(examples), tuple(aside), tuple(remarks))


def examples_from_texts(texts: Iterable[str], ids: Sequence[str]) -> list[ChooseExample]:
    """Make examples of `question<TAB>choice<TAB>choice...`, or of JSON objects, which may have a passage."""
    return [_of_text(text, name) for text, name in zip(texts, ids, strict=True)]


def _of_text(text: str, name: str) -> ChooseExample:
    if text.lstrip().startswith("{"):
        return _example(_of_json(text), name)
    question, *choices = (part.strip() for part in text.split("\t"))
    if not question or len(choices) < 2 or not all(choices):
        found = _describe_choice_count(len(choices)) if len(choices) < 2 else "an empty part"
        raise BadInput(
            f"{name} has {found}; expected a question and two or more choices, parted by tabs, or a JSON object with "
            "`question`, `choices` and perhaps `passage`."
        )
    return ChooseExample(id=name, texts=(question, *choices))


def _of_json(text: str) -> ChoiceQuestion:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput("The text begins as a JSON object and is none; check its quotes and brackets.") from None
    return _choices(fields)


def example_from_record(record: Mapping[str, Any], name: str) -> ChooseExample:
    """Make an example of a dict with `question`, `choices` and perhaps `passage`."""
    return _example(_choices(record), name)


def _choices(fields: Any) -> ChoiceQuestion:
    try:
        return parse_choice_question(fields)
    except BadInput as wrong:
        raise BadInput(f"The JSON object cannot be used: {wrong}.") from None


def _example(found: ChoiceQuestion, name: str = "") -> ChooseExample:
    passage = () if found.passage is None else (found.passage,)
    return ChooseExample(
        id=found.id or name,
        texts=(*passage, found.question, *found.choices),
        where=found.where if found.source else "",
        has_passage=bool(passage),
        gold=found.answer_index,
    )


class ChooseRewriter(Rewriter[ChooseExample]):
    """Rewrites what is asked, not what it is answered with."""

    def editable_spans(self, example: ChooseExample) -> list[list[Span]]:
        asked = len(example.texts) - len(example.choices)
        return [[(0, len(text))] if number < asked else [] for number, text in enumerate(example.texts)]

    def records(self, example: ChooseExample) -> list[dict[str, Any]]:
        passage = {} if example.passage is None else {"passage": example.passage}
        asked = {"id": example.id, **passage, "question": example.question}
        return [asked | {"choices": list(example.choices), "answer": example.gold}]
