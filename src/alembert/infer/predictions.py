"""What `Predictor.predict` returns: small frozen dataclasses, one kind for each kind of task.

Taggers, classifiers of single texts and relation models annotate documents, alone or together, so they share
`AnnotatedDocument`, which is a `Document`: it can be written in every format and predicted again. Each class has
`to_dict()`, plain values for JSON, and `_repr_html_()`, which notebooks show. Offsets count characters of the text as
it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final
from zlib import crc32

from alembert.corpus.document import Document, Entity
from alembert.html import COLOURS, EntityMark, render_fragment, render_runs, render_table, render_text, split_runs
from alembert.infer.index import TextUnit
from alembert.infer.search import Hit
from alembert.tasks.example import Coverage

_SHOWN_COUNTS: Final = ("characters", "tokens", "windows", "cut_characters", "withheld")
"""Counts of `Coverage` that are shown with a prediction; the last two only if they are not zero."""


@dataclass(frozen=True)
class Triple:
    """Two entities of a document and the relation between them."""

    head: Entity
    relation: str
    tail: Entity
    score: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        ends = {"head": entity_dict(self.head), "relation": self.relation, "tail": entity_dict(self.tail)}
        return ends if self.score is None else {**ends, "score": self.score}


@dataclass(frozen=True, slots=True)
class AnnotatedDocument(Document):
    """A document with what the models found in it: entities, labels, relations."""

    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Probability of every label that a classifier knows; empty without a classifier."""
    value: float | None = None
    """The number that a regression model gives."""
    coverage: Coverage = field(default_factory=Coverage)
    """What the models saw of the text: characters, tokens, windows; and how many answers were withheld."""
    problem: str | None = None
    """Why the models could not annotate the document; None if they did."""

    @property
    def label(self) -> str | None:
        """The label of the document, or the first of several."""
        return self.labels[0] if self.labels else None

    @property
    def triples(self) -> tuple[Triple, ...]:
        """The relations between two entities, with the entities themselves."""
        entities = {entity.id: entity for entity in self.entities}
        pairs = ((relation, [entities.get(target) for _, target in relation.arguments]) for relation in self.relations)
        return tuple(
            Triple(ends[0], relation.label, ends[1], relation.score)
            for relation, ends in pairs
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without `sections` and `meta`, which `alembert.write` keeps; empty values are left out."""
        parts: dict[str, Any] = {
            "labels": list(self.labels),
            "probabilities": dict(self.probabilities),
            "value": self.value,
            "triples": [triple.to_dict() for triple in self.triples],
            "problem": self.problem,
        }
        entities = [entity_dict(entity) for entity in self.entities]
        present = {name: part for name, part in parts.items() if part not in ([], {}, None)}
        return {
            "id": self.id,
            "text": self.text,
            "entities": entities,
            **present,
            "coverage": coverage_dict(self.coverage),
        }

    def _repr_html_(self) -> str:
        triples = [(part.head.text, part.relation, part.tail.text, _percent(part.score)) for part in self.triples]
        labels = [(label, _percent(self.probabilities.get(label))) for label in self.labels]
        value = [("value", f"{self.value:.4g}")] if self.value is not None else []
        problem = [("problem", self.problem)] if self.problem else []
        tables = _render_rows([*labels, *value, *problem]) + _render_rows(triples)
        return render_fragment(_render_entities(self) + tables)


class _Prediction:
    """What predictions that are no documents have in common."""

    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is None or empty is left out."""
        table = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        plain = {name: _to_plain(value) for name, value in table.items() if name != "coverage"}
        present = {name: value for name, value in plain.items() if value not in (None, [], {})}
        return {**present, "coverage": coverage_dict(self.coverage)}

    def _repr_html_(self) -> str:
        rows = {name: value for name, value in self.to_dict().items() if name != "coverage"}
        return render_fragment(_render_rows([(name, str(value)) for name, value in rows.items()]))


@dataclass(frozen=True, kw_only=True)
class PairPrediction(_Prediction):
    """What a classifier of text pairs says about two texts: a label, several labels or a number."""

    id: str
    texts: tuple[str, ...]
    label: str | None = None
    labels: tuple[str, ...] = ()
    probabilities: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    value: float | None = None
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, kw_only=True)
class RecordPrediction(_Prediction):
    """What a task says that has no kind of prediction of its own: the record that it writes."""

    id: str
    record: Mapping[str, Any]
    coverage: Coverage = field(default_factory=Coverage)

    def to_dict(self) -> dict[str, Any]:
        """Return the record."""
        return {**self.record, "coverage": coverage_dict(self.coverage)}


