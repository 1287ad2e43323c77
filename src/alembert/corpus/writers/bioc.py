"""BioC XML and BioC JSON: one collection, written document by document.

Sections become passages of their kind; text between sections becomes passages without a type, except line breaks, which
the offsets of passages imply. Read back, the text and all offsets are the same. Infons are strings with unique keys:
other values of `meta` are written as JSON, and a second attribute of the same name is lost; both are counted.

BioC XML has the order of elements that the BioC DTD requires. Characters that XML cannot hold (most control characters)
become U+FFFD one for one, so that offsets stay valid, and are counted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lxml import etree

from alembert.corpus.document import Document, Entity, Relation, StringPairs
from alembert.corpus.writers import ConversionLosses, OutputTarget, join_concepts, list_all_relations, open_output

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


def write_json(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as a BioC JSON collection; return what it cannot hold."""
    losses = ConversionLosses()
    with open_output(target) as file:
        file.write(b'{"source":"alembert","date":"","key":"","infons":{},"documents":[')
        for number, document in enumerate(documents):
            record = json.dumps(_document(document, losses), ensure_ascii=False, separators=(",", ":"))
            file.write((b",\n" if number else b"\n") + record.encode())
        file.write(b"\n]}\n")
    return +losses


def _document(document: Document, losses: ConversionLosses) -> dict[str, Any]:
    return {
        "id": document.id,
        "infons": document_infons(document, losses),
        "passages": [_passage(passage, document.text, losses) for passage in split_into_passages(document)],
        "relations": [_relation(relation, losses) for relation in list_all_relations(document)],
    }


def _passage(passage: BioCOutputPassage, text: str, losses: ConversionLosses) -> dict[str, Any]:
    return {
        "offset": passage.start,
        "infons": passage.infons,
        "text": text[passage.start : passage.end],
        "sentences": [],
        "annotations": [_annotation(entity, text, losses) for entity in passage.entities],
        "relations": [],
    }


def _annotation(entity: Entity, text: str, losses: ConversionLosses) -> dict[str, Any]:
    return {
        "id": entity.id,
        "infons": entity_infons(entity, losses),
        "text": entity.surface(text),
        "locations": [{"offset": start, "length": end - start} for start, end in entity.spans],
    }


def _relation(relation: Relation, losses: ConversionLosses) -> dict[str, Any]:
    nodes = [{"role": role, "refid": target} for role, target in relation.arguments]
    return {"id": relation.id, "infons": relation_infons(relation, losses), "nodes": nodes}


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_START = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>alembert</source><date></date><key></key>
"""


def write_xml(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
    """Write documents as a BioC XML collection; return what it cannot hold."""
    builder = _Builder()
    with open_output(target) as file:
        file.write(_START)
        for document in documents:
            file.write(etree.tostring(builder.document(document), encoding="utf-8") + b"\n")
        file.write(b"</collection>\n")
    return +builder.losses


class _Builder:
    """Builds elements and counts what they cannot hold."""

    def __init__(self) -> None:
        self.losses = ConversionLosses()

    def document(self, document: Document) -> Any:
        element = etree.Element("document")
        self._add(element, "id", document.id)
        self._infons(element, document_infons(document, self.losses))
        for passage in split_into_passages(document):
            self._passage(element, passage, document.text)
        for relation in list_all_relations(document):
            child = etree.SubElement(element, "relation", id=self._legal(relation.id))
            self._infons(child, relation_infons(relation, self.losses))
            for role, target in relation.arguments:
                etree.SubElement(child, "node", refid=self._legal(target), role=self._legal(role))
        return element

    def _passage(self, parent: Any, passage: BioCOutputPassage, text: str) -> None:
        element = etree.SubElement(parent, "passage")
        self._infons(element, passage.infons)
        self._add(element, "offset", str(passage.start))
        self._add(element, "text", text[passage.start : passage.end])
        for entity in passage.entities:
            self._annotation(element, entity, text)

    def _annotation(self, parent: Any, entity: Entity, text: str) -> None:
        element = etree.SubElement(parent, "annotation", id=self._legal(entity.id))
        self._infons(element, entity_infons(entity, self.losses))
        for start, end in entity.spans:
            etree.SubElement(element, "location", offset=str(start), length=str(end - start))
        self._add(element, "text", entity.surface(text))

    def _infons(self, parent: Any, infons: dict[str, str]) -> None:
        for key, value in infons.items():
            child = etree.SubElement(parent, "infon", key=self._legal(key))
            child.text = self._legal(value)

    def _add(self, parent: Any, tag: str, text: str) -> None:
        etree.SubElement(parent, tag).text = self._legal(text)

    def _legal(self, text: str) -> str:
        clean, count = _FORBIDDEN.subn("�", text)
        self.losses["characters that XML cannot hold were replaced by U+FFFD"] += count
        return clean
