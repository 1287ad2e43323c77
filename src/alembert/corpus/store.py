"""The Corpus artefact: Parquet parts with documents, their sentences and entities, read one part at a time.

    manifest.json           inputs, settings, counts
    parts/part-00000.parquet ...   documents in input order
    set-aside.jsonl         what could not be read: file, position, id, reason

One row is one document. All offsets count characters of `text`, so ``text[start:end]`` is the surface. `entities`
holds what the lexicons found and, with ``gold`` true, what the input had annotated; discontinuous mentions, attributes
and relations of the input are complete in `annotations`, as JSON in the native format (offsets of the cleaned text).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from alembert import artifact
from alembert.corpus.document import Document, Section, Span, add_lexicon_terms, from_record, to_record
from alembert.errors import require

KIND = "Corpus"
PYARROW_PURPOSE = "A Corpus, which is stored as Parquet,"
PARTS_FOLDER = "parts"
SET_ASIDE_FILE = "set-aside.jsonl"


class CorpusEntity(NamedTuple):
    """An entity in a text, annotated in the input (`gold`) or found by a lexicon."""

    start: int
    end: int
    label: str
    concepts: tuple[str, ...] = ()
    gold: bool = False


@dataclass(frozen=True, slots=True)
class CorpusDocument:
    """One document of a corpus: the cleaned `document`, its sentences and all entities."""

    document: Document
    source: str
    language: str
    sentences: tuple[Span, ...] = ()
    entities: tuple[CorpusEntity, ...] = field(default=())

    def with_terms(self) -> Document:
        """Add the entities of the lexicons to those of the input, without repeating any."""
        gold = {(entity.spans, entity.label) for entity in self.document.entities}
        terms = [entity for entity in self.entities if not entity.gold]
        new = [term[:4] for term in terms if (((term.start, term.end),), term.label) not in gold]
        return add_lexicon_terms(self.document, new)


@dataclass(frozen=True)
class Corpus:
    """A complete corpus on the disk."""

    folder: Path
    manifest: artifact.Manifest

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Open a corpus; its files must exist with the sizes in the manifest."""
        opened = cls(Path(folder), artifact.open_artifact(folder, KIND))
        require(PYARROW_PURPOSE, "pyarrow")
        return opened

    @property
    def counts(self) -> dict[str, int]:
        return self.manifest.counts

    @property
    def parts(self) -> list[Path]:
        """The part files, in document order."""
        return [self.folder / name for name in sorted(self.manifest.files) if name.startswith(f"{PARTS_FOLDER}/")]

    def tables(self, *columns: str) -> Iterator[Any]:
        """Yield each part as an Arrow table with the named columns, or all."""
        import pyarrow.parquet as pq

        for path in self.parts:
            yield pq.read_table(path, columns=list(columns) or None, use_threads=False)

    def entries(self) -> Iterator[CorpusDocument]:
        for table in self.tables():
            for batch in table.to_batches(max_chunksize=256):
                yield from map(row_to_document, batch.to_pylist())

    def texts(self) -> Iterator[str]:
        for table in self.tables("text"):
            for batch in table.to_batches(max_chunksize=256):
                yield from batch.column("text").to_pylist()

    def sentences(self) -> Iterator[str]:
        for text, spans in self._with_text("sentences"):
            yield from (text[span["start"] : span["end"]] for span in spans)

    def mentions(self) -> Iterator[tuple[str, CorpusEntity]]:
        """Yield each entity with its surface."""
        for text, entities in self._with_text("entities"):
            yield from ((text[entity["start"] : entity["end"]], _mention(entity)) for entity in entities)

    def set_aside(self) -> Iterator[dict[str, Any]]:
        """Yield the file, position, id and reason of what could not be read."""
        with (self.folder / SET_ASIDE_FILE).open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def _with_text(self, column: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for table in self.tables("text", column):
            for batch in table.to_batches(max_chunksize=256):
                yield from zip(batch.column("text").to_pylist(), batch.column(column).to_pylist(), strict=True)


def row_to_document(row: dict[str, Any]) -> CorpusDocument:
    """Turn a row of a part, as plain values, into a document."""
    annotations = json.loads(row["annotations"]) if row["annotations"] else {}
    bare = Document(row["id"], row["text"])
    gold = from_record({"id": bare.id, "text": bare.text, **annotations}) if annotations else bare
    document = Document(
        bare.id,
        bare.text,
        tuple(Section(**section) for section in row["sections"]),
        gold.entities,
        gold.relations,
        tuple(row["labels"]),
        json.loads(row["meta"]),
        row["language"],
        gold.unlinked_relations,
    )
    sentences = tuple((span["start"], span["end"]) for span in row["sentences"])
    return CorpusDocument(document, row["source"], row["language"], sentences, tuple(map(_mention, row["entities"])))


def _mention(record: dict[str, Any]) -> CorpusEntity:
    return CorpusEntity(**{**record, "concepts": tuple(record["concepts"])})


@cache
def build_schema() -> Any:
    """Return the Arrow schema of a part."""
    import pyarrow as pa

    text, offset = pa.string(), pa.int32()
    span = {"start": offset, "end": offset}
    section = pa.struct({**span, "kind": text, "heading": text})
    entity = pa.struct({**span, "label": text, "concepts": pa.list_(text), "gold": pa.bool_()})
    columns = {"id": text, "source": text, "language": text, "text": text, "sections": pa.list_(section)}
    columns |= {"sentences": pa.list_(pa.struct(span)), "entities": pa.list_(entity)}
    return pa.schema(columns | {"labels": pa.list_(text), "meta": text, "annotations": text})


def to_table(entries: Sequence[CorpusDocument]) -> Any:
    """Build an Arrow table of documents column by column, which is several times faster than row by row."""
    import pyarrow as pa

    documents = [entry.document for entry in entries]
    columns = [
        [document.id for document in documents],
        [entry.source for entry in entries],
        [entry.language for entry in entries],
        [document.text for document in documents],
        _lists("sections", [[_values(section) for section in document.sections] for document in documents]),
        _lists("sentences", [entry.sentences for entry in entries]),
        _lists("entities", [entry.entities for entry in entries]),
        [document.labels for document in documents],
        [json.dumps(dict(document.meta), ensure_ascii=False) for document in documents],
        [_annotations(document) for document in documents],
    ]
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, build_schema().field(number).type)
        for number, column in enumerate(columns)
    ]
    return pa.Table.from_arrays(arrays, schema=build_schema())


