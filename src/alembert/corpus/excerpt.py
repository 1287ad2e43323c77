"""The first documents of a corpus as numbers, in memory: what shards would begin with, in seconds and without a file.

In: a Corpus, or raw files, and a limit. Out: an `Excerpt`. Its documents and tokens have the same numbers as in the
shards of the whole, and are cut by the same code. The trade-off: the first documents are not a random sample, but
chance that is looked up by these numbers, as that of masks, comes out as in training.

What the vocabulary verbs read: texts with the entities in them, from a Corpus or from plain files.

In: Corpus folders, or files of any format that the readers know, and lexicons. Out: `TextSampleReader`, which can be gone
through any number of times, in the same order. Entities are those of the input; where lexicons are given, theirs
replace entities of the same label. What the readers set aside is counted, and the first reason kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from alembert import artifact
from alembert.corpus.chunks import ChunkProcessor
from alembert.corpus.document import Document
from alembert.corpus.inputs import RAW_FILE_SETTINGS, count_entities
from alembert.corpus.jobs import Progress, make_source_names
from alembert.corpus.readers import Item, SetAside, read
from alembert.corpus.shard_tokenizer import CORPUS_COLUMNS, ShardTokenizer, WordSettings
from alembert.corpus.shards import TokenArrays
from alembert.corpus.store import KIND, Corpus, to_table
from alembert.errors import BadFile
from alembert.extras import require
from alembert.text.gazetteer import Gazetteer
from alembert.text.lexicon import Lexicon
from alembert.text.tokenizer import Tokenizer
from alembert.text.word_counts import TextSample

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class ExcerptLimit:
    """Where an excerpt ends: after so many documents, or with so many characters in at least three."""

    documents: int = 1000
    characters: int = 1_000_000

    def is_reached(self, documents: int, characters: int) -> bool:
        # Pairs with a random second sentence need three documents.
        return documents >= self.documents or (characters >= self.characters and documents >= 3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Excerpt:
    """The first documents of a corpus."""

    tokens: TokenArrays
    """Those that have tokens."""
    documents: int
    """How many were read."""
    total: int | None
    """How many the corpus has; none: more than were read, and nobody has counted them."""
    entities: int
    """Entities of the whole corpus; of raw files, those of the documents that were read."""
    set_aside: int = 0
    """Records of raw files that could not be read."""

    @property
    def is_whole(self) -> bool:
        return self.documents == self.total


def read_excerpt(
    inputs: Corpus | Sequence[Path],
    tokenizer: Tokenizer,
    words: WordSettings,
    limit: ExcerptLimit | None = None,
) -> Excerpt:
    """Read the first documents of a Corpus, or of raw files (taken as they are, as training takes them)."""
    require("Cutting documents into training sequences", "pyarrow")
    limit = limit or ExcerptLimit()
    cutter = ShardTokenizer(tokenizer, words.resolved())
    if isinstance(inputs, Corpus):
        table = _corpus_table(inputs, limit)
        return Excerpt(
            tokens=_tokens(cutter, table),
            documents=len(table),
            total=inputs.counts["documents"],
            entities=count_entities(inputs),
        )
    return _read_files(inputs, cutter, limit)


def _corpus_table(corpus: Corpus, limit: ExcerptLimit) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    taken: list[Any] = []
    meter = _LimitCounter(limit)
    for batch in _corpus_batches(corpus):
        before = meter.documents
        for length in pc.utf8_length(batch.column("text")).to_pylist():
            meter.count(length)
        taken.append(batch.slice(0, meter.documents - before))
        if meter.is_full:
            break
    return pa.Table.from_batches(taken) if taken else to_table([]).select(list(CORPUS_COLUMNS))


def _corpus_batches(corpus: Corpus) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for part in corpus.parts:
        yield from pq.ParquetFile(part).iter_batches(_BATCH, columns=list(CORPUS_COLUMNS), use_threads=False)


def _read_files(files: Sequence[Path], cutter: ShardTokenizer, limit: ExcerptLimit) -> Excerpt:
    processor = ChunkProcessor(RAW_FILE_SETTINGS.clean, None)
    entries = []
    meter = _LimitCounter(limit)
    for path, name in zip(files, make_source_names(files), strict=True):
        items = list(_up_to_limit(read(path, RAW_FILE_SETTINGS.read), meter))
        entries += processor.process(items, name, None).entries
    return Excerpt(
        tokens=_tokens(cutter, to_table(entries)),
        documents=len(entries),
        total=None if meter.has_left_out else len(entries),
        entities=sum(len(entry.entities) for entry in entries),
        set_aside=meter.set_aside,
    )


@dataclass
class _LimitCounter:
    """Counts documents until the limit is reached, and knows whether any was left out."""

    limit: ExcerptLimit
    documents: int = 0
    characters: int = 0
    set_aside: int = 0
    has_left_out: bool = False

    @property
    def is_full(self) -> bool:
        return self.limit.is_reached(self.documents, self.characters)

    def count(self, characters: int) -> None:
        """Count a document, unless there are enough."""
        if self.is_full:
            self.has_left_out = True
            return
        self.documents += 1
        self.characters += characters


def _up_to_limit(items: Iterator[Item], meter: _LimitCounter) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Document):
            meter.count(len(item.text))
        if meter.has_left_out:
            return
        meter.set_aside += isinstance(item, SetAside)
        yield item


def _tokens(cutter: ShardTokenizer, table: Any) -> TokenArrays:
    _, arrays = cutter.cut_table(table)
    borders = {name: np.append(0, np.cumsum(arrays[name])) for name in ("sentences", "documents")}
    return TokenArrays(**(arrays | borders))


_SAMPLE_BATCH = 64


@dataclass
class TextSampleReader:
    """The samples of one or more inputs."""

    paths: Sequence[Path]
    gazetteer: Gazetteer | None = None
    tell: Callable[[Progress], None] | None = None
    """Called now and then with how far the reading has come."""
    set_aside: int = field(default=0, init=False)
    """Records that could not be read, the last time that all were gone through."""
    first_reason: str = field(default="", init=False)
    """Why the first of them could not."""

    @classmethod
    def open(cls, paths: Iterable[str | Path], lexicons: Sequence[Lexicon] = ()) -> TextSampleReader:
        """Check that the inputs are there, before anything is read."""
        found = [Path(path) for path in paths]
        for path in found:
            _check(path)
        return cls(found, Gazetteer.from_lexicons(lexicons) if lexicons else None)

    def __iter__(self) -> Iterator[TextSample]:
        self.set_aside = 0
        given = (sample for path in self.paths for sample in self._read(path))
        found = given if self.gazetteer is None else _add_lexicon_entities(given, self.gazetteer)
        return found if self.tell is None else self._watched(found, self.tell)

    def _watched(self, samples: Iterator[TextSample], tell: Callable[[Progress], None]) -> Iterator[TextSample]:
        known = all(_is_corpus(path) for path in self.paths)
        total = sum(Corpus.open(path).counts["documents"] for path in self.paths) if known else 0
        characters = 0
        for done, sample in enumerate(samples):
            if done % _SAMPLE_BATCH == 0:
                tell(Progress("reading", done, total, characters))
            characters += len(sample.text)
            yield sample

    def _read(self, path: Path) -> Iterator[TextSample]:
        if _is_corpus(path):
            yield from _from_corpus(path)
            return
        for item in read(path):
            if isinstance(item, Document):
                yield TextSample(item.text, tuple((e.label, e.surface(item.text)) for e in item.entities))
            elif isinstance(item, SetAside):
                self.set_aside += 1
                self.first_reason = self.first_reason or f"{item.source}, {item.position}: {item.reason}"


def _check(path: Path) -> None:
    if not path.exists():
        raise BadFile(f"There is no corpus {path}. Give a Corpus folder, or files with text; check the path.")
    if _is_corpus(path):
        artifact.open_artifact(path, KIND)


def _is_corpus(path: Path) -> bool:
    return path.is_dir() and (path / artifact.MANIFEST).exists()


def _from_corpus(folder: Path) -> Iterator[TextSample]:
    for table in Corpus.open(folder).tables("text", "entities"):
        for batch in table.to_batches(max_chunksize=256):
            rows = zip(batch.column("text").to_pylist(), batch.column("entities").to_pylist(), strict=True)
            for text, found in rows:
                yield TextSample(text, tuple((e["label"], text[e["start"] : e["end"]]) for e in found))


def _add_lexicon_entities(samples: Iterator[TextSample], gazetteer: Gazetteer) -> Iterator[TextSample]:
    known = set(gazetteer.labels)
    while batch := list(islice(samples, _SAMPLE_BATCH)):
        found = gazetteer.find_all([sample.text for sample in batch])
        for sample, matches in zip(batch, found, strict=True):
            others = tuple(mention for mention in sample.mentions if mention[0] not in known)
            matched = tuple((match.label, sample.text[match.start : match.end]) for match in matches)
            yield TextSample(sample.text, others + matched)
