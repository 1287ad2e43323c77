"""The common part of the BioC writers: split a document into passages, and convert its fields to infons.

Sections become passages of their kind; text between sections becomes passages without a type, except line breaks, which
the offsets of passages imply. Read back, the text and all offsets are the same. Infons are strings with unique
keys: other values of `meta` are written as JSON, and a second attribute of the same name is lost; both are counted.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from alembert.corpus.document import Document, Entity, Relation, StringPairs
from alembert.corpus.writers import ConversionLosses, join_concepts

_WIDEST_GAP = 1000


@dataclass
class BioCOutputPassage:
    """A span of the text with the entities that begin in it."""

    start: int
    end: int
    infons: dict[str, str] = field(default_factory=dict)
    entities: list[Entity] = field(default_factory=list)


def split_into_passages(document: Document) -> list[BioCOutputPassage]:
    """Split a document into passages with their entities."""
    passages = list(_split(document))
    starts = [passage.start for passage in passages]
    for entity in document.entities:
        passages[max(0, bisect_right(starts, entity.start) - 1)].entities.append(entity)
    return passages


def _split(document: Document) -> Iterator[BioCOutputPassage]:
    at = 0
    for section in document.sections:
        gap = document.text[at : section.start]
        if gap.strip("\n") or len(gap) > _WIDEST_GAP:
            yield BioCOutputPassage(at, section.start)
        infons = {"type": section.kind} | ({"heading": section.heading} if section.heading else {})
        yield BioCOutputPassage(section.start, section.end, infons)
        at = section.end
    if at < len(document.text):
        yield BioCOutputPassage(at, len(document.text))


def document_infons(document: Document, losses: ConversionLosses) -> dict[str, str]:
    infons = {"language": document.language} if document.language else {}
    if document.labels:
        infons["labels"] = "|".join(document.labels)
    return infons | dict(_unique(_strings(document.meta.items(), losses), {"language", "labels"}, losses))


def _strings(pairs: Iterable[tuple[str, Any]], losses: ConversionLosses) -> Iterator[tuple[str, str]]:
    for name, value in pairs:
        losses["meta values that are not strings were written as JSON"] += not isinstance(value, str)
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unique(pairs: Iterable[tuple[str, str]], used: set[str], losses: ConversionLosses) -> Iterator[tuple[str, str]]:
    for name, value in pairs:
        losses["no place in the format for attributes whose name is taken"] += name in used
        if name not in used:
            used.add(name)
            yield name, value


def entity_infons(entity: Entity, losses: ConversionLosses) -> dict[str, str]:
    infons = {"type": entity.label}
    if entity.concepts:
        infons["identifier"] = join_concepts(entity, losses)
    return infons | _attribute_infons(entity.attributes, losses)


def relation_infons(relation: Relation, losses: ConversionLosses) -> dict[str, str]:
    return {"type": relation.label} | _attribute_infons(relation.attributes, losses)


def _attribute_infons(attributes: StringPairs, losses: ConversionLosses) -> dict[str, str]:
    return dict(_unique(attributes, {"type", "identifier", "relation"}, losses))
