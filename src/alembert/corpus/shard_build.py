"""Corpus and tokenizer to Shards: each document cut into pieces once, its sentences, words and entities marked.

In: a Corpus, a Tokenizer, a folder for results, and how Chinese is cut into words. Out: Shards under a name made of the
content of all these, so that what was built before is found again. Worker processes take the parts of the corpus one by
one and stage each as one file; these are then joined in order. A killed build goes on with the parts that it lacks, and
the bytes depend neither on kills nor on the number of workers.

Memory is that of one part for each worker. The trade-off: while parts are joined, the tokens are on the disk twice.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from alembert import artifact
from alembert.corpus import crew
from alembert.corpus.jobs import Progress
from alembert.corpus.shards import FIRST, FORMAT, INSIDE, KIND, LAST, WORD, Shards, array_types
from alembert.corpus.store import Corpus
from alembert.errors import BadFile, Busy, MissingExtra
from alembert.text.sentences import CJK
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import CONTINUATION
from alembert.text.words import Dictionary, DictionarySegmenter, JiebaSegmenter, Segmenter
from alembert.text.words import words as words_of

Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]
"""One for each file of the shards; `sentences` and `documents` hold lengths here, which can be joined as they are."""

COUNTS = (
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

COLUMNS = ("text", "sentences", "entities")
"""Columns of a corpus that shards are made of."""

_BATCH_CHARACTERS = (
    100_000  # more would not fit the caches: encodings take fifty times the memory of their text
)
_PATIENCE = 0.25
_HAS_CJK = re.compile(f"[{CJK}]")


@dataclass(frozen=True, kw_only=True)
class WordSettings:
    """How Chinese is cut into words; elsewhere a word is what BERT's pre-tokeniser takes for one."""

    segmenter: Literal["auto", "jieba", "characters"] = "auto"
    """What finds Chinese words: jieba, or every character alone; auto: jieba if the package rjieba is installed."""
    dictionary: Path | None = None
    """Terms that stay whole in documents with Chinese characters: a UTF-8 file, one a line."""

    def resolved(self) -> WordSettings:
        """Settle `auto`, and check that jieba is there if it was asked for."""
        installed = importlib.util.find_spec("rjieba") is not None
        if self.segmenter == "jieba" and not installed:
            raise MissingExtra("rjieba", "zh", "Cutting Chinese text into words")
        if self.segmenter != "auto":
            return self
        return replace(self, segmenter="jieba" if installed else "characters")


