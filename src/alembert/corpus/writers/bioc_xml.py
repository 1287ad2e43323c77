"""BioC XML: one collection, written document by document, in the order of elements that the BioC DTD requires.

Characters that XML cannot hold (most control characters) become U+FFFD one for one, so that offsets stay valid, and are
counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lxml import etree

from alembert.corpus.document import Document, Entity
from alembert.corpus.writers import ConversionLosses, OutputTarget, list_all_relations, open_output
from alembert.corpus.writers.bioc import (
    BioCOutputPassage,
    document_infons,
    entity_infons,
    relation_infons,
    split_into_passages,
)

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_START = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>alembert</source><date></date><key></key>
"""


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
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
