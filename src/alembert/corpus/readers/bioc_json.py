"""BioC JSON: one collection with its ``documents``, a list of collections, or one document or collection a line.

The documents of a collection are read one at a time wherever ``"documents": [`` begins an array, so that a collection
of any size is streamed; PubTator 3 calls the same array ``PubTator3``. Infon values that are not strings become strings,
null ones are left out. `bioc` describes how offsets and infons are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from alembert.corpus.document import parse_offset
from alembert.corpus.readers.bioc import (
    BioCAnnotation,
    BioCDocument,
    BioCPassage,
    build_bioc_items,
    build_relation,
    join_sentences,
)
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.jsonlines import check_json_value, iter_json_values, read_json_records
from alembert.corpus.readers.source import SourceFile

DOCUMENTS_PATTERN = re.compile(r'(?<!\\)"(?:documents|PubTator3)"\s*:\s*\[')


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a BioC JSON file."""
    for number, record in enumerate(_documents(source), start=1):
        if isinstance(record, SetAside):
            yield record
            continue
        if not isinstance(record, Mapping):
            yield source.set_aside("the record is not a BioC document")
            continue
        try:
            entry = _entry(record, f"{source.stem}-{number}")
        except (KeyError, TypeError, ValueError, AttributeError):
            yield source.set_aside("the BioC document lacks a field, or one has the wrong type")
            continue
        yield from build_bioc_items(entry, source)


def _documents(source: SourceFile) -> Iterator[Any]:
    head = source.head().decode(source.encoding(), errors="replace")
    if not DOCUMENTS_PATTERN.search(head):
        yield from read_json_records(source)
        return
    values = iter_json_values(source.characters(), source.options.max_record, DOCUMENTS_PATTERN)
    for number, value in enumerate(values, start=1):
        source.position = f"record {number}"
        yield check_json_value(value, source)


def _entry(record: Mapping[str, Any], name: str) -> BioCDocument:
    entry = BioCDocument(str(record.get("id") or record.get("pmid") or name), _infons(record))
    relations = list(record.get("relations") or ())
    for passage in record["passages"]:
        relations += passage.get("relations") or ()
        entry.passages.append(_passage(passage))
    for number, relation in enumerate(relations, start=1):
        nodes = [(str(node.get("role") or ""), str(node["refid"])) for node in relation.get("nodes") or ()]
        entry.relations.append(build_relation(str(relation.get("id") or f"R{number}"), _infons(relation), nodes))
    return entry


def _infons(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (record.get("infons") or {}).items() if value is not None}


def _passage(record: Mapping[str, Any]) -> BioCPassage:
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
    annotations = [_annotation(part, number) for number, part in enumerate(annotation_records, start=1)]
    return BioCPassage(start, _infons(record), text, annotations)


def _annotation(record: Mapping[str, Any], number: int) -> BioCAnnotation:
    locations = [
        (parse_offset(location["offset"]), parse_offset(location["length"])) for location in record["locations"]
    ]
    spans = tuple((start, start + length) for start, length in locations)
    surface = record.get("text")
    return BioCAnnotation(
        str(record.get("id") or f"T{number}"), _infons(record), spans, surface if isinstance(surface, str) else None
    )
