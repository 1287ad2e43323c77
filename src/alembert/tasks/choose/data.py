"""Examples of the task `choose`: read from files, made of texts with tabs or JSON objects, rewritten; and its settings.

Passage and question are rewritten; the choices are the answers, and stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from alembert.corpus.examples.choices import (
    ChoiceQuestion,
    parse_choice_question,
    read_choice_questions,
)
from alembert.corpus.readers.contract import Item, ReadOptions
from alembert.data.order import stable_hash
from alembert.errors import BadInput, BadSetting
from alembert.tasks.example import Example
from alembert.tasks.rewriting import Rewriter
from alembert.tasks.settings import check_choices, check_windows
from alembert.text.sentences import Span


@dataclass(frozen=True, kw_only=True)
class ChooseSettings:
    """Settings of multiple choice."""

    max_length: int = 256
    """Maximum tokens of a window, special tokens included; longer passages need several windows."""
    overlap: int = 32
    """Tokens that neighbouring windows share."""
    pool: Literal["max", "mean"] = "max"
    """Pooling over the windows of a choice."""
    train_windows: int | None = None
    """Maximum windows per choice in training, evenly spaced; truncated text is reported. none: all."""

    def __post_init__(self) -> None:
        check_choices(self, {"pool": ("max", "mean")})
        check_windows(self.max_length, self.overlap)
        if self.train_windows is not None and self.train_windows < 1:
            raise BadSetting(
                f"`train_windows` of the task is {self.train_windows}; expected 1 or more, or none for all."
            )


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


def read_file(path: Path, options: ReadOptions) -> Iterator[ChooseExample | Item]:
    """Read a file of questions with choices."""
    file = read_choice_questions(path, options)
    yield from map(_example, file.questions)
    yield from file.set_aside
    yield from file.remarks


def example_from_text(text: str, name: str) -> ChooseExample:
    """Make an example of `question<TAB>choice<TAB>choice...`, or of a JSON object, which may have a passage."""
    if text.lstrip().startswith("{"):
        return example_from_record(_parse_json(text), name)
    question, *choices = (part.strip() for part in text.split("\t"))
    if not question or len(choices) < 2 or not all(choices):
        problem = _describe_choice_count(len(choices)) if len(choices) < 2 else "an empty part"
        raise BadInput(
            f"{name} has {problem}; expected a question and two or more choices, parted by tabs, or a JSON object with "
            "`question`, `choices` and perhaps `passage`."
        )
    return ChooseExample(id=name, texts=(question, *choices))


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput("The text begins as a JSON object and is none; check its quotes and brackets.") from None


def example_from_record(record: Mapping[str, Any], name: str) -> ChooseExample:
    """Make an example without an answer of a dict with `question`, `choices` and perhaps `passage`."""
    try:
        return replace(_example(parse_choice_question(record), name), gold=None)
    except BadInput as wrong:
        raise BadInput(f"The JSON object cannot be used: {wrong}.") from None


def _example(question: ChoiceQuestion, name: str = "") -> ChooseExample:
    passage = () if question.passage is None else (question.passage,)
    return ChooseExample(
        id=question.id or name,
        texts=(*passage, question.question, *question.choices),
        where=question.where if question.source else "",
        has_passage=bool(passage),
        gold=question.answer_index,
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
