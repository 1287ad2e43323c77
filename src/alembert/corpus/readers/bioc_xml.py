"""BioC XML: collections of documents with passages, annotations and relations.

Documents are cut out of the collection and parsed one at a time (see `xml_records`). The text of a passage may be in its
sentences; annotations and relations may be in either, relations also in the document. `bioc` describes how offsets and
infons are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembert.corpus.readers.bioc import (
    BioCAnnotation,
    BioCDocument,
    BioCPassage,
    build_bioc_items,
    build_relation,
    join_sentences,
)
from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile
from alembert.corpus.readers.xml_records import XmlRecordReader
from alembert.errors import BadInput


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the documents of a BioC XML collection."""
    records = XmlRecordReader(source, "document")
    for number, cut in enumerate(records.iter_records(), start=1):
        if isinstance(cut, SetAside):
            yield cut
            continue
        try:
            entry = _entry(records.element(cut.content), f"{source.stem}-{number}")
        except BadInput as wrong:
            yield source.set_aside(str(wrong))
            continue
        except (ValueError, TypeError):
            yield source.set_aside("an offset or a length of the document is not a number")
            continue
        yield from build_bioc_items(entry, source)


def _entry(document: Any, name: str) -> BioCDocument:
    entry = BioCDocument((document.findtext("id") or "").strip() or name, _infons(document))
    for passage in document.iterfind("passage"):
        entry.passages.append(_passage(passage))
    for number, relation in enumerate(document.iter("relation"), start=1):
        nodes = [(node.get("role") or "", node.get("refid") or "") for node in relation.iterfind("node")]
        entry.relations.append(build_relation(relation.get("id") or f"R{number}", _infons(relation), nodes))
    return entry


def _infons(element: Any) -> dict[str, str]:
    return {infon.get("key") or "": infon.text or "" for infon in element.iterfind("infon")}


def _passage(passage: Any) -> BioCPassage:
    offset = int(passage.findtext("offset") or 0)
    annotations = [_annotation(element, number) for number, element in enumerate(passage.iter("annotation"), start=1)]
    text = passage.findtext("text")
    if text is None:
        sentences = passage.iterfind("sentence")
        text = join_sentences(
            ((int(element.findtext("offset") or 0), element.findtext("text") or "") for element in sentences), offset
        )
    return BioCPassage(offset, _infons(passage), text, annotations)


def _annotation(element: Any, number: int) -> BioCAnnotation:
    locations = [
        (int(location.get("offset")), int(location.get("length"))) for location in element.iterfind("location")
    ]
    spans = tuple((start, start + length) for start, length in locations)
    return BioCAnnotation(element.get("id") or f"T{number}", _infons(element), spans, element.findtext("text"))
