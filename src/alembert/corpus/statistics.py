"""`corpus show`: statistics of a corpus.

In: a Corpus. Out: `CorpusStatistics`: counts of the build, documents by language and source, lengths of documents and
sentences, and for each entity label its frequency and most frequent surfaces. Parts are read one at a time. Sentence
lengths in words come from about 200,000 sentences, spread over all parts; everything else is exact, but surfaces that
occurred once are forgotten when a label has more than a million different ones.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alembert.corpus.chunks import count_words
from alembert.corpus.document import to_record
from alembert.corpus.store import Corpus, CorpusDocument, row_to_document

READ_COUNT_NAMES = (
    "inputs",
    "records read",
    "translations read",
    "documents read",
    "documents read with abstract",
    "deletions read",
    "repeated ids",
    "gold entities read",
    "gold entities dropped",
    "gold entities cleaned away",
    "set aside",
    "annotations set aside",
    "files set aside",
)
"""The counts that say what was read, in the order in which they are shown."""
_WORD_SAMPLE = 200_000
_MAX_SURFACES = 1_000_000
_TOP_SURFACES = 10
_SENTENCES_PER_DOCUMENT = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_SENTENCE_CHARACTERS = (1, *range(25, 501, 25))
_SENTENCE_WORDS = (1, *range(5, 81, 5))


@dataclass
class Histogram:
    """How many values lie from each edge up to the next; the last bin has no end."""

    edges: tuple[int, ...]
    counts: NDArray[np.int64] = field(init=False)
    total: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.edges), dtype=np.int64)

    def add(self, values: NDArray[np.integer]) -> None:
        """Count some values; one below the first edge goes into the first bin."""
        bins = np.searchsorted(self.edges, values, side="right") - 1
        self.counts += np.bincount(np.maximum(bins, 0), minlength=len(self.edges))
        self.total += int(values.sum())
        self.number += len(values)

    @property
    def mean(self) -> float:
        return self.total / self.number if self.number else 0.0

    def bins(self) -> list[tuple[str, int]]:
        """Return the name and count of each bin."""
        ends = [edge - 1 for edge in self.edges[1:]]
        names = [str(a) if a == b else f"{a}-{b}" for a, b in zip(self.edges, ends, strict=False)]
        return list(zip([*names, f"{self.edges[-1]}+"], self.counts.tolist(), strict=True))

    def as_json(self) -> dict[str, Any]:
        return {"mean": round(self.mean, 2), "values": self.number, "bins": dict(self.bins())}


@dataclass(frozen=True)
class LabelStatistics:
    """The entities of one label: how many, and the most frequent surfaces."""

    name: str
    gold: bool
    count: int
    distinct: int
    top: list[tuple[str, int]]


@dataclass
class CorpusStatistics:
    """Statistics of a corpus."""

    name: str
    counts: dict[str, int]
    languages: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    per_document: Histogram = field(default_factory=lambda: Histogram(_SENTENCES_PER_DOCUMENT))
    characters: Histogram = field(default_factory=lambda: Histogram(_SENTENCE_CHARACTERS))
    words: Histogram = field(default_factory=lambda: Histogram(_SENTENCE_WORDS))
    labels: list[LabelStatistics] = field(default_factory=list)

    def get_counts(self, names: Sequence[str]) -> list[tuple[str, int]]:
        return [(name, self.counts[name]) for name in names if name in self.counts]

    def get_counts_with_prefix(self, start: str) -> list[tuple[str, int]]:
        """Return the counts whose names start with a prefix, which is removed."""
        return [(name.removeprefix(start), n) for name, n in self.counts.items() if name.startswith(start)]

    def as_json(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "languages": dict(self.languages.most_common()),
            "sources": dict(self.sources),
            "sentences_per_document": self.per_document.as_json(),
            "sentence_characters": self.characters.as_json(),
            "sentence_words": self.words.as_json(),
            "entities": [{**dataclasses.asdict(label), "top": dict(label.top)} for label in self.labels],
        }


def compute_statistics(corpus: Corpus) -> CorpusStatistics:
    statistics = CorpusStatistics(Path(corpus.folder).name, corpus.counts)
    surfaces: defaultdict[tuple[bool, str], Counter[str]] = defaultdict(Counter)
    mentions: Counter[tuple[bool, str]] = Counter()
    share = -(-_WORD_SAMPLE // max(1, len(corpus.parts)))
    for table in corpus.tables("source", "language", "text", "sentences", "entities"):
        part = table.combine_chunks()
        statistics.languages.update(part.column("language").to_pylist())
        statistics.sources.update(part.column("source").to_pylist())
        texts = part.column("text").to_pylist()
        _add_sentences(statistics, texts, part.column("sentences").chunk(0), share)
        _add_entities(surfaces, mentions, texts, part.column("entities").chunk(0))
    statistics.labels = [
        LabelStatistics(name, gold, mentions[gold, name], len(counter), _top(counter))
        for (gold, name), counter in sorted(surfaces.items())
    ]
    return statistics


def _top(counter: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:_TOP_SURFACES]


def _flatten(column: Any) -> tuple[list[int], Any, Any, Any]:
    """Flatten a column of lists: for each item its document, start and end, and the items themselves."""
    import pyarrow.compute as pc

    items = column.flatten()
    owners = pc.list_parent_indices(column).to_pylist()
    return owners, items.field("start").to_numpy(), items.field("end").to_numpy(), items


def _add_sentences(statistics: CorpusStatistics, texts: list[str], column: Any, share: int) -> None:
    owners, starts, ends, _ = _flatten(column)
    statistics.per_document.add(np.bincount(owners, minlength=len(texts)))
    statistics.characters.add(ends - starts)
    step = max(1, len(owners) // share)
    chosen = zip(owners[::step], starts[::step].tolist(), ends[::step].tolist(), strict=True)
    statistics.words.add(
        np.array([count_words(texts[owner][start:end]) for owner, start, end in chosen], dtype=np.int64)
    )


def _add_entities(
    surfaces: defaultdict[tuple[bool, str], Counter[str]],
    mentions: Counter[tuple[bool, str]],
    texts: list[str],
    column: Any,
) -> None:
    owners, starts, ends, items = _flatten(column)
    keys = list(zip(items.field("gold").to_pylist(), items.field("label").to_pylist(), strict=True))
    mentions.update(keys)
    spans = zip(owners, starts.tolist(), ends.tolist(), keys, strict=True)
    for owner, start, end, key in spans:
        surfaces[key][texts[owner][start:end]] += 1
    for key, counter in surfaces.items():
        if len(counter) > _MAX_SURFACES:
            surfaces[key] = Counter({surface: times for surface, times in counter.items() if times > 1})


def sample_documents(corpus: Corpus, number: int, seed: int) -> list[CorpusDocument]:
    """Draw random documents without replacement, in document order."""
    import pyarrow.parquet as pq

    documents = corpus.counts["documents"]
    numbers = sorted(random.Random(seed).sample(range(documents), min(number, documents)))
    entries: list[CorpusDocument] = []
    first = 0
    for path in corpus.parts if numbers else []:
        rows = pq.read_metadata(path).num_rows
        selected = [row - first for row in numbers if first <= row < first + rows]
        if selected:
            entries += map(row_to_document, pq.read_table(path, use_threads=False).take(selected).to_pylist())
        first += rows
    return entries


def make_document_record(entry: CorpusDocument) -> dict[str, Any]:
    """Convert a document to a JSON object, with its sentences and all entities."""
    spans = [{**mention._asdict(), "concepts": list(mention.concepts)} for mention in entry.entities]
    record = to_record(entry.document) | {"source": entry.source, "entities": spans}
    return record | {"sentences": [list(span) for span in entry.sentences]}
