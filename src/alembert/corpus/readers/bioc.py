"""The common part of BioC XML and BioC JSON: build a document from passages at offsets with annotations.

Passages are placed at their offsets, with line breaks in the gaps, so that the offsets of annotations stay valid. A
passage that overlaps the one before it, or lies very far behind it (files that count bytes, or count each passage from
0), follows the text before it and its annotations move along, which is counted. An annotation whose words are not at
its offset is corrected or set aside by the rules of `mentions`. A concept is the infon "identifier" (several are joined
by "|", "," or ";"), the label is "type"; all other infons are attributes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from alembert.corpus.document import Document, Entity, Relation, Section, Span, StringPairs
from alembert.corpus.readers.contract import Item
from alembert.corpus.readers.mentions import (
    locate_mention,
    make_ids_unique,
    partition_relations,
    split_concepts,
    unlinked_reason,
)
from alembert.corpus.readers.source import SourceFile

_WIDEST_GAP = 1000
_CONCEPT_KEYS = ("identifier", "Identifier", "MESH", "concept_id")


@dataclass(frozen=True)
class BioCAnnotation:
    """A mention as the file has it."""

    id: str
    infons: dict[str, str]
    spans: tuple[Span, ...]
    surface: str | None


@dataclass(frozen=True)
class BioCPassage:
    """A text at an offset, with its annotations."""

    offset: int
    infons: dict[str, str]
    text: str
    annotations: list[BioCAnnotation]


@dataclass
class BioCDocument:
    """A BioC document before its passages are joined."""

    id: str
    infons: dict[str, str] = field(default_factory=dict)
    passages: list[BioCPassage] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)


def join_sentences(sentences: Iterable[tuple[int, str]], offset: int) -> str:
    """Join the sentences of a passage without a text of its own, at their offsets."""
    text = ""
    for start, sentence in sentences:
        gap = start - offset - len(text)
        text += " " * (gap if 0 <= gap <= _WIDEST_GAP else 1) + sentence
    return text


def build_bioc_items(entry: BioCDocument, source: SourceFile) -> Iterator[Item]:
    """Yield the document of an entry, and the annotations that had to be set aside."""
    text, shifts = _lay_out(entry.passages, source)
    if not text.strip():
        yield source.set_aside("the document has no passage with text", entry.id)
        return
    entities: list[Entity] = []
    named = {target for relation in entry.relations for _, target in relation.arguments + relation.attributes}
    for passage, shift in zip(entry.passages, shifts, strict=True):
        for annotation in passage.annotations:
            entity = _entity(annotation, text, shift, source, named)
            if entity is None:
                yield source.set_aside(
                    f"annotation {annotation.id} has no place that its words agree on", entry.id, kind="annotation"
                )
            else:
                entities.append(entity)
    entities = list(make_ids_unique(entities, source))
    relations, unlinked = partition_relations(entry.relations, entities)
    yield from (source.set_aside(reason, entry.id, kind="annotation") for reason in map(unlinked_reason, unlinked))
    document = _document(entry, text, tuple(_sections(entry.passages, shifts)), entities)
    yield replace(document, relations=tuple(relations), unlinked_relations=tuple(unlinked))


def _document(entry: BioCDocument, text: str, sections: tuple[Section, ...], entities: list[Entity]) -> Document:
    meta = {key: value for key, value in entry.infons.items() if key not in ("language", "labels")}
    labels = entry.infons.get("labels", "")
    return Document(
        id=entry.id,
        text=text,
        sections=sections,
        entities=tuple(entities),
        labels=tuple(labels.split("|")) if labels else (),
        meta=meta,
        language=entry.infons.get("language"),
    )


def _lay_out(passages: list[BioCPassage], source: SourceFile) -> tuple[str, list[int]]:
    """Place the passages at their offsets; return the text and how far each passage was moved."""
    parts: list[str] = []
    shifts: list[int] = []
    length = 0
    for passage in passages:
        gap = passage.offset - length
        if not 0 <= gap <= _WIDEST_GAP:
            gap = 1 if length else 0
            source.tally["a passage was moved because its offset does not fit"] += 1
        shifts.append(length + gap - passage.offset)
        parts += ["\n" * gap, passage.text]
        length += gap + len(passage.text)
    return "".join(parts), shifts


def _sections(passages: list[BioCPassage], shifts: list[int]) -> Iterator[Section]:
    for passage, shift in zip(passages, shifts, strict=True):
        kind = passage.infons.get("type") or passage.infons.get("section_type")
        if kind is not None:
            start = passage.offset + shift
            heading = passage.infons.get("heading") or ""
            yield Section(start, start + len(passage.text), kind, heading)


def _entity(
    annotation: BioCAnnotation, text: str, shift: int, source: SourceFile, named: Container[str]
) -> Entity | None:
    spans = tuple(sorted((start + shift, end + shift) for start, end in annotation.spans))
    located = locate_mention(source, text, spans, annotation.surface)
    if located is None:
        return None
    key = next((key for key in _CONCEPT_KEYS if annotation.infons.get(key)), None)
    concepts = split_concepts(annotation.infons[key], named) if key else ()
    label = annotation.infons.get("type") or "entity"
    rest: StringPairs = tuple((name, value) for name, value in annotation.infons.items() if name not in ("type", key))
    return Entity(annotation.id, label, located, concepts, rest)


def build_relation(name: str, infons: dict[str, str], nodes: list[tuple[str, str]]) -> Relation:
    """Build a relation from its infons and its nodes, each a role and a reference."""
    label = infons.get("type") or infons.get("relation") or "relation"
    rest = tuple((name, value) for name, value in infons.items() if name not in ("type", "relation"))
    return Relation(name, label, tuple(nodes), rest)
