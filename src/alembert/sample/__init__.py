"""The embedded sample: made-up biomedical passages, English and Chinese, with gold annotation, and twenty abstracts.

The demo, the docs and the fast tests use it: small enough to read, rich enough for a tiny model to learn from. Passages
have disease, chemical and gene spans, a topic, a split and, for most, questions. Offsets count characters, so that
``text[start:end]`` is the surface. The abstracts have no annotation: they are for trained models to read. All text was
written for this project; its patients and studies do not exist.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from alembert.errors import BadSetting

FILES = {"en": "english.jsonl", "zh": "chinese.jsonl"}
ABSTRACTS_FILE = "abstracts.jsonl"
LABELS = ("disease", "chemical", "gene")
SPLITS = ("train", "dev", "test")
TOPICS = ("oncology", "infection", "cardiology", "neurology", "metabolism")


@dataclass(frozen=True, slots=True)
class SampleEntity:
    """A mention of a disease, chemical or gene."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """A question on one passage; `answers` holds (start, end) spans of its text, none if it has no answer there."""

    id: str
    question: str
    answers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SamplePassage:
    """A few sentences as in an abstract or a clinical letter (`kind`), with their gold annotation."""

    id: str
    language: str
    topic: str
    split: str
    kind: str
    text: str
    entities: tuple[SampleEntity, ...]
    questions: tuple[SampleQuestion, ...]


def load_passages(language: str | None = None, split: str | None = None) -> tuple[SamplePassage, ...]:
    """Return the passages of a language ("en", "zh") and split ("train", "dev", "test"), or of all.

    >>> first = load_passages("en")[0]
    >>> [first.text[e.start : e.end] for e in first.entities if e.label == "gene"]
    ['BCR-ABL1']
    """
    _check("language", language, tuple(FILES))
    _check("split", split, SPLITS)
    return tuple(p for p in _all() if language in (None, p.language) and split in (None, p.split))


def _check(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise BadSetting(f"The sample has no {name} {value!r}. Use one of: {', '.join(choices)}.")


@dataclass(frozen=True, slots=True)
class SampleAbstract:
    """A research abstract of usual length, without annotation."""

    id: str
    title: str
    text: str


@cache
def load_abstracts() -> tuple[SampleAbstract, ...]:
    """Return twenty English abstracts from many fields of medicine.

    >>> load_abstracts()[8].title
    'CYP2C19 genotype, inflammation and voriconazole exposure in invasive pulmonary aspergillosis'
    """
    return tuple(SampleAbstract(**record) for record in _read(ABSTRACTS_FILE))


@cache
def _all() -> tuple[SamplePassage, ...]:
    return tuple(_passage(record) for name in FILES.values() for record in _read(name))


def _read(name: str) -> Iterator[dict[str, Any]]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return map(json.loads, text.splitlines())


def _passage(record: dict[str, Any]) -> SamplePassage:
    entities = tuple(SampleEntity(**entity) for entity in record.pop("entities"))
    questions = tuple(_question(question) for question in record.pop("questions"))
    return SamplePassage(**record, entities=entities, questions=questions)


def _question(record: dict[str, Any]) -> SampleQuestion:
    answers = tuple((answer["start"], answer["end"]) for answer in record["answers"])
    return SampleQuestion(record["id"], record["question"], answers)
