"""The first documents of a corpus as numbers, in memory: what shards would begin with, in seconds and without a file.

In: a Corpus, or raw files, and a limit. Out: an `Excerpt`. Its documents and tokens have the same numbers as in the
shards of the whole, and are cut by the same code. The trade-off: the first documents are not a random sample, but
chance that is looked up by these numbers, as that of masks, comes out as in training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alembert.corpus.document import Document
from alembert.corpus.inputs import PLAIN, entities_in
from alembert.corpus.jobs import source_names
from alembert.corpus.readers import Item, SetAside, read
from alembert.corpus.refine import Refinery
from alembert.corpus.shard_cut import COLUMNS, Cutter, WordSettings
from alembert.corpus.shards import Tokens
from alembert.corpus.store import Corpus, to_table
from alembert.extras import require
from alembert.text.tokenizer import Tokenizer

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Where an excerpt ends: after so many documents, or with so many characters in at least three."""

    documents: int = 1000
    characters: int = 1_000_000

    def is_reached(self, documents: int, characters: int) -> bool:
        # Pairs with a random second sentence need three documents.
        return documents >= self.documents or (characters >= self.characters and documents >= 3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Excerpt:
    """The first documents of a corpus."""

    tokens: Tokens
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


def excerpt(
    inputs: Corpus | Sequence[Path],
    tokenizer: Tokenizer,
    words: WordSettings,
    limit: Limit | None = None,
) -> Excerpt:
    """Read the first documents of a Corpus, or of raw files (taken as they are, as training takes them)."""
    require("Cutting documents into training sequences", "pyarrow")
    limit = limit or Limit()
    cutter = Cutter(tokenizer, words.resolved())
    if isinstance(inputs, Corpus):
        table = _corpus_table(inputs, limit)
        return Excerpt(
            tokens=_tokens(cutter, table),
            documents=len(table),
            total=inputs.counts["documents"],
            entities=entities_in(inputs),
        )
    return _of_files(inputs, cutter, limit)


def _corpus_table(corpus: Corpus, limit: Limit) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    taken: list[Any] = []
    meter = _Meter(limit)
    for batch in _corpus_batches(corpus):
        before = meter.documents
        for length in pc.utf8_length(batch.column("text")).to_pylist():
            meter.count(length)
        taken.append(batch.slice(0, meter.documents - before))
        if meter.is_full:
            break
    return pa.Table.from_batches(taken) if taken else to_table([]).select(list(COLUMNS))


def _corpus_batches(corpus: Corpus) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for part in corpus.parts:
        yield from pq.ParquetFile(part).iter_batches(_BATCH, columns=list(COLUMNS), use_threads=False)


def _of_files(files: Sequence[Path], cutter: Cutter, limit: Limit) -> Excerpt:
    refinery = Refinery(PLAIN.clean, None)
    entries = []
    meter = _Meter(limit)
    for path, name in zip(files, source_names(files), strict=True):
        items = list(_up_to_limit(read(path, PLAIN.read), meter))
        entries += refinery.refine(items, name, None).entries
    return Excerpt(
        tokens=_tokens(cutter, to_table(entries)),
        documents=len(entries),
        total=None if meter.has_left_out else len(entries),
        entities=sum(len(entry.entities) for entry in entries),
        set_aside=meter.set_aside,
    )


@dataclass
class _Meter:
    """Counts documents until the limit is reached, and knows whether any was left out."""

    limit: Limit
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


def _up_to_limit(items: Iterator[Item], meter: _Meter) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Document):
            meter.count(len(item.text))
        if meter.has_left_out:
            return
        meter.set_aside += isinstance(item, SetAside)
        yield item


def _tokens(cutter: Cutter, table: Any) -> Tokens:
    _, arrays = cutter.cut_table(table)
    borders = {name: np.append(0, np.cumsum(arrays[name])) for name in ("sentences", "documents")}
    return Tokens(**(arrays | borders))
