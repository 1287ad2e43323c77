"""The chunks of a build: how one is processed, and how its result is staged, whole or not there.

    .stage/00003/000012.parquet   documents of chunk 12 of input 3, before duplicates are taken out
    .stage/00003/000012.side      what the decision needs of them: a line of JSON, signatures, sizes, ids; written last
    .stage/00003/end              the number of chunks, written when the input was read to its end
    .stage/decisions.npy          for each document of all chunks, why it is dropped or that it is kept

Where a chunk ends depends on the input alone, so every worker, before or after a kill, makes the same chunks; one whose
side file exists is not made again. Side files are small: the decision over all documents reads them one by one.

Each document is cleaned, its sections and annotations are mapped to the clean text, it is split into sentences (never
across the border of a section), the lexicons are matched in all documents of the chunk at once, and a signature is
computed for the search for duplicates. The result depends on the chunk alone, whichever process computes it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alembert import artifact
from alembert.corpus.clean import BuildSettings, CleanedText, CleanSettings, clean
from alembert.corpus.document import Document, Entity, Relation, Section, Span, collect_targets, hash_id
from alembert.corpus.duplicates import SIGNATURE_BYTES, compute_signature
from alembert.corpus.readers import DeletedRecord, Item, Remark, SetAside
from alembert.corpus.readers.contract import generalise_reason
from alembert.corpus.store import CorpusDocument, CorpusEntity, to_bytes, to_table
from alembert.text.gazetteer import Gazetteer
from alembert.text.language import UNKNOWN_LANGUAGE, detect_language
from alembert.text.sentences import CJK, guess_language, split_sentences

SIZE_NAMES = ("sentences", "words", "characters", "gold entities")
"""The counts of each document, before those of the entities of each lexicon."""


@dataclass(frozen=True)
class ChunkSidecar:
    """The side file of a chunk."""

    counts: dict[str, int]
    citations: list[Citation]
    set_aside: list[dict[str, str | None]]
    annotated: list[int]
    """Numbers of the documents with annotations of the input."""
    matched: list[int]
    """Entries of the gazetteer that were found."""
    signatures: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    keys: NDArray[np.uint64]
    """A hash of the id of each document."""


@dataclass(frozen=True)
class ChunkStore:
    """The folder of staged chunks of a build; `labels` are those of its lexicons."""

    folder: Path
    labels: tuple[str, ...]

    def prepare(self, inputs: int) -> None:
        for number in range(inputs):
            self._input(number).mkdir(parents=True, exist_ok=True)

    def has(self, file: int, chunk: int) -> bool:
        return self._path(file, chunk, "side").exists()

    def get_chunk_count(self, file: int) -> int | None:
        """Return the number of chunks of an input that was read to its end, if all of them exist."""
        try:
            chunks = int((self._input(file) / "end").read_text())
        except FileNotFoundError:
            return None
        return chunks if all(self.has(file, chunk) for chunk in range(chunks)) else None

    def mark_complete(self, file: int, chunks: int) -> None:
        artifact.atomic_write(self._input(file) / "end", str(chunks).encode())

    def write_chunk(self, file: int, number: int, chunk: Chunk) -> None:
        """Write a chunk; it counts as done when its side file is there."""
        artifact.atomic_write(self.get_documents_path(file, number), to_bytes(to_table(chunk.entries)))
        head = {
            "counts": dict(sorted(chunk.counts.items())),
            "citations": [{"pmid": c.pmid, "documents": c.documents, "deleted": c.deleted} for c in chunk.citations],
            "set_aside": [record.to_record() for record in chunk.set_aside],
            "annotated": [n for n, entry in enumerate(chunk.entries) if entry.document.is_annotated],
            "matched": sorted(chunk.matched),
        }
        sizes = [compute_sizes(entry, self.labels) for entry in chunk.entries]
        content = json.dumps(head).encode() + b"\n" + b"".join(chunk.signatures)
        content += np.array(sizes, dtype=np.int32).tobytes()
        content += np.array([hash_id(entry.document.id) for entry in chunk.entries], dtype=np.uint64).tobytes()
        artifact.atomic_write(self._path(file, number, "side"), content)

    def read_sidecar(self, file: int, number: int) -> ChunkSidecar:
        """Read what the decision needs of a chunk."""
        line, _, rest = self._path(file, number, "side").read_bytes().partition(b"\n")
        head = json.loads(line)
        columns = len(SIZE_NAMES) + len(self.labels)
        documents = len(rest) // (SIGNATURE_BYTES + 4 * columns + 8)
        border, last = documents * SIGNATURE_BYTES, documents * (SIGNATURE_BYTES + 4 * columns)
        return ChunkSidecar(
            head["counts"],
            [Citation(**citation) for citation in head["citations"]],
            head["set_aside"],
            head.get("annotated", []),  # a build that an earlier version began has none
            head["matched"],
            np.frombuffer(rest[:border], dtype=np.uint8).reshape(documents, SIGNATURE_BYTES),
            np.frombuffer(rest[border:last], dtype=np.int32).reshape(documents, columns),
            np.frombuffer(rest[last:], dtype=np.uint64),
        )

    def get_documents_path(self, file: int, number: int) -> Path:
        return self._path(file, number, "parquet")

    def _input(self, file: int) -> Path:
        return self.folder / f"{file:05}"

    def _path(self, file: int, number: int, ending: str) -> Path:
        return self._input(file) / f"{number:06}.{ending}"


def split_into_chunks(items: Iterator[Item], settings: BuildSettings) -> Iterator[Sequence[Item]]:
    """Cut the items of an input into chunks; a translation stays with the citation before it."""
    chunk: list[Item] = []
    characters = 0
    for item in items:
        full = characters >= settings.part_characters or len(chunk) >= settings.part_documents
        if full and not (isinstance(item, Document) and "translation_of" in item.meta):
            yield chunk
            chunk, characters = [], 0
        chunk.append(item)
        characters += len(item.text) if isinstance(item, Document) else 0
    if chunk:
        yield chunk


_CJK = re.compile(f"[{CJK}]")
"""A number, or an id such as T12; not the one in the name of an encoding, such as utf-8."""
MEDLINE = "medline"


@dataclass(frozen=True, slots=True)
class Citation:
    """A PMID of one record: how many documents the record gave, or that it deletes the citation."""

    pmid: str
    documents: int
    deleted: bool = False


@dataclass
class Chunk:
    """A processed chunk; `entries` and `signatures` are parallel lists."""

    entries: list[CorpusDocument] = field(default_factory=list)
    signatures: list[bytes] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    matched: set[int] = field(default_factory=set)
    """Entries of the gazetteer that were found."""
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class ChunkProcessor:
    """Turns the items of a reader into a chunk; without lexicons, `gazetteer` is None."""

    clean: CleanSettings
    gazetteer: Gazetteer | None

    def process(self, items: Sequence[Item], source: str, format: str | None) -> Chunk:  # noqa: A002
        """Clean and annotate the items of one chunk of one source."""
        chunk = Chunk()
        for item in items:
            is_kept = self._process_item(item, source, chunk)
            if format == MEDLINE:
                _record_citation(item, is_kept, chunk.citations)
        self._match(chunk)
        return chunk

    def _process_item(self, item: Item, source: str, chunk: Chunk) -> bool:
        if isinstance(item, Document):
            return self._document(item, source, chunk)
        if isinstance(item, SetAside):
            chunk.set_aside.append(dataclasses.replace(item, source=source))
            chunk.counts["set aside"] += 1
            chunk.counts[f"{item.kind}s set aside"] += 1
            chunk.counts[f"set aside: {generalise_reason(item.reason)}"] += 1
        elif isinstance(item, Remark):
            chunk.counts[f"remark: {item.reason}"] += item.count
        else:
            chunk.counts["deletions read"] += 1
        return False

    def _document(self, document: Document, source: str, chunk: Chunk) -> bool:
        cleaned = clean(document.text, self.clean, annotated=bool(document.entities))
        _count_read(document, cleaned, chunk.counts)
        if cleaned.drop_reason:
            chunk.counts[f"dropped: {cleaned.drop_reason}"] += 1
            chunk.counts["gold entities dropped"] += len(document.entities)
            return False
        document = apply_cleaning(document, cleaned, chunk.counts)
        language = document.language or cleaned.language
        if language == UNKNOWN_LANGUAGE:
            language = detect_language(document.text)
        sentences = tuple(split_into_sentences(document, language))
        chunk.entries.append(CorpusDocument(document, source, language, sentences))
        chunk.signatures.append(compute_signature(document.text))
        return True

    def _match(self, chunk: Chunk) -> None:
        """Add the entities of the input and those of the lexicons."""
        texts = [entry.document.text for entry in chunk.entries]
        matches_per_text = (
            self.gazetteer.find_all(texts, chunk.matched) if self.gazetteer and texts else [[] for _ in texts]
        )
        for number, (entry, matches) in enumerate(zip(chunk.entries, matches_per_text, strict=True)):
            mentions = [CorpusEntity(*match) for match in matches]
            if entry.document.entities:
                mentions = sorted([*_read_gold_mentions(entry.document), *mentions], key=lambda mention: mention[:2])
            if mentions:
                chunk.entries[number] = dataclasses.replace(entry, entities=tuple(mentions))


def _read_gold_mentions(document: Document) -> Iterator[CorpusEntity]:
    for entity in document.entities:
        yield CorpusEntity(entity.start, entity.end, entity.label, entity.concepts, gold=True)


def _count_read(document: Document, cleaned: CleanedText, counts: Counter[str]) -> None:
    counts["documents read"] += 1
    counts["characters read"] += len(document.text)
    counts["gold entities read"] += len(document.entities)
    counts["translations read"] += "translation_of" in document.meta
    counts["documents read with abstract"] += any(part.kind == "abstract" for part in document.sections)
    for step, times in cleaned.counts.items():
        counts[f"cleaned: {step}, documents"] += 1
        counts[f"cleaned: {step}, places"] += times


def _record_citation(item: Item, is_kept: bool, citations: list[Citation]) -> None:
    """Record which PMID an item belongs to; a translation belongs to the citation before it.

    A record that was set aside is left out: it must not replace an earlier one that can be used.
    """
    if isinstance(item, DeletedRecord):
        citations.append(Citation(item.id, 0, deleted=True))
    elif isinstance(item, Document):
        original = item.meta.get("translation_of")
        if original is None or not citations or citations[-1].pmid != original:
            citations.append(Citation(original or item.id, int(is_kept)))
        elif is_kept:
            citations[-1] = Citation(original, citations[-1].documents + 1)


def apply_cleaning(document: Document, cleaned: CleanedText, counts: Counter[str]) -> Document:
    """Return the document with its clean text, and all spans mapped to it."""
    if not cleaned.steps:
        return document
    entities = tuple(_move_entity(entity, cleaned) for entity in document.entities)
    remaining = tuple(entity for entity in entities if entity.spans)
    relations = (
        document.relations
        if len(remaining) == len(entities)
        else tuple(_keep_linked_relations(document.relations, remaining))
    )
    counts["gold entities cleaned away"] += len(entities) - len(remaining)
    counts["relations cleaned away"] += len(document.relations) - len(relations)
    return dataclasses.replace(
        document,
        text=cleaned.text,
        sections=tuple(_move_sections(document, cleaned)),
        entities=remaining,
        relations=relations,
    )


def _move_entity(entity: Entity, cleaned: CleanedText) -> Entity:
    spans = (cleaned.to_clean(*span) for span in entity.spans)
    return dataclasses.replace(entity, spans=tuple((start, end) for start, end in spans if start < end))


def _move_sections(document: Document, cleaned: CleanedText) -> Iterator[Section]:
    for section in document.sections:
        start, end = cleaned.to_clean(section.start, section.end)
        if start < end:
            yield Section(start, end, section.kind, section.heading)


def _keep_linked_relations(relations: Sequence[Relation], entities: Sequence[Entity]) -> Iterator[Relation]:
    """Yield the relations whose arguments remain."""
    targets = collect_targets(entities)
    for relation in relations:
        if all(target in targets for _, target in relation.arguments):
            targets.add(relation.id)
            yield relation


def split_into_sentences(document: Document, language: str) -> Iterator[Span]:
    """Split a document into sentences, each inside one section or between two."""
    text = document.text
    rules = "zh" if language == "zh" else guess_language(text)
    borders = [0, *(border for part in document.sections for border in (part.start, part.end)), len(text)]
    for start, end in pairwise(borders):
        if end - start > 1 or (start < end and not text[start].isspace()):
            yield from ((start + first, start + last) for first, last in split_sentences(text[start:end], rules))


def count_words(text: str) -> int:
    """Count words: runs without white space, and each Chinese or Japanese character.

    >>> count_words("IL-6 in 糖尿病")
    5
    """
    if text.isascii() or not (characters := len(_CJK.findall(text))):
        return len(text.split())
    return characters + len(_CJK.sub(" ", text).split())


def compute_sizes(entry: CorpusDocument, labels: Sequence[str]) -> list[int]:
    """Count a document's sentences, words, characters, gold entities, and the lexicon's entities by label."""
    counts = Counter(mention.label for mention in entry.entities if not mention.gold)
    text = entry.document.text
    gold = len(entry.document.entities)
    return [len(entry.sentences), count_words(text), len(text), gold, *(counts[label] for label in labels)]
