"""Examples: what a task learns from, is scored on, or predicts; and what came of reading, encoding and predicting them.

How often entities were seen in training is kept by hashes in place of their text. The hashes have no secret in them, so
that another machine can compute them: whoever has them can test a list of names.

`AnnotationSpec` says which field of a document the answers of a task go into. The text stays as it is. Each entity and
relation has how sure the model is as its attribute `score`, and an id that no other annotation of the document has.
Labels of a document have theirs under `label_scores` in its `meta`. A task that classifies the sentences of a document
adds an entity for each: a stretch of the text with a label, which every format can hold.

A `Rewriter` is what a task adds to augmentation, which itself knows no labels: which stretches of the texts may be
rewritten, what becomes of the answers, and how an example is written as JSON lines that the task reads again. What is
here suits examples whose answers are about whole texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from alembert.corpus.document import SCORE_ATTRIBUTE, Document, Entity, StringPairs, generate_unused_ids
from alembert.corpus.readers.contract import Item, Remark, SetAside
from alembert.data.order import stable_hash
from alembert.data.windows import Row
from alembert.errors import BadInput
from alembert.text.replacement import EditedText, TextEdit
from alembert.text.sentences import Span

_LINE_WIDTH: Final = 100


@dataclass(frozen=True, kw_only=True)
class Example:
    """One text, or several that belong together, with or without the right answer; tasks add theirs."""

    id: str
    texts: tuple[str, ...]
    where: str = ""
    """File and line, for messages."""

    @property
    def plain_texts(self) -> tuple[str, ...]:
        """The texts without what only marks something in them, which no model reads as words."""
        return self.texts

    @property
    def gold_labels(self) -> tuple[str, ...]:
        """Names of the right answers, if they have names; tasks that name them otherwise have `gold_answers`."""
        return ()

    @property
    def key(self) -> int:
        """64 bits that two examples share when their texts are the same but for white space and case."""
        texts = [" ".join(text.split()).casefold() for text in self.texts]
        return stable_hash("example", *(f"{len(text)} {text}" for text in texts))

    @property
    def group_id(self) -> int | str:
        """What examples of one document share, which a split keeps together; usually the key."""
        return self.key


E = TypeVar("E", bound=Example)
F = TypeVar("F")


@dataclass(frozen=True)
class ReadResult(Generic[E]):
    """What files gave: examples, and what could not be used or was mended on the way."""

    examples: tuple[E, ...]
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @classmethod
    def concatenate(cls, parts: Iterable[ReadResult[E]]) -> ReadResult[E]:
        """Put what several files gave one after the other."""
        listed = list(parts)
        return cls(
            tuple(example for part in listed for example in part.examples),
            tuple(item for part in listed for item in part.set_aside),
            tuple(remark for part in listed for remark in part.remarks),
        )


def collect(files: Iterable[F], read: Callable[[F], Iterable[E | Item]]) -> ReadResult[E]:
    """Read files one after the other, and sort what they hold into examples, set-asides and remarks."""
    examples: list[E] = []
    set_aside: list[SetAside] = []
    remarks: list[Remark] = []
    for file in files:
        for item in read(file):
            if isinstance(item, Example):
                examples.append(item)
            elif isinstance(item, SetAside):
                set_aside.append(item)
            elif isinstance(item, Remark):
                remarks.append(item)
    return ReadResult(tuple(examples), tuple(set_aside), tuple(remarks))


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What became of the text: nothing is lost without a number here."""

    examples: int = 0
    characters: int = 0
    tokens: int = 0
    """Real tokens of all windows, with special ones and overlaps."""
    windows: int = 0
    split_examples: int = 0
    """Examples that needed more than one window."""
    unknown: int = 0
    """Tokens that the vocabulary does not know."""
    gold: int = 0
    """Right answers that were given: entities, labels."""
    unreachable: int = 0
    """Right answers that no prediction can match, such as entities that end inside a word; they count as missed."""
    cut_characters: int = 0
    """Characters that the model does not see, because the user asked for a cut."""
    withheld: int = 0
    """Answers that were left out, because the model was less sure of them than the user asked for."""

    @classmethod
    def total(cls, parts: Iterable[Coverage]) -> Coverage:
        listed = list(parts)
        if len(listed) == 1:
            return listed[0]
        # Every document that is annotated comes by here, so it takes no detour through `fields`.
        return cls(**dict(zip(_COUNTS, map(sum, zip(*map(_get_counts, listed), strict=True)), strict=False)))

    def brief(self, *more: str) -> dict[str, int]:
        """Return the counts that a prediction shows, with more of them by name; `withheld` if it is not zero."""
        withheld = ("withheld",) if self.withheld else ()
        names = ("characters", "tokens", "windows", *more, *withheld)
        return {name: getattr(self, name) for name in names}