def find_or_build(
    corpus: Corpus,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    words: WordSettings | None = None,
    workers: int | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Shards:
    """Open the shards of this corpus, tokenizer and word settings in `cache`; build them if they are not there.

    Only one process builds; another one that wants the same shards waits for it.
    """
    words = (words or WordSettings()).resolved()
    plan = _plan(corpus, tokenizer, words)
    folder = Path(cache) / f"shards-{_key(plan)[:12]}"
    while not (folder / artifact.MANIFEST).is_file():
        try:
            cutter = Cutter(tokenizer, words)
            _build(folder, plan, corpus, cutter, workers=workers or crew.default_workers(), tell=tell)
        except Busy:
            tell(Progress("waiting for another process", 0, 0))
            time.sleep(_PATIENCE)
        except BadFile:
            # Another process may have finished between our look and our turn.
            if not (folder / artifact.MANIFEST).is_file():
                raise
    return Shards.open(folder)


def _plan(corpus: Corpus, tokenizer: Tokenizer, words: WordSettings) -> dict[str, Any]:
    dictionary = [words.dictionary] if words.dictionary else []
    config = {
        "format": FORMAT,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": _content_hash(tokenizer),
        "segmenter": words.segmenter,
        "dictionary": bool(dictionary),
    }
    return {"config": config, "inputs": [corpus.folder, *dictionary]}


def _key(plan: Mapping[str, Any]) -> str:
    hashes = [artifact.hash_input(path) for path in plan["inputs"]]
    return artifact.hash_config({**plan["config"], "inputs": hashes})


def _content_hash(tokenizer: Tokenizer) -> str:
    """Hash all that decides about ids and offsets: not the length limit, and not the files."""
    settings = replace(tokenizer.parts.settings, model_max_length=None)
    return artifact.hash_config(asdict(replace(tokenizer.parts, settings=settings)))


def _build(
    folder: Path,
    plan: Mapping[str, Any],
    corpus: Corpus,
    cutter: Cutter,
    *,
    workers: int,
    tell: Callable[[Progress], None],
) -> None:
    if artifact.finished(folder, KIND, **plan):
        return
    with artifact.create(folder, KIND, resume=True, **plan) as draft:
        stage = draft.path / ".stage"
        stage.mkdir(exist_ok=True)
        tasks = [(part, stage / f"{number:06}") for number, part in enumerate(corpus.parts)]
        missing = [task for task in tasks if not task[1].exists()]
        counter = crew.context().Value("q", 0)
        job = partial(_cut_job, missing, counter, cutter)
        crew.run(job, min(workers, len(missing)), lambda: tell(_tokenising(stage, len(tasks))))
        draft.counts.update(_join([path for _, path in tasks], draft.path, cutter.types, tell))


def _tokenising(stage: Path, parts: int) -> Progress:
    done = sum(not path.name.startswith(".") for path in stage.iterdir())
    return Progress("tokenising", done, parts)


def _cut_job(tasks: Sequence[tuple[Path, Path]], counter: Any, cutter: Cutter) -> None:
    """Cut parts of the corpus, each taken by its number from a shared counter, until none is left."""
    # The processes share out the work, and threads that the library had do not survive a fork.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    gc.disable()  # millions of offsets, none of them in a cycle, would be looked at again and again
    while (number := _next(counter)) < len(tasks):
        part, path = tasks[number]
        artifact.atomic_write(path, _to_bytes(*cutter.cut(part)))


def _next(counter: Any) -> int:
    with counter.get_lock():
        number: int = counter.value
        counter.value += 1
        return number


def _to_bytes(counts: Mapping[str, int], arrays: Arrays) -> bytes:
    """Write a cut part: a line of JSON with counts and lengths, then the arrays."""
    head = {"counts": counts, "lengths": {name: len(array) for name, array in arrays.items()}}
    return b"".join([json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values())])


def _from_bytes(content: bytes, types: Mapping[str, str]) -> tuple[dict[str, int], Arrays]:
    at = content.index(b"\n") + 1
    head = json.loads(content[:at])
    arrays = {}
    for name, length in head["lengths"].items():
        arrays[name] = np.frombuffer(content, types[name], length, at)
        at += arrays[name].nbytes
    return head["counts"], arrays


def _join(
    staged: Sequence[Path], folder: Path, types: Mapping[str, str], tell: Callable[[Progress], None]
) -> Counter[str]:
    """Write the arrays of all parts one after the other, lengths turned into borders; give the sum of the counts."""
    total = Counter(dict.fromkeys(COUNTS, 0))
    ends = {"sentences": 0, "documents": 0}
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / f"{name}.bin").open("wb")) for name in types}
        for name in ends:
            files[name].write(np.zeros(1, types[name]).tobytes())
        for number, path in enumerate(staged):
            tell(Progress("joining", number, len(staged)))
            counts, arrays = _from_bytes(path.read_bytes(), types)
            total.update(counts)
            for name, array in arrays.items():
                values = ends[name] + np.cumsum(array) if name in ends else array
                files[name].write(values.astype(types[name], copy=False).tobytes())
            ends = {name: end + int(arrays[name].sum()) for name, end in ends.items()}
    return total


