"""BioC XML and BioC JSON: a document from passages at offsets with annotations.

Passages are placed at their offsets, with line breaks in the gaps, so that the offsets of annotations stay valid. A
passage that overlaps the one before it, or lies very far behind it (files that count bytes, or count each passage from
0), follows the text before it and its annotations move along, which is counted. An annotation whose words are not at
its offset is corrected or set aside by the rules of `mentions`. A concept is the infon "identifier" (several are joined
by "|", "," or ";"), the label is "type"; all other infons are attributes.

BioC JSON: one collection with its ``documents``, a list of collections, or one document or collection a line.

The documents of a collection are read one at a time wherever ``"documents": [`` begins an array, so that a
collection of any size is streamed; PubTator 3 calls the same array ``PubTator3``. Infon values that are not strings
become strings, null ones are left out.

BioC XML: collections of documents with passages, annotations and relations.

Documents are cut out of the collection and parsed one at a time (see `xml_records`). The text of a passage may be in
its sentences; annotations and relations may be in either, relations also in the document.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from alembert.corpus.document import Document, Entity, Relation, Section, Span, StringPairs, parse_offset
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.jsonlines import check_json_value, iter_json_values, read_json_records
from alembert.corpus.readers.mentions import (
    locate_mention,
    make_ids_unique,
    partition_relations,
    split_concepts,
    unlinked_reason,
)
from alembert.corpus.readers.source import SourceFile
from alembert.corpus.readers.xml_records import XmlRecordReader
from alembert.errors import BadInput

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


DOCUMENTS_PATTERN = re.compile(r'(?<!\\)"(?:documents|PubTator3)"\s*:\s*\[')


def read_json(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a BioC JSON file."""
    for number, record in enumerate(_json_documents(source), start=1):
        if isinstance(record, SetAside):
            yield record
            continue
        if not isinstance(record, Mapping):
            yield source.set_aside("the record is not a BioC document")
            continue
        try:
            entry = _entry_from_json(record, f"{source.stem}-{number}")
        except (KeyError, TypeError, ValueError, AttributeError):
            yield source.set_aside("the BioC document lacks a field, or one has the wrong type")
            continue
        yield from build_bioc_items(entry, source)


def _json_documents(source: SourceFile) -> Iterator[Any]:
    head = source.head().decode(source.encoding(), errors="replace")
    if not DOCUMENTS_PATTERN.search(head):
        yield from read_json_records(source)
        return
    values = iter_json_values(source.characters(), source.options.max_record, DOCUMENTS_PATTERN)
    for number, value in enumerate(values, start=1):
        source.position = f"record {number}"
        yield check_json_value(value, source)


def _entry_from_json(record: Mapping[str, Any], name: str) -> BioCDocument:
    entry = BioCDocument(str(record.get("id") or record.get("pmid") or name), _infons_from_json(record))
    relations = list(record.get("relations") or ())
    for passage in record["passages"]:
        relations += passage.get("relations") or ()
        entry.passages.append(_passage_from_json(passage))
    for number, relation in enumerate(relations, start=1):
        nodes = [(str(node.get("role") or ""), str(node["refid"])) for node in relation.get("nodes") or ()]
        entry.relations.append(
            build_relation(str(relation.get("id") or f"R{number}"), _infons_from_json(relation), nodes)
        )
    return entry


def _infons_from_json(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (record.get("infons") or {}).items() if value is not None}


def _passage_from_json(record: Mapping[str, Any]) -> BioCPassage:
    start = parse_offset(record["offset"])
    sentences = record.get("sentences") or ()
    annotation_records = [*(record.get("annotations") or ())]
    for sentence in sentences:
        annotation_records += sentence.get("annotations") or ()
    text = record.get("text")
    if not isinstance(text, str):
        text = join_sentences(
            ((parse_offset(part["offset"]), str(part.get("text") or "")) for part in sentences), start
        )
    annotations = [_annotation_from_json(part, number) for number, part in enumerate(annotation_records, start=1)]
    return BioCPassage(start, _infons_from_json(record), text, annotations)


def _annotation_from_json(record: Mapping[str, Any], number: int) -> BioCAnnotation:
    locations = [
        (parse_offset(location["offset"]), parse_offset(location["length"])) for location in record["locations"]
    ]
    spans = tuple((start, start + length) for start, length in locations)
    surface = record.get("text")
    return BioCAnnotation(
        str(record.get("id") or f"T{number}"),
        _infons_from_json(record),
        spans,
        surface if isinstance(surface, str) else None,
    )


def read_xml(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a BioC XML collection."""
    records = XmlRecordReader(source, "document")
    for number, cut in enumerate(records.iter_records(), start=1):
        if isinstance(cut, SetAside):
            yield cut
            continue
        try:
            entry = _entry_from_xml(records.element(cut.content), f"{source.stem}-{number}")
        except BadInput as wrong:
            yield source.set_aside(str(wrong))
            continue
        except (ValueError, TypeError):
            yield source.set_aside("an offset or a length of the document is not a number")
            continue
        yield from build_bioc_items(entry, source)


def _entry_from_xml(document: Any, name: str) -> BioCDocument:
    entry = BioCDocument((document.findtext("id") or "").strip() or name, _infons_from_xml(document))
    for passage in document.iterfind("passage"):
        entry.passages.append(_passage_from_xml(passage))
    for number, relation in enumerate(document.iter("relation"), start=1):
        nodes = [(node.get("role") or "", node.get("refid") or "") for node in relation.iterfind("node")]
        entry.relations.append(build_relation(relation.get("id") or f"R{number}", _infons_from_xml(relation), nodes))
    return entry


def _infons_from_xml(element: Any) -> dict[str, str]:
    return {infon.get("key") or "": infon.text or "" for infon in element.iterfind("infon")}


def _passage_from_xml(passage: Any) -> BioCPassage:
    offset = int(passage.findtext("offset") or 0)
    annotations = [
        _annotation_from_xml(element, number) for number, element in enumerate(passage.iter("annotation"), start=1)
    ]
    text = passage.findtext("text")
    if text is None:
        sentences = passage.iterfind("sentence")
        text = join_sentences(
            ((int(element.findtext("offset") or 0), element.findtext("text") or "") for element in sentences), offset
        )
    return BioCPassage(offset, _infons_from_xml(passage), text, annotations)


def _annotation_from_xml(element: Any, number: int) -> BioCAnnotation:
    locations = [
        (int(location.get("offset")), int(location.get("length"))) for location in element.iterfind("location")
    ]
    spans = tuple((start, start + length) for start, length in locations)
    return BioCAnnotation(element.get("id") or f"T{number}", _infons_from_xml(element), spans, element.findtext("text"))