def _values(section: Section) -> tuple[int, int, str, str]:
    return section.start, section.end, section.kind, section.heading


def _lists(name: str, rows: Sequence[Sequence[tuple[Any, ...]]]) -> Any:
    """Build a column of lists of structs from tuples, without a Python object for each field name."""
    import pyarrow as pa

    kind = build_schema().field(name).type.value_type
    offsets = pa.array([0, *accumulate(map(len, rows))], pa.int32())
    flat: list[tuple[Any, ...]] = [item for row in rows for item in row]
    fields: Iterable[Sequence[Any]] = zip(*flat, strict=True) if flat else [()] * kind.num_fields
    arrays = [pa.array(values, kind.field(number).type) for number, values in enumerate(fields)]
    structs = pa.StructArray.from_arrays(arrays, fields=[kind.field(number) for number in range(kind.num_fields)])
    return pa.ListArray.from_arrays(offsets, structs)


def _annotations(document: Document) -> str | None:
    record = to_record(document)
    names = ("entities", "relations", "unlinked_relations")
    annotations = {name: record[name] for name in names if name in record}
    return json.dumps(annotations, ensure_ascii=False) if annotations else None


def to_bytes(table: Any) -> bytes:
    """Encode a table as the bytes of a part; the same table always gives the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_statistics=False, row_group_size=max(1, len(table)))
    content: bytes = sink.getvalue().to_pybytes()
    return content
