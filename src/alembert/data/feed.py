"""The order of unlabelled training data: shuffled documents, windows of them, then micro-batches.

The documents of an epoch are shuffled by a permutation that needs no memory. A window is a run of documents in that
order; their sequences are shuffled together and put into micro-batches by a budget of tokens. A `Cursor` names a
micro-batch, and planning can begin at any cursor: a resumed run starts as fast as a new one, and what is seen depends
on the seed and on the cursor alone, not on how many processes look. The trade-off: sequences of one long document stay
within one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.data import sequences
from alembert.data.batching import group_by_budget
from alembert.data.order import Permutation, make_rng, stable_hash
from alembert.data.sequences import TokenSpan

if TYPE_CHECKING:
    from alembert.corpus.shards import TokenArrays


WINDOW_TOKENS: Final = 1 << 18
"""Tokens of a window, about: many times a step, and planned in well under a second."""


@dataclass(frozen=True, kw_only=True)
class SequenceSpec:
    """How documents become sequences."""

    length: int
    pairs: Literal["next_sentence", "sentence_order"] | None = None
    short_share: float = 0.1
    cut: Literal["sentence", "token"] = "sentence"
    late_start_share: float = 0.0
    """Share of documents of which the rest from a random sentence on is a sequence too."""


@dataclass(frozen=True)
class Cursor:
    """The address of a micro-batch."""

    epoch: int = 0
    window: int = 0
    micro: int = 0


@dataclass(frozen=True)
class SequenceBatchPlan:
    """The sequences of one micro-batch, and its own address."""

    cursor: Cursor
    copy: int
    """Which set of random masks it gets: the epoch, or with static masks its remainder."""
    spans: tuple[TokenSpan, ...]
    cutting: SequenceSpec

    @property
    def tokens(self) -> int:
        return sum(stretch.length for stretch in self.spans)


class HeldOutSplit:
    """Documents that are held out, by their content: the same ones whatever the order of the corpus."""

    def __init__(self, source: TokenArrays, share: float) -> None:
        self._hashes = source.hashes
        self._limit = int(share * 2**64)
        count = sum(int((block < self._limit).sum()) for block in _blocks(self._hashes))
        if share and not count:
            lowest = min(int(block.min()) for block in _blocks(self._hashes))
            self._limit = lowest + 1
            count = sum(int((block < self._limit).sum()) for block in _blocks(self._hashes))
        self.held_out_count = count

    def is_training(self, document: int) -> bool:
        return int(self._hashes[document]) >= self._limit

    def held_out(self) -> Iterator[int]:
        """Yield the held-out documents, those with the lowest hash first."""
        numbers = np.concatenate(
            [np.flatnonzero(block < self._limit) + start for start, block in _enumerate_blocks(self._hashes)]
        )
        yield from numbers[np.argsort(self._hashes[numbers], kind="stable")].tolist()


class SequenceSampler:
    """Plans the micro-batches of a run."""

    def __init__(
        self,
        source: TokenArrays,
        split: HeldOutSplit,
        *,
        seed: int,
        micro_tokens: int,
        static_copies: int | None = None,
    ) -> None:
        self._source = source
        self._split = split
        self._seed = seed
        self._micro_tokens = micro_tokens
        self._static_copies = static_copies
        mean = source.get_token_range(len(source) - 1)[1] / len(source)
        self.documents_per_window = int(np.clip(WINDOW_TOKENS / mean, 16, 4096))
        self.windows = -(-len(source) // self.documents_per_window)
        self._window = lru_cache(maxsize=2)(self._plan_window)

    def take(self, cursor: Cursor, count: int, cutting: SequenceSpec) -> tuple[list[SequenceBatchPlan], Cursor]:
        """Plan the next micro-batches from a cursor on; return them and the cursor after them."""
        batches: list[SequenceBatchPlan] = []
        while len(batches) < count:
            planned = self._window(cursor.epoch, cursor.window, cutting)
            next_batches = planned[cursor.micro : cursor.micro + count - len(batches)]
            batches += next_batches
            cursor = replace(cursor, micro=cursor.micro + len(next_batches))
            if cursor.micro >= len(planned):
                cursor = self._next_window(cursor)
        return batches, cursor

    def _next_window(self, cursor: Cursor) -> Cursor:
        if cursor.window + 1 < self.windows:
            return Cursor(cursor.epoch, cursor.window + 1)
        return Cursor(cursor.epoch + 1)

    def _plan_window(self, epoch: int, window: int, cutting: SequenceSpec) -> list[SequenceBatchPlan]:
        copy = epoch if self._static_copies is None else epoch % self._static_copies
        order = Permutation(len(self._source), stable_hash(self._seed, "order", epoch))
        start = window * self.documents_per_window
        indices = range(start, min(start + self.documents_per_window, len(self._source)))
        documents = [d for d in map(order.__getitem__, indices) if self._split.is_training(d)]
        stretches = [s for document in documents for s in self._cut(document, copy, cutting)]
        make_rng(self._seed, "window", epoch, window).shuffle(stretches)
        filled = batch_sequences(stretches, self._micro_tokens)
        return [SequenceBatchPlan(Cursor(epoch, window, n), copy, part, cutting) for n, part in enumerate(filled)]

    def _cut(self, document: int, copy: int, cutting: SequenceSpec) -> list[TokenSpan]:
        rng = make_rng(self._seed, "pairs", copy, document)
        return build_sequences(self._source, document, cutting, rng, self._split)


def build_sequences(
    source: TokenArrays, document: int, cutting: SequenceSpec, rng: np.random.Generator, split: HeldOutSplit
) -> list[TokenSpan]:
    """Make sequences of one document."""
    if cutting.pairs == "next_sentence":
        return sequences.build_next_sentence_pairs(
            source,
            document,
            length=cutting.length,
            short_share=cutting.short_share,
            rng=rng,
            is_training=split.is_training,
        )
    if cutting.pairs == "sentence_order":
        return sequences.build_sentence_order_pairs(
            source, document, length=cutting.length, short_share=cutting.short_share, rng=rng
        )
    return [
        stretch
        for borders in _add_late_start(source.get_sentence_borders(document), cutting.late_start_share, rng)
        for stretch in sequences.split_document(borders, document, length=cutting.length, cut=cutting.cut)
    ]


def _add_late_start(
    borders: npt.NDArray[np.int64], share: float, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Add the rest of a document from a later sentence on, as often as `share` says.

    Half of these begin with the second sentence, because the first is often a title; the others anywhere. The document
    itself stays whole: cut there, it would teach that texts end in the middle.
    """
    if len(borders) < 3 or rng.random() >= share:
        return [borders]
    start = 1 if rng.random() < 0.5 else int(rng.integers(1, len(borders) - 1))
    return [borders, borders[start:]]


def batch_sequences(stretches: Sequence[TokenSpan], tokens: int) -> Iterator[tuple[TokenSpan, ...]]:
    """Put sequences together, in their order, as long as they fit; one that is longer alone stands alone."""
    return map(tuple, group_by_budget(stretches, lambda stretch: stretch.length, tokens))


def _enumerate_blocks(
    values: npt.NDArray[np.uint64], size: int = 1 << 20
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    for start in range(0, len(values), size):
        yield start, values[start : start + size]


def _blocks(values: npt.NDArray[np.uint64]) -> Iterator[npt.NDArray[np.uint64]]:
    return (block for _, block in _enumerate_blocks(values))