_COUNTS: Final = tuple(Coverage.__dataclass_fields__)
_get_counts: Callable[[Coverage], tuple[int, ...]] = attrgetter(*_COUNTS)


@dataclass(frozen=True, eq=False)
class EncodedExample:
    """An example as the model reads it."""

    rows: tuple[Row, ...]
    coverage: Coverage
    layout: Any = None
    """What the task needs to read the model's answers: places of words in the text, for instance."""

    @property
    def tokens(self) -> int:
        return sum(row.length for row in self.rows)


def shorten(text: str) -> str:
    """Put the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LINE_WIDTH else line[: _LINE_WIDTH - 1] + "…"


class TaskPrediction(Generic[E]):
    """What a model answers for one example; tasks add their answers as fields of a frozen dataclass."""

    coverage: Coverage

    def to_record(self, example: E) -> dict[str, Any]:
        """Return a JSON object, offsets into the text as it was given."""
        answers = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {"id": example.id, "texts": list(example.texts), **answers, "coverage": self.coverage.brief()}

    def to_lines(self, example: E) -> list[str]:
        """Return lines for people."""
        record = self.to_record(example)
        return [f"{name}: {value}" for name, value in record.items() if name not in ("id", "texts", "coverage")]


P = TypeVar("P", bound=TaskPrediction[Any])


SampleMetric = Callable[[npt.NDArray[np.int64]], float]
"""The main score of a sample of examples, given by their numbers, with repetitions: what a bootstrap draws."""


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """How good predictions are."""

    main: str
    """The measure that models are chosen by; higher is better."""
    measures: Mapping[str, float]
    by_label: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    notes: tuple[str, ...] = ()
    """What must be known with the scores, in sentences: that guessing would do as well, for instance."""
    untuned: str = ""
    """The measure that steps of a run are compared by, if a threshold that is chosen after the last of them decides about
    the main one; empty: the main one."""

    @property
    def value(self) -> float:
        return self.measures[self.main]

    @property
    def selection_score(self) -> float:
        """What the model is worth during a run, before anything is tuned."""
        return self.measures[self.untuned or self.main]


def exclude_examples(examples: Sequence[E], keys: Iterable[int]) -> tuple[E, ...]:
    """Leave out the examples whose texts are among those of the keys."""
    excluded = set(keys)
    return tuple(example for example in examples if example.key not in excluded)


def check_labels(example: Example, answers: Iterable[str], labels: Collection[str]) -> None:
    """Refuse an example with an answer that is none of the labels of a task."""
    for answer in answers:
        if answer not in labels:
            raise BadInput(
                f"{example.where or example.id} has the label {answer!r}, which this task does not know; it knows "
                f"{', '.join(labels)}. Use data with the same labels, or fine-tune on all of them."
            )


def get_group_ids(examples: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Number the documents that examples belong to by what they are, so that the order of files is no matter."""
    groups: list[int | str] = [example.group_id for example in examples]
    ranked = sorted(set(groups), key=lambda group: (isinstance(group, str), group))
    numbers = {group: number for number, group in enumerate(ranked)}
    return np.array([numbers[group] for group in groups], np.int64)


def surface_key(surface: str, label: str) -> str:
    """Turn an entity into 64 bits, the same whatever its case and spaces.

    >>> surface_key("Breast  cancer", "Disease") == surface_key("breast cancer", "Disease")
    True
    """
    return f"{stable_hash('surface', label, ' '.join(surface.split()).casefold()):016x}"


