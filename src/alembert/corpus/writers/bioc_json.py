"""BioC JSON: one collection, written document by document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from alembert.corpus.document import Document, Entity, Relation
from alembert.corpus.writers import ConversionLosses, OutputTarget, list_all_relations, open_output
from alembert.corpus.writers.bioc import (
    BioCOutputPassage,
    document_infons,
    entity_infons,
    relation_infons,
    split_into_passages,
)


def write(documents: Iterable[Document], target: OutputTarget) -> ConversionLosses:
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