class Cutter:
    """Cuts documents of a corpus; what it needs for Chinese is made when the first Chinese document comes."""

    def __init__(self, tokenizer: Tokenizer, words: WordSettings) -> None:
        self.types = array_types(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._dictionary = Dictionary.read(words.dictionary) if words.dictionary else None
        self._has_jieba = words.segmenter == "jieba"
        pieces = tokenizer.vocabulary.pieces
        self._goes_on = np.array([piece.startswith(CONTINUATION) for piece in pieces], bool)

    def cut(self, part: Path) -> tuple[Counter[str], Arrays]:
        """Cut the documents of a part; give counts and arrays."""
        import pyarrow.parquet as pq

        return self.cut_table(pq.read_table(part, columns=list(COLUMNS), use_threads=False))

    def cut_table(self, table: Any) -> tuple[Counter[str], Arrays]:
        """Cut documents that are in memory: a table with `COLUMNS`."""
        counts: Counter[str] = Counter()
        batches = [self._cut_batch(batch, counts) for batch in _batches(table)]
        empty = {name: np.zeros(0, kind) for name, kind in self.types.items()}
        return counts, {name: np.concatenate([each[name] for each in (empty, *batches)]) for name in empty}

    def _cut_batch(self, batch: Any, counts: Counter[str]) -> Arrays:
        texts: list[str] = batch.column("text").to_pylist()
        pieces = _Pieces.of(self._tokenizer, texts)
        opens = _sentence_openings(pieces, _Spans.of(batch.column("sentences"), pieces.bases))
        begins = self._word_openings(pieces, texts) | opens
        flags = np.where(begins, WORD, 0).astype(np.uint8)
        _mark_entities(flags, pieces, _Spans.of(batch.column("entities"), pieces.bases), counts)
        full = pieces.sizes > 0
        counts["documents"] += int(full.sum())
        counts["documents without tokens"] += int((~full).sum())
        counts["sentences"] += int(opens.sum())
        counts["tokens"] += len(flags)
        counts["words"] += int(begins.sum())
        counts["unknown pieces"] += int((pieces.ids == self._tokenizer.unk_id).sum())
        found: Arrays = {
            "ids": pieces.ids,
            "flags": flags,
            "sentences": np.diff(np.append(np.flatnonzero(opens), len(flags))),
            "documents": np.bincount(pieces.documents[opens], minlength=len(texts))[full],
            "hashes": np.frombuffer(b"".join(map(_fingerprint, texts)), "<u8")[full],
        }
        return {name: array.astype(self.types[name], copy=False) for name, array in found.items()}

    def _word_openings(self, pieces: _Pieces, texts: Sequence[str]) -> Truths:
        begins: Truths = ~self._goes_on[pieces.ids]
        if not (self._has_jieba or self._dictionary):
            return begins  # BERT itself has every Chinese character stand alone
        ends = np.cumsum(pieces.sizes)
        for number, text in enumerate(texts):
            if not text.isascii() and _HAS_CJK.search(text):
                own = slice(ends[number] - pieces.sizes[number], ends[number])
                spans = words_of(text, self._segmenter, self._dictionary)
                openings = pieces.bases[number] + np.array([start for start, _ in spans], np.int64)
                begins[own] &= _changes(np.searchsorted(openings, pieces.starts[own], "right"))
        return begins

    @cached_property
    def _segmenter(self) -> Segmenter:
        return JiebaSegmenter() if self._has_jieba else DictionarySegmenter(Dictionary(()))


@dataclass(frozen=True)
class _Pieces:
    """The pieces of some documents; places count characters from the first document on, with a gap after each."""

    ids: Numbers
    starts: Numbers
    ends: Numbers
    documents: Numbers
    """The document of each piece."""
    sizes: Numbers
    """How many pieces each document has."""
    bases: Numbers
    """The place at which each document begins."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> _Pieces:
        found = [encoding.raw for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        sizes = np.array([len(each) for each in found], np.int64)
        lengths = np.array([len(text) + 1 for text in texts], np.int64)
        bases, documents = np.cumsum(lengths) - lengths, np.repeat(np.arange(len(texts)), sizes)
        ids = np.array(list(chain.from_iterable(each.ids for each in found)), np.int64)
        flat = list(chain.from_iterable(chain.from_iterable(each.offsets for each in found)))
        places = np.array(flat, np.int64).reshape(-1, 2) + bases[documents][:, None]
        # Normalisation may reorder a few rare marks; a search needs places that never go back.
        starts, ends = np.maximum.accumulate(places, axis=0).T
        return cls(ids, starts, ends, documents, sizes, bases)


def _batches(table: Any) -> Iterator[Any]:
    """Cut a table into stretches of whole documents with about so many characters."""
    import pyarrow.compute as pc

    characters = np.cumsum(pc.utf8_length(table["text"]).to_numpy())
    openings = np.flatnonzero(_changes(characters // _BATCH_CHARACTERS))
    whole = table.combine_chunks()
    for start, end in pairwise([*openings.tolist(), len(table)]):
        yield from whole.slice(start, end - start).to_batches()


@dataclass(frozen=True)
class _Spans:
    """The sentences or entities of some documents, by the same places as their pieces."""

    starts: Numbers
    ends: Numbers
    sizes: Numbers
    """How many each document has."""

    @classmethod
    def of(cls, column: Any, bases: Numbers) -> _Spans:
        """Read a column of lists of spans."""
        import pyarrow.compute as pc

        sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
        flat, shifts = column.flatten(), np.repeat(bases, sizes)
        starts, ends = (pc.struct_field(flat, name).to_numpy() + shifts for name in ("start", "end"))
        return cls(starts, ends, sizes)


def _sentence_openings(pieces: _Pieces, sentences: _Spans) -> Truths:
    """Tell which pieces open a sentence. The first sentence of a document holds all that comes before the second."""
    sizes = sentences.sizes
    later = np.ones(len(sentences.starts), bool)
    later[(np.cumsum(sizes) - sizes)[sizes > 0]] = False
    borders = np.unique(np.concatenate([pieces.bases, sentences.starts[later]]))
    return _changes(np.searchsorted(borders, pieces.starts, "right"))


def _changes(numbers: NDArray[np.intp]) -> Truths:
    changed: Truths = np.diff(numbers, prepend=-1) != 0
    return changed


def _mark_entities(flags: NDArray[np.uint8], pieces: _Pieces, entities: _Spans, counts: Counter[str]) -> None:
    """Mark the pieces of entities; of several that share a piece, the longest stays, then the leftmost."""
    starts, ends = entities.starts, entities.ends
    first = np.searchsorted(pieces.ends, starts, "right")
    last = np.searchsorted(pieces.starts, ends, "left") - 1
    covered = np.flatnonzero((first <= last) & (starts < ends))
    order = covered[np.lexsort((starts[covered], (starts - ends)[covered]))]
    kept = order[_apart(first[order], last[order])]
    flags[first[kept]] |= FIRST
    flags[last[kept]] |= LAST
    steps = np.zeros(len(flags) + 1, np.int8)
    steps[first[kept]] += 1
    steps[last[kept] + 1] -= 1
    flags[np.cumsum(steps[:-1]) > 0] |= INSIDE
    counts["entities"] += len(kept)
    counts["entities dropped: overlap"] += len(covered) - len(kept)
    counts["entities dropped: no token"] += len(starts) - len(covered)


def _apart(first: NDArray[np.intp], last: NDArray[np.intp]) -> Truths:
    """Tell which ranges stay when each, in the order given, gives way to those before it that it meets."""
    stays = np.ones(len(first), bool)
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(last[order])
    group = np.cumsum(np.append(True, first[order][1:] > reach[:-1])[: len(order)])
    clashing = np.sort(order[np.bincount(group)[group] > 1])
    taken: set[int] = set()
    for number in clashing.tolist():
        own = range(first[number], last[number] + 1)
        stays[number] = taken.isdisjoint(own)
        taken.update(own if stays[number] else ())
    return stays


def _fingerprint(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]