@dataclass(frozen=True)
class AnswerCandidate:
    """A span of the passage that may answer the question."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, kw_only=True)
class AnswerPrediction(_Prediction):
    """The answer to a question: a span of the passage, or a label such as yes or no."""

    id: str
    question: str
    passage: str
    text: str | None = None
    """The answer, a part of the passage; None if the passage has none, or if the answer is a label."""
    start: int | None = None
    end: int | None = None
    label: str | None = None
    score: float | None = None
    null_score: float | None = None
    """How much better "no answer" scores than the best answer."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    candidates: tuple[AnswerCandidate, ...] = ()
    """The best answers, the likeliest first."""
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, kw_only=True)
class ChoicePrediction(_Prediction):
    """The choice that answers a question."""

    id: str
    question: str
    choices: tuple[str, ...]
    choice: str
    """Text of the best choice."""
    index: int
    """Its place among the choices, from 0."""
    score: float
    probabilities: tuple[float, ...]
    """One for each choice."""
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, kw_only=True)
class SimilarityPrediction(_Prediction):
    """Cosine similarities between the first of some texts and each of the others."""

    id: str
    texts: tuple[str, ...]
    similarities: tuple[float, ...]
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def similarity(self) -> float | None:
        """The similarity of the first two texts."""
        return self.similarities[0] if self.similarities else None


@dataclass(frozen=True, kw_only=True)
class GenerationPrediction(_Prediction):
    """A text that was generated from the input, or sentences that were extracted from it."""

    id: str
    text: str | None
    score: float | None = None
    """Sum of the log probabilities of its tokens; None for an extract."""
    candidates: tuple[str, ...] = ()
    """Further texts, if several were asked for."""
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, kw_only=True)
class FailedPrediction(_Prediction):
    """Stands in a stream for an input that could not be predicted."""

    id: str
    problem: str
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, kw_only=True)
class SearchHit:
    """A text of an index that is near to a query."""

    text: str
    score: float
    id: str
    """Id of the document that the text is from."""
    source: str
    start: int
    end: int

    @classmethod
    def of(cls, hit: Hit, unit: TextUnit) -> SearchHit:
        """Put a row of an index and its score together."""
        return cls(**asdict(unit), score=hit.score)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


Prediction = (
    AnnotatedDocument
    | PairPrediction
    | AnswerPrediction
    | ChoicePrediction
    | SimilarityPrediction
    | GenerationPrediction
    | RecordPrediction
)


def entity_dict(entity: Entity) -> dict[str, Any]:
    """Return an entity as plain values for JSON."""
    table: dict[str, Any] = {
        "text": entity.text,
        "label": entity.label,
        "start": entity.start,
        "end": entity.end,
    }
    if entity.score is not None:
        table["score"] = entity.score
    if len(entity.spans) > 1:
        table["spans"] = [list(span) for span in entity.spans]
    return table | ({"concepts": list(entity.concepts)} if entity.concepts else {})


def coverage_dict(coverage: Coverage) -> dict[str, int]:
    """Return the counts of a coverage that belong to a single text."""
    counts = asdict(coverage)
    return {name: counts[name] for name in _SHOWN_COUNTS if counts[name] or name in _SHOWN_COUNTS[:3]}


def _to_plain(value: Any) -> Any:
    if isinstance(value, AnswerCandidate):
        return asdict(value)
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _percent(score: float | None) -> str:
    return "" if score is None else f"{score:.1%}"


def _render_entities(document: Document) -> str:
    """Return the text with its entities marked; overlapping ones share the characters they share."""
    marks = [
        EntityMark(start, end, entity.label, score=entity.score)
        for entity in document.entities
        for start, end in entity.spans
    ]
    colours = _assign_colours(sorted({entity.label for entity in document.entities}))
    return render_text(render_runs(split_runs(document.text, marks), lambda run: colours[run.inside[-1].label]))


def _assign_colours(labels: Sequence[str]) -> dict[str, int]:
    """Choose a colour for each label: the same in all documents, unless another label took it first."""
    colours: dict[str, int] = {}
    for label in labels:
        first = crc32(label.encode("utf8", "surrogatepass"))
        numbers = [(first + step) % len(COLOURS) for step in range(len(COLOURS))]
        colours[label] = next((number for number in numbers if number not in colours.values()), numbers[0])
    return colours


def _render_rows(rows: Sequence[Sequence[str]]) -> str:
    return render_table((), rows, range(4)) if rows else ""
