"""The `Document`, which readers return and writers take: a text with all its annotations.

A `Document` is one text with sections, entities, relations and labels; every offset counts characters (code points) of
`Document.text`, the end not included, so that ``text[start:end]`` is the surface. Nothing in here knows a file format.
The record form (`to_record`, `from_record`) is the native JSON lines annotation format, described in docs/formats.md.

Conventions of all readers: sections are in order and do not overlap; a heading that is text in the source is text here,
in a section of kind "heading"; a heading that is an attribute in the source is only `Section.heading`. The arguments of
a relation name entities or other relations of the same document, or, where the source relates concepts and not mentions
(PubTator), a concept id that at least one entity has. A relation that names anything else is in `unlinked_relations`:
the source states it, and training and scoring must take it into account.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from alembert.errors import BadInput

Span = tuple[int, int]
StringPairs = tuple[tuple[str, str], ...]
SCORE_ATTRIBUTE: Final = "score"
"""Attribute with the model's confidence in an entity or a relation."""
TermSpan = tuple[int, int, str, tuple[str, ...]]
"""Start, end, label and concepts of a match of a lexicon."""
FROM_LEXICON: Final[StringPairs] = (("source", "lexicon"),)
"""Attributes of an entity that a lexicon found."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the text: a title, a heading, a part of an abstract, a paragraph group, a sentence."""

    start: int
    end: int
    kind: str
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """A mention: one span, or several when it is discontinuous; `attributes` are name and value pairs."""

    id: str
    label: str
    spans: tuple[Span, ...]
    concepts: tuple[str, ...] = ()
    attributes: StringPairs = ()
    text: str = field(default="", compare=False)
    """The words of the mention; the document that holds the entity sets it."""

    @property
    def start(self) -> int:
        """Offset of the first character."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """Offset after the last character."""
        return self.spans[-1][1]

    @property
    def score(self) -> float | None:
        """The model's confidence, from 0 to 1; None if no model found the entity."""
        return get_score(self.attributes)

    def surface(self, text: str) -> str:
        """Return the text of the mention; the fragments of a discontinuous one are joined by a space.

        >>> Entity("T1", "Disease", ((0, 6), (18, 24))).surface("breast or ovarian cancer")
        'breast cancer'
        """
        if len(self.spans) == 1:
            return text[slice(*self.spans[0])]
        return " ".join(text[start:end] for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class Relation:
    """A labelled link between arguments, each a role and the id of an entity, a relation or a concept."""

    id: str
    label: str
    arguments: StringPairs
    attributes: StringPairs = ()

    @property
    def score(self) -> float | None:
        """The model's confidence, from 0 to 1; None if no model found the relation."""
        return get_score(self.attributes)


@dataclass(frozen=True, slots=True)
class Document:
    """One text and what is known about it; `meta` holds JSON values, `language` is an ISO 639 code or None."""

    id: str
    text: str
    sections: tuple[Section, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    language: str | None = None
    unlinked_relations: tuple[Relation, ...] = ()
    """Relations one of whose arguments the document does not have."""

    def __post_init__(self) -> None:
        # Always from this text: an entity that comes from another document may carry the surface it had there.
        if self.entities:
            object.__setattr__(self, "entities", tuple(_with_surface(entity, self.text) for entity in self.entities))

    @property
    def is_annotated(self) -> bool:
        """Whether anything beyond the text is known of it: entities, relations or labels."""
        return bool(self.entities or self.relations or self.unlinked_relations or self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as a JSON object, in the native annotation format."""
        return to_record(self)


def _with_surface(entity: Entity, text: str) -> Entity:
    surface = entity.surface(text)
    return entity if entity.text == surface else replace(entity, text=surface)


def get_score(attributes: StringPairs) -> float | None:
    """Return the confidence among attributes, if there is one and it is a number."""
    for name, value in attributes:
        if name == SCORE_ATTRIBUTE:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def add_lexicon_terms(document: Document, terms: Iterable[TermSpan]) -> Document:
    """Add matches of lexicons as entities, sorted by offset and marked with `FROM_LEXICON`."""
    names = generate_unused_ids("T", document)
    fresh = [
        Entity(next(names), label, ((start, end),), concepts, FROM_LEXICON) for start, end, label, concepts in terms
    ]
    together = sorted((*document.entities, *fresh), key=lambda entity: entity.start)
    return replace(document, entities=tuple(together)) if fresh else document


def generate_unused_ids(letter: str, document: Document) -> Iterator[str]:
    """Yield numbered ids that no annotation of a document has."""
    used = collect_targets(document.entities, document.relations)
    return (name for name in (f"{letter}{number}" for number in count(1)) if name not in used)


def collect_targets(entities: Iterable[Entity], relations: Iterable[Relation] = ()) -> set[str]:
    """Collect what the arguments of a relation may name: ids of entities, their concepts, and ids of relations."""
    names = {name for entity in entities for name in (entity.id, *entity.concepts)}
    return names | {relation.id for relation in relations}


def find_problems(document: Document) -> Iterator[str]:
    """Yield a sentence for each inconsistency of a document."""
    yield from _section_problems(document)
    yield from _entity_problems(document)
    yield from _relation_problems(document)


def _section_problems(document: Document) -> Iterator[str]:
    before = 0
    for section in document.sections:
        if not before <= section.start <= section.end <= len(document.text):
            yield f"section {section.start}-{section.end} is out of order or outside the text"
        before = max(before, section.end)


def _entity_problems(document: Document) -> Iterator[str]:
    seen: set[str] = set()
    for entity in document.entities:
        if entity.id in seen:
            yield f"entity id {entity.id} occurs twice"
        seen.add(entity.id)
        if not are_valid_spans(entity.spans, len(document.text)):
            yield f"entity {entity.id} has spans that are empty, overlap, are out of order or outside the text"


def _relation_problems(document: Document) -> Iterator[str]:
    targets = collect_targets(document.entities, document.relations)
    for relation in document.relations:
        missing = [target for _, target in relation.arguments if target not in targets]
        if missing:
            yield f"relation {relation.id} names {missing[0]}, which the document does not have"


def are_valid_spans(spans: tuple[Span, ...], length: int) -> bool:
    """Check for at least one span, and that spans are not empty, in order, disjoint and inside the text."""
    before = 0
    for start, end in spans:
        if not before <= start < end <= length:
            return False
        before = end
    return bool(spans)


def to_record(document: Document) -> dict[str, Any]:
    """Convert a document to the JSON object of the native annotation format, without empty fields."""
    record: dict[str, Any] = {"id": document.id, "text": document.text}
    if document.language is not None:
        record["language"] = document.language
    parts = {
        "sections": [_section_record(section) for section in document.sections],
        "entities": [_entity_record(entity) for entity in document.entities],
        "relations": [_relation_record(relation) for relation in document.relations],
        "unlinked_relations": [_relation_record(relation) for relation in document.unlinked_relations],
        "labels": list(document.labels),
        "meta": dict(document.meta),
    }
    return record | {key: value for key, value in parts.items() if value}


def _section_record(section: Section) -> dict[str, Any]:
    record: dict[str, Any] = {"start": section.start, "end": section.end, "kind": section.kind}
    return record | ({"heading": section.heading} if section.heading else {})


def _entity_record(entity: Entity) -> dict[str, Any]:
    record: dict[str, Any] = {"id": entity.id, "label": entity.label, "spans": [list(span) for span in entity.spans]}
    if entity.concepts:
        record["concepts"] = list(entity.concepts)
    return record | ({"attributes": [list(pair) for pair in entity.attributes]} if entity.attributes else {})


def _relation_record(relation: Relation) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": relation.id,
        "label": relation.label,
        "arguments": [list(pair) for pair in relation.arguments],
    }
    return record | ({"attributes": [list(pair) for pair in relation.attributes]} if relation.attributes else {})


def from_record(record: Mapping[str, Any]) -> Document:
    """Convert a JSON object of the native format to a document, or raise `BadInput` with the reason."""
    try:
        document = Document(
            id=_string(record["id"]),
            text=_string(record["text"]),
            sections=tuple(_section(section) for section in record.get("sections") or ()),
            entities=tuple(_entity(entity) for entity in record.get("entities") or ()),
            relations=tuple(_relation(relation) for relation in record.get("relations") or ()),
            labels=tuple(_string(label) for label in record.get("labels") or ()),
            meta=dict(record.get("meta") or {}),
            language=record.get("language"),
            unlinked_relations=tuple(map(_relation, record.get("unlinked_relations") or ())),
        )
    except KeyError as missing:
        raise BadInput(f"The annotation record has no {missing}, which it needs.") from None
    except (TypeError, ValueError, AttributeError):
        raise BadInput(
            "The annotation record has a field of the wrong type; docs/formats.md shows the layout."
        ) from None
    problem = next(find_problems(document), None)
    if problem is not None:
        raise BadInput(f"The annotation record is not sound: {problem}.")
    return document


def parse_offset(value: Any) -> int:
    """Parse an offset, an integer or its decimal digits; raise ValueError for anything else."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _pairs(rows: Any) -> StringPairs:
    return tuple((_string(name), _string(value)) for name, value in rows or ())


def _section(record: Mapping[str, Any]) -> Section:
    return Section(
        parse_offset(record["start"]), parse_offset(record["end"]), _string(record["kind"]), record.get("heading") or ""
    )


def _entity(record: Mapping[str, Any]) -> Entity:
    return Entity(
        id=_string(record["id"]),
        label=_string(record["label"]),
        spans=tuple((parse_offset(start), parse_offset(end)) for start, end in record["spans"]),
        concepts=tuple(_string(concept) for concept in record.get("concepts") or ()),
        attributes=_pairs(record.get("attributes")),
    )


def _relation(record: Mapping[str, Any]) -> Relation:
    return Relation(
        id=_string(record["id"]),
        label=_string(record["label"]),
        arguments=_pairs(record["arguments"]),
        attributes=_pairs(record.get("attributes")),
    )


def hash_id(name: str) -> int:
    """Return 64 bits that stand for the id of a document."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest())
