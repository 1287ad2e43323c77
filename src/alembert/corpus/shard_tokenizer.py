"""Tokenize the documents of a corpus, and mark sentences, words and entities, by whole columns at a time.

In: Arrow tables of a corpus. Out: counts and the arrays of shards, with lengths where the final files have borders.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from alembert.corpus.shards import ENTITY_END, ENTITY_START, IN_ENTITY, TYPE_COUNT, WORD_START, array_dtypes, list_types
from alembert.errors import is_installed, require
from alembert.text.sentences import CJK
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import CONTINUATION_PREFIX
from alembert.text.words import Dictionary, DictionarySegmenter, JiebaSegmenter, Segmenter, find_words

_Int64Array = NDArray[np.int64]
_BoolArray = NDArray[np.bool_]
ShardArrays = dict[str, NDArray[Any]]
"""One for each file of the shards; `sentences` and `documents` hold lengths, which can be concatenated, and `types` the
numbers of the types that the counts have."""

COUNT_NAMES = (
    "documents",
    "documents without tokens",
    "sentences",
    "tokens",
    "words",
    "unknown pieces",
    "entities",
    "entities dropped: overlap",
    "entities dropped: no token",
)

CORPUS_COLUMNS = ("text", "sentences", "entities")
"""Columns of a corpus that shards need."""

_BATCH_CHARACTERS = 100_000
"""More would not fit the CPU caches: encodings take fifty times the memory of their text."""
_ANY_NUMBER_OF_TYPES = 1 << 15
"""How many types a corpus has is known when all of it is read."""
_HAS_CJK = re.compile(f"[{CJK}]")


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """How Chinese is cut into words; elsewhere a word is what BERT's pre-tokeniser takes for one."""

    segmenter: Literal["auto", "jieba", "characters"] = "auto"
    """What finds Chinese words: jieba, or every character alone; auto: jieba if the package rjieba is installed."""
    dictionary: Path | None = None
    """Terms that stay whole in documents with Chinese characters: a UTF-8 file, one a line."""

    def resolved(self) -> WordSettings:
        """Replace `auto`, and check that jieba is installed if it is required."""
        if self.segmenter == "jieba":
            require("Cutting Chinese text into words", "rjieba")
        if self.segmenter != "auto":
            return self
        return replace(self, segmenter="jieba" if is_installed("rjieba") else "characters")


