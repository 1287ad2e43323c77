"""BioC JSON: one collection with its ``documents``, a list of collections, or one document or collection a line.

The documents of a collection are read one at a time wherever ``"documents": [`` begins an array, so that a collection
of any size is streamed; PubTator 3 calls the same array ``PubTator3``. Infon values that are not strings become strings,
null ones are left out. How offsets and infons are understood is told in `bioc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from alembert.corpus.document import offset
from alembert.corpus.readers.bioc import Annotation, Entry, Passage, items_of, joined, relation_of
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.json_values import values
from alembert.corpus.readers.jsonlines import checked, json_records
from alembert.corpus.readers.source import Source

DOCUMENTS = re.compile(r'(?<!\\)"(?:documents|PubTator3)"\s*:\s*\[')


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a BioC JSON file."""
    for number, record in enumerate(_documents(source), start=1):
        if isinstance(record, SetAside):
            yield record
            continue
        if not isinstance(record, Mapping):
            yield source.aside("the record is not a BioC document")
            continue
        try:
            entry = _entry(record, f"{source.stem}-{number}")
        except (KeyError, TypeError, ValueError, AttributeError):
            yield source.aside("the BioC document lacks a field, or one has the wrong type")
            continue
        yield from items_of(entry, source)


def _documents(source: Source) -> Iterator[Any]:
    head = source.head().decode(source.encoding(), errors="replace")
    if not DOCUMENTS.search(head):
        yield from json_records(source)
        return
    found = values(source.characters(), source.options.max_record, DOCUMENTS)
    for number, value in enumerate(found, start=1):
        source.position = f"record {number}"
        yield checked(value, source)


def _entry(record: Mapping[str, Any], name: str) -> Entry:
    entry = Entry(str(record.get("id") or record.get("pmid") or name), _infons(record))
    relations = list(record.get("relations") or ())
    for passage in record["passages"]:
        relations += passage.get("relations") or ()
        entry.passages.append(_passage(passage))
    for number, relation in enumerate(relations, start=1):
        nodes = [(str(node.get("role") or ""), str(node["refid"])) for node in relation.get("nodes") or ()]
        entry.relations.append(relation_of(str(relation.get("id") or f"R{number}"), _infons(relation), nodes))
    return entry


def _infons(record: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (record.get("infons") or {}).items() if value is not None}


def _passage(record: Mapping[str, Any]) -> Passage:
    start = offset(record["offset"])
    sentences = record.get("sentences") or ()
    stated = [*(record.get("annotations") or ())]
    for sentence in sentences:
        stated += sentence.get("annotations") or ()
    text = record.get("text")
    if not isinstance(text, str):
        text = joined(((offset(found["offset"]), str(found.get("text") or "")) for found in sentences), start)
    annotations = [_annotation(found, number) for number, found in enumerate(stated, start=1)]
    return Passage(start, _infons(record), text, annotations)


def _annotation(record: Mapping[str, Any], number: int) -> Annotation:
    places = [(offset(place["offset"]), offset(place["length"])) for place in record["locations"]]
    spans = tuple((start, start + length) for start, length in places)
    surface = record.get("text")
    return Annotation(
        str(record.get("id") or f"T{number}"),
        _infons(record),
        spans,
        surface if isinstance(surface, str) else None,
    )