def count_surfaces(entities: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Count entities, given as surface and label, by their keys."""
    return dict(sorted(Counter(surface_key(surface, label) for surface, label in entities).items()))


AnnotationField = Literal["entities", "relations", "labels"]
LABEL_SCORES_KEY: Final = "label_scores"
VALUE_KEY: Final = "value"


@dataclass(frozen=True, kw_only=True)
class AnnotationSpec:
    """What a task reads of a document, and what it adds to it."""

    writes: AnnotationField | None = None
    """The field that it adds to; none: its answers are no annotations."""
    reads: Literal["text", "entities"] = "text"
    """Whether it needs the text alone, or the entities that the document has by then."""
    entity_types: tuple[str, ...] = ()
    """Types of the entities that it finds."""
    sentence_labels: tuple[str, ...] = ()
    """Labels of the entities that it adds for whole sentences."""
    pair_types: tuple[tuple[str, str], ...] = ()
    """Types of entities that it relates; empty: entities of any types."""
    problem: str = ""
    """Why it cannot annotate documents, to be read after the name of the model."""

    def can_relate(self, types: Iterable[str]) -> bool:
        """Return whether entities of these types have a pair that the task relates."""
        known = {name.casefold() for name in types}
        return not self.pair_types or any({head.casefold(), tail.casefold()} <= known for head, tail in self.pair_types)


def drop_annotations(document: Document, fields: Iterable[AnnotationField]) -> Document:
    """Leave out annotations that the input had; without entities there are no relations between them."""
    left: dict[str, Any] = dict.fromkeys(fields, ())
    if "relations" in left:
        left["unlinked_relations"] = ()
    if not any(getattr(document, name) for name in left) and LABEL_SCORES_KEY not in document.meta:
        return document
    if "labels" in left:
        left["meta"] = {name: value for name, value in document.meta.items() if name != LABEL_SCORES_KEY}
    return replace(document, **left)


def with_entities(document: Document, found: Iterable[tuple[int, int, str, float | None]]) -> Document:
    """Add entities, each given by start, end, label and score, in the order of the text."""
    names, text = generate_unused_ids("T", document), document.text
    fresh = [
        Entity(next(names), label, ((start, end),), attributes=score_attributes(score), text=text[start:end])
        for start, end, label, score in found
    ]
    if not (fresh or document.entities):
        return document
    together = sorted((*document.entities, *fresh), key=lambda entity: entity.start)
    return replace(document, entities=tuple(together))


def score_attributes(score: float | None) -> StringPairs:
    """Return the attributes of an annotation that say how sure the model is."""
    # Four digits: what a model means, and not what the order of its sums left behind.
    return () if score is None else ((SCORE_ATTRIBUTE, f"{score:.4f}"),)


Edits = Sequence[Sequence[TextEdit]]
"""For each text of an example, what is replaced in it."""
EntitySpan = tuple[int, int, str]
"""Start, end and type of an entity."""


class Rewriter(ABC, Generic[E]):
    """Rewrites examples of one task."""

    def editable_spans(self, example: E) -> list[list[Span]]:
        """List for each text the stretches that may be rewritten; no edit may reach across the end of one."""
        return [[(0, len(text))] for text in example.texts]

    def entities(self, example: E) -> list[list[EntitySpan]]:
        """List for each text the entities that may be replaced as a whole: those that share no character with others."""
        return [[] for _ in example.texts]

    def rewrite(self, example: E, edits: Edits, name: str) -> E | None:
        """Return the example with new texts, called `name`, its answers where their words are; none: it cannot be."""
        return replace(example, id=name, texts=tuple(edited.text for edited in apply_edits(example, edits)))

    @abstractmethod
    def records(self, example: E) -> list[dict[str, Any]]:
        """Write an example with its right answers as JSON objects, one a line, of which `read` makes the same example."""


def apply_edits(example: E, edits: Edits) -> list[EditedText]:
    """Edit each text of an example, and keep track of places in it."""
    return [EditedText(text, own) for text, own in zip(example.texts, edits, strict=True)]


def build_sentence_records(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Write sentences as the annotation format has them."""
    return [{"start": start, "end": end, "kind": "sentence"} for start, end in spans]