class ShardTokenizer:
    """Tokenizes documents of a corpus; the segmenter for Chinese is loaded with the first Chinese document."""

    def __init__(self, tokenizer: Tokenizer, words: WordSettings) -> None:
        self.dtypes = array_dtypes(tokenizer.vocab_size, _ANY_NUMBER_OF_TYPES)
        self._tokenizer = tokenizer
        self._dictionary = Dictionary.read(words.dictionary) if words.dictionary else None
        self._has_jieba = words.segmenter == "jieba"
        pieces = tokenizer.vocabulary.pieces
        self._goes_on = np.array([piece.startswith(CONTINUATION_PREFIX) for piece in pieces], bool)

    def tokenize_part(self, part: Path) -> tuple[Counter[str], ShardArrays]:
        """Tokenize the documents of a part; return counts and arrays."""
        import pyarrow.parquet as pq

        return self.tokenize_table(pq.read_table(part, columns=list(CORPUS_COLUMNS), use_threads=False))

    def tokenize_table(self, table: Any) -> tuple[Counter[str], ShardArrays]:
        """Tokenize documents in memory: a table with `CORPUS_COLUMNS`."""
        counts: Counter[str] = Counter(dict.fromkeys((TYPE_COUNT + name for name in _find_types(table)), 0))
        batches = [self._tokenize_batch(batch, counts) for batch in _batches(table)]
        empty = {name: np.zeros(0, kind) for name, kind in self.dtypes.items()}
        return counts, {name: np.concatenate([arrays[name] for arrays in (empty, *batches)]) for name in empty}

    def _tokenize_batch(self, batch: Any, counts: Counter[str]) -> ShardArrays:
        texts: list[str] = batch.column("text").to_pylist()
        pieces = _DocumentPieces.encode(self._tokenizer, texts)
        opens = _sentence_openings(pieces, _DocumentSpans.from_column(batch.column("sentences"), pieces.bases))
        begins = self._word_openings(pieces, texts) | opens
        flags = np.where(begins, WORD_START, 0).astype(np.uint8)
        entities = _DocumentSpans.from_column(batch.column("entities"), pieces.bases)
        types = _mark_entities(flags, pieces, entities, _read_types(batch.column("entities"), counts), counts)
        full = pieces.sizes > 0
        counts["documents"] += int(full.sum())
        counts["documents without tokens"] += int((~full).sum())
        counts["sentences"] += int(opens.sum())
        counts["tokens"] += len(flags)
        counts["words"] += int(begins.sum())
        counts["unknown pieces"] += int((pieces.ids == self._tokenizer.unk_id).sum())
        arrays: ShardArrays = {
            "ids": pieces.ids,
            "flags": flags,
            "types": types,
            "sentences": np.diff(np.append(np.flatnonzero(opens), len(flags))),
            "documents": np.bincount(pieces.documents[opens], minlength=len(texts))[full],
            "hashes": np.frombuffer(b"".join(map(_fingerprint, texts)), "<u8")[full],
        }
        return {name: array.astype(self.dtypes[name], copy=False) for name, array in arrays.items()}

    def _word_openings(self, pieces: _DocumentPieces, texts: Sequence[str]) -> _BoolArray:
        begins: _BoolArray = ~self._goes_on[pieces.ids]
        if not (self._has_jieba or self._dictionary):
            return begins  # BERT makes every Chinese character a word of its own
        ends = np.cumsum(pieces.sizes)
        for number, text in enumerate(texts):
            if not text.isascii() and _HAS_CJK.search(text):
                own = slice(ends[number] - pieces.sizes[number], ends[number])
                spans = find_words(text, self._segmenter, self._dictionary)
                openings = pieces.bases[number] + np.array([start for start, _ in spans], np.int64)
                begins[own] &= _find_changes(np.searchsorted(openings, pieces.starts[own], "right"))
        return begins

    @cached_property
    def _segmenter(self) -> Segmenter:
        return JiebaSegmenter() if self._has_jieba else DictionarySegmenter(Dictionary(()))


@dataclass(frozen=True)
class _DocumentPieces:
    """The pieces of several documents; offsets count characters from the first document on, with a gap after each."""

    ids: _Int64Array
    starts: _Int64Array
    ends: _Int64Array
    documents: _Int64Array
    """The document of each piece."""
    sizes: _Int64Array
    """How many pieces each document has."""
    bases: _Int64Array
    """The offset of each document."""

    @classmethod
    def encode(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> _DocumentPieces:
        encodings = [encoding.raw for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        sizes = np.array([len(encoding) for encoding in encodings], np.int64)
        lengths = np.array([len(text) + 1 for text in texts], np.int64)
        bases, documents = np.cumsum(lengths) - lengths, np.repeat(np.arange(len(texts)), sizes)
        ids = np.array(list(chain.from_iterable(encoding.ids for encoding in encodings)), np.int64)
        flat = list(chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings)))
        offsets = np.array(flat, np.int64).reshape(-1, 2) + bases[documents][:, None]
        # Normalisation may reorder a few rare marks; a binary search needs ascending offsets.
        starts, ends = np.maximum.accumulate(offsets, axis=0).T
        return cls(ids, starts, ends, documents, sizes, bases)


