"""Read a Corpus or raw files in memory, without writing shards: the first documents as tokens, or all texts.

`read_excerpt` returns the first documents as an `Excerpt` in seconds. Its documents and tokens have the same numbers as
in the shards of the whole, and the same code tokenizes them. The trade-off: the first documents are not a random
sample, but random choices that depend on these numbers, such as masks, are those of training.

`TextSampleReader` yields texts with their entities for the vocabulary commands; it can be iterated any number of times,
in the same order. Entities are those of the input; entities of lexicons replace those of the same label. What the
readers set aside is counted, and the first reason stored.
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
from alembert.corpus.clean import RAW_FILE_SETTINGS
from alembert.corpus.document import Document
from alembert.corpus.inputs import count_entities
from alembert.corpus.jobs import Progress, make_source_names
from alembert.corpus.readers import Item, SetAside, read
from alembert.corpus.shard_tokenizer import CORPUS_COLUMNS, ShardTokenizer, WordSettings
from alembert.corpus.shards import TokenArrays
from alembert.corpus.store import KIND, Corpus, to_table
from alembert.errors import BadFile, require
from alembert.text.gazetteer import Gazetteer
from alembert.text.tokenizer import Tokenizer
from alembert.text.word_counts import TextSample

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class ExcerptLimit:
    """The size of an excerpt: so many documents, or so many characters in at least three documents."""

    documents: int = 1000
    characters: int = 1_000_000

    def is_reached(self, documents: int, characters: int) -> bool:
        # Pairs with a random second sentence need three documents.
        return documents >= self.documents or (characters >= self.characters and documents >= 3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Excerpt:
    """The first documents of a corpus."""

    tokens: TokenArrays
    """The documents that have tokens."""
    documents: int
    """Documents that were read."""
    total: int | None
    """Documents of the corpus; None if there are more than were read and they are not counted."""
    entities: int
    """Entities of the whole corpus; for raw files, those of the documents that were read."""
    set_aside: int = 0
    """Records of raw files that could not be read."""

    @property
    def is_whole(self) -> bool:
        return self.documents == self.total


def read_excerpt(
    inputs: Corpus | Sequence[Path], tokenizer: Tokenizer, words: WordSettings, limit: ExcerptLimit | None = None
) -> Excerpt:
    """Read the first documents of a Corpus, or of raw files, which are not cleaned, as in training."""
    require("Cutting documents into training sequences", "pyarrow")
    limit = limit or ExcerptLimit()
    shard_tokenizer = ShardTokenizer(tokenizer, words.resolved())
    if isinstance(inputs, Corpus):
        table = _corpus_table(inputs, limit)
        return Excerpt(
            tokens=_tokens(shard_tokenizer, table),
            documents=len(table),
            total=inputs.counts["documents"],
            entities=count_entities(inputs),
        )
    return _read_files(inputs, shard_tokenizer, limit)


def _corpus_table(corpus: Corpus, limit: ExcerptLimit) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    batches: list[Any] = []
    counter = _LimitCounter(limit)
    for batch in _corpus_batches(corpus):
        before = counter.documents
        for length in pc.utf8_length(batch.column("text")).to_pylist():
            counter.count(length)
        batches.append(batch.slice(0, counter.documents - before))
        if counter.is_full:
            break
    return pa.Table.from_batches(batches) if batches else to_table([]).select(list(CORPUS_COLUMNS))


def _corpus_batches(corpus: Corpus) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for part in corpus.parts:
        yield from pq.ParquetFile(part).iter_batches(_BATCH, columns=list(CORPUS_COLUMNS), use_threads=False)


def _read_files(files: Sequence[Path], shard_tokenizer: ShardTokenizer, limit: ExcerptLimit) -> Excerpt:
    processor = ChunkProcessor(RAW_FILE_SETTINGS.clean, None)
    entries = []
    counter = _LimitCounter(limit)
    for path, name in zip(files, make_source_names(files), strict=True):
        items = list(_up_to_limit(read(path, RAW_FILE_SETTINGS.read), counter))
        entries += processor.process(items, name, None).entries
    return Excerpt(
        tokens=_tokens(shard_tokenizer, to_table(entries)),
        documents=len(entries),
        total=None if counter.has_left_out else len(entries),
        entities=sum(len(entry.entities) for entry in entries),
        set_aside=counter.set_aside,
    )


@dataclass
class _LimitCounter:
    """Counts documents until the limit is reached, and whether any was left out."""

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


def _up_to_limit(items: Iterator[Item], counter: _LimitCounter) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Document):
            counter.count(len(item.text))
        if counter.has_left_out:
            return
        counter.set_aside += isinstance(item, SetAside)
        yield item


def _tokens(shard_tokenizer: ShardTokenizer, table: Any) -> TokenArrays:
    _, arrays = shard_tokenizer.tokenize_table(table)
    borders = {name: np.append(0, np.cumsum(arrays[name])) for name in ("sentences", "documents")}
    return TokenArrays(**(arrays | borders))


@dataclass
class TextSampleReader:
    """Iterates over the samples of one or more inputs."""

    paths: Sequence[Path]
    gazetteer: Gazetteer | None = None
    on_progress: Callable[[Progress], None] | None = None
    """Called regularly with the progress."""
    set_aside: int = field(default=0, init=False)
    """Records that could not be read in the last iteration."""
    first_reason: str = field(default="", init=False)
    """Why the first of them could not be read."""

    @classmethod
    def open(cls, paths: Iterable[str | Path], gazetteer: Gazetteer | None = None) -> TextSampleReader:
        """Check that the inputs exist before anything is read."""
        resolved = [Path(path) for path in paths]
        for path in resolved:
            _check(path)
        return cls(resolved, gazetteer)

    def __iter__(self) -> Iterator[TextSample]:
        self.set_aside = 0
        read_samples = (sample for path in self.paths for sample in self._read(path))
        samples = read_samples if self.gazetteer is None else _add_lexicon_entities(read_samples, self.gazetteer)
        return samples if self.on_progress is None else self._with_progress(samples, self.on_progress)

    def _with_progress(
        self, samples: Iterator[TextSample], on_progress: Callable[[Progress], None]
    ) -> Iterator[TextSample]:
        has_total = all(_is_corpus(path) for path in self.paths)
        total = sum(Corpus.open(path).counts["documents"] for path in self.paths) if has_total else 0
        characters = 0
        for done, sample in enumerate(samples):
            if done % _BATCH == 0:
                on_progress(Progress("reading", done, total, characters))
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
            for text, entities in rows:
                yield TextSample(text, tuple((e["label"], text[e["start"] : e["end"]]) for e in entities))


def _add_lexicon_entities(samples: Iterator[TextSample], gazetteer: Gazetteer) -> Iterator[TextSample]:
    labels = set(gazetteer.labels)
    while batch := list(islice(samples, _BATCH)):
        matches_per_text = gazetteer.find_all([sample.text for sample in batch])
        for sample, matches in zip(batch, matches_per_text, strict=True):
            others = tuple(mention for mention in sample.mentions if mention[0] not in labels)
            matched = tuple((match.label, sample.text[match.start : match.end]) for match in matches)
            yield TextSample(sample.text, others + matched)