def _batches(table: Any) -> Iterator[Any]:
    """Split a table into batches of whole documents with about `_BATCH_CHARACTERS` characters."""
    import pyarrow.compute as pc

    characters = np.cumsum(pc.utf8_length(table["text"]).to_numpy())
    openings = np.flatnonzero(_find_changes(characters // _BATCH_CHARACTERS))
    whole = table.combine_chunks()
    for start, end in pairwise([*openings.tolist(), len(table)]):
        yield from whole.slice(start, end - start).to_batches()


@dataclass(frozen=True)
class _DocumentSpans:
    """The sentences or entities of several documents, with the same offsets as their pieces."""

    starts: _Int64Array
    ends: _Int64Array
    sizes: _Int64Array
    """How many spans each document has."""

    @classmethod
    def from_column(cls, column: Any, bases: _Int64Array) -> _DocumentSpans:
        """Read a column of lists of spans."""
        import pyarrow.compute as pc

        sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
        flat, shifts = column.flatten(), np.repeat(bases, sizes)
        starts, ends = (pc.struct_field(flat, name).to_numpy() + shifts for name in ("start", "end"))
        return cls(starts, ends, sizes)


def _sentence_openings(pieces: _DocumentPieces, sentences: _DocumentSpans) -> _BoolArray:
    """Mark the pieces that begin a sentence; the first sentence of a document holds all pieces before the second."""
    sizes = sentences.sizes
    later = np.ones(len(sentences.starts), bool)
    later[(np.cumsum(sizes) - sizes)[sizes > 0]] = False
    borders = np.unique(np.concatenate([pieces.bases, sentences.starts[later]]))
    return _find_changes(np.searchsorted(borders, pieces.starts, "right"))


def _find_changes(numbers: NDArray[np.intp]) -> _BoolArray:
    changed: _BoolArray = np.diff(numbers, prepend=-1) != 0
    return changed


def _mark_entities(
    flags: NDArray[np.uint8],
    pieces: _DocumentPieces,
    entities: _DocumentSpans,
    types: _Int64Array,
    counts: Counter[str],
) -> _Int64Array:
    """Mark the pieces of entities and return their types, 0 elsewhere.

    Of several entities that share a piece, the longest is used, then the leftmost.
    """
    starts, ends = entities.starts, entities.ends
    first = np.searchsorted(pieces.ends, starts, "right")
    last = np.searchsorted(pieces.starts, ends, "left") - 1
    covered = np.flatnonzero((first <= last) & (starts < ends))
    order = covered[np.lexsort((starts[covered], (starts - ends)[covered]))]
    selected = order[_select_non_overlapping(first[order], last[order])]
    flags[first[selected]] |= ENTITY_START
    flags[last[selected]] |= ENTITY_END
    steps = np.zeros(len(flags) + 1, np.int64)
    steps[first[selected]] += types[selected]
    steps[last[selected] + 1] -= types[selected]
    per_piece: _Int64Array = np.cumsum(steps[:-1])
    flags[per_piece > 0] |= IN_ENTITY
    for number, name in enumerate(list_types(counts), 1):
        counts[TYPE_COUNT + name] += int((types[selected] == number).sum())
    counts["entities"] += len(selected)
    counts["entities dropped: overlap"] += len(covered) - len(selected)
    counts["entities dropped: no token"] += len(starts) - len(covered)
    return per_piece


def _find_types(table: Any) -> list[str]:
    """Return the labels of all entities of a table."""
    import pyarrow.compute as pc

    labels: list[str] = pc.unique(pc.struct_field(pc.list_flatten(table["entities"]), "label")).to_pylist()
    return labels


def _read_types(column: Any, counts: Iterable[str]) -> _Int64Array:
    """Return the number of each entity's type, from 1 up, among those that are counted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(list_types(counts), pa.string())
    numbers: _Int64Array = pc.index_in(pc.struct_field(column.flatten(), "label"), names).to_numpy().astype(np.int64)
    return numbers + 1


def _select_non_overlapping(first: NDArray[np.intp], last: NDArray[np.intp]) -> _BoolArray:
    """Mark the ranges that overlap none of those selected before them, in the order given."""
    stays = np.ones(len(first), bool)
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(last[order])
    group = np.cumsum(np.append(True, first[order][1:] > reach[:-1])[: len(order)])
    clashing = np.sort(order[np.bincount(group)[group] > 1])
    covered: set[int] = set()
    for number in clashing.tolist():
        own = range(first[number], last[number] + 1)
        stays[number] = covered.isdisjoint(own)
        covered.update(own if stays[number] else ())
    return stays


def _fingerprint(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]
