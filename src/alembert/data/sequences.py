"""Documents cut into spans of tokens, and the training sequences that the model reads of them.

In: the token borders of a document's sentences. Out: spans that hold every token exactly once. Cut at sentences, a
sequence reads well and is often shorter than it could be; cut at tokens, all but the last of a document are full. A
`TokenSpan` is small, so that a window of thousands of them is planned ahead. An `Instance` holds the tokens themselves,
with `[CLS]` and `[SEP]`, and is built when it is needed.

Pairs of segments are those of BERT (next sentence, Devlin et al. 2019), for which a random partner lends its sentences,
and of ALBERT (sentence order, Lan et al. 2020). They follow the published scripts choice by choice, in distribution,
not draw by draw: sentences are contiguous in the shards, so a segment is a range of tokens and cutting it short is
arithmetic. As published, a pair that is too long loses tokens; single sequences lose none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from alembert.corpus.shards import TokenArrays

TokenRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A training sequence as ranges of the shards' tokens."""

    document: int
    a: TokenRange
    b: TokenRange | None = None
    label: int | None = None
    """0: B follows A. 1: B is random, or the two are swapped. None: a single sequence."""

    @property
    def length(self) -> int:
        """Tokens with `[CLS]` and `[SEP]`."""
        own = self.a[1] - self.a[0]
        return own + 2 if self.b is None else own + self.b[1] - self.b[0] + 3


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One training sequence, not masked."""

    ids: npt.NDArray[np.int32]
    segments: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    """The shards' flags of each token; 0 at special tokens."""
    special: npt.NDArray[np.bool_]
    """True at `[CLS]` and `[SEP]`."""
    label: int | None = None
    types: npt.NDArray[np.unsignedinteger[Any]] | None = None
    """The shards' types of entities, if they were read; 0 at special tokens."""

    def __len__(self) -> int:
        return len(self.ids)


CutUnit = Literal["sentence", "token"]


def split_document(
    borders: npt.NDArray[np.int64], document: int, *, length: int, cut: CutUnit = "sentence"
) -> list[TokenSpan]:
    """Cut a document into single sequences of at most `length` tokens, `[CLS]` and `[SEP]` included.

    A sentence that is longer goes on in the next sequence, so nothing is lost. `length` is at least 3.

    >>> [stretch.a for stretch in split_document(np.array([0, 3, 5, 12]), 0, length=8)]
    [(0, 5), (5, 11), (11, 12)]
    """
    ends = borders.tolist()
    if cut == "token":
        ends = ends[:1] + ends[-1:]
    return [TokenSpan(document, a) for a in _ranges(ends, length - 2)]


def _ranges(borders: Sequence[int], most: int) -> Iterator[TokenRange]:
    """Go from border to border in steps of at most `most`, and stop between borders only where they are further apart."""
    start = borders[0]
    while start < borders[-1]:
        end = borders[bisect_right(borders, start + most) - 1]
        if end <= start:
            end = start + most
        yield start, end
        start = end


def build_instance(
    stretch: TokenSpan,
    shards_ids: npt.NDArray[np.unsignedinteger],
    shards_flags: npt.NDArray[np.uint8],
    *,
    cls_id: int,
    sep_id: int,
    shards_types: npt.NDArray[np.unsignedinteger] | None = None,
) -> Instance:
    """Read a stretch from the shards: `[CLS] a [SEP]`, or `[CLS] a [SEP] b [SEP]` with `b` as segment 1."""
    ids = np.full(stretch.length, sep_id, np.int32)
    ids[0] = cls_id
    segments, flags = np.zeros((2, stretch.length), np.uint8)
    types = np.zeros(stretch.length, np.uint16)
    special = np.ones(stretch.length, np.bool_)
    position = 1
    for segment, (start, end) in enumerate((stretch.a,) if stretch.b is None else (stretch.a, stretch.b)):
        segment_slice = slice(position, position + end - start)
        ids[segment_slice], flags[segment_slice], special[segment_slice] = (
            shards_ids[start:end],
            shards_flags[start:end],
            False,
        )
        if shards_types is not None:
            types[segment_slice] = shards_types[start:end]
        segments[position : segment_slice.stop + 1] = segment
        position = segment_slice.stop + 1
    return Instance(ids, segments, flags, special, stretch.label, None if shards_types is None else types)


SHORT_SHARE = 0.1
_TRIES = 10


def build_next_sentence_pairs(
    source: TokenArrays,
    document: int,
    *,
    length: int,
    short_share: float = SHORT_SHARE,
    rng: np.random.Generator,
    is_training: Callable[[int], bool],
) -> list[TokenSpan]:
    """Make the pairs of a document: B is what follows A (label 0), or comes from a random document (label 1).

    Sentences that gave way to a random B begin the next pair. Random documents are those for which `is_training`
    holds; at least one other than `document` must have tokens. `length` is at least 5.
    """
    borders = _sentences(source, document)
    most = length - 3
    target = _draw_target_length(most, short_share, rng)
    pairs = []
    first = 0
    while first < len(borders) - 1:
        end = _find_chunk_end(borders, first, target)
        cut = _draw_split(first, end, rng)
        a = borders[first], borders[cut]
        follows = cut < end and rng.random() >= 0.5
        if follows:
            b = borders[cut], borders[end]
        else:
            b = _draw_random_b(_random_document(source, document, rng, is_training), target - (a[1] - a[0]), rng)
        pairs.append(TokenSpan(document, *_truncate_pair(a, b, most, rng), label=int(not follows)))
        first = end if follows else cut
    return pairs


def build_sentence_order_pairs(
    source: TokenArrays,
    document: int,
    *,
    length: int,
    short_share: float = SHORT_SHARE,
    rng: np.random.Generator,
) -> list[TokenSpan]:
    """Make pairs of consecutive segments of a document, in order (label 0) or swapped (label 1), evenly.

    A sentence that is left alone becomes a single sequence without a label (several, when it is longer than
    `length`); the published script gives it a random partner and calls that swapped. `length` is at least 5.
    """
    borders = _sentences(source, document)
    most = length - 3
    target = _draw_target_length(most, short_share, rng)
    pairs = []
    first = 0
    while first < len(borders) - 1:
        end = _find_chunk_end(borders, first, target)
        cut = _draw_split(first, end, rng)
        if cut == end:
            pairs += split_document(np.array([borders[first], borders[end]]), document, length=length)
        else:
            halves = (borders[first], borders[cut]), (borders[cut], borders[end])
            swapped = rng.random() < 0.5
            a, b = reversed(halves) if swapped else halves
            pairs.append(TokenSpan(document, *_truncate_pair(a, b, most, rng), label=int(swapped)))
        first = end
    return pairs


def _sentences(source: TokenArrays, document: int) -> list[int]:
    """Return the borders of the sentences that have tokens."""
    return list(dict.fromkeys(source.get_sentence_borders(document).tolist()))


def _draw_target_length(most: int, short_share: float, rng: np.random.Generator) -> int:
    """Draw the length that all chunks of a document aim at: usually all there is room for, sometimes a shorter one."""
    return int(rng.integers(2, most + 1)) if rng.random() < short_share else most


def _find_chunk_end(borders: list[int], first: int, target: int) -> int:
    """Find the border at which the sentences from `first` on reach the target; at least one, at most all."""
    reached = bisect_left(borders, borders[first] + target, lo=first + 1)
    return min(reached, len(borders) - 1)


def _draw_split(first: int, end: int, rng: np.random.Generator) -> int:
    """Choose where A ends: any border inside the chunk, or its end if it is one sentence."""
    return end if end - first == 1 else int(rng.integers(first + 1, end))


def _random_document(
    source: TokenArrays, own: int, rng: np.random.Generator, is_training: Callable[[int], bool]
) -> list[int]:
    """Draw the sentences of a random document; as published, its own if ten tries all gave that."""
    for _ in range(_TRIES):
        document, borders = _draw_document(source, rng, is_training)
        if document != own:
            break
    return borders


def _draw_document(
    source: TokenArrays, rng: np.random.Generator, is_training: Callable[[int], bool]
) -> tuple[int, list[int]]:
    """Draw evenly from the documents of the training part that have tokens."""
    while True:
        document = int(rng.integers(len(source)))
        if is_training(document) and len(borders := _sentences(source, document)) > 1:
            return document, borders


def _draw_random_b(borders: list[int], target: int, rng: np.random.Generator) -> TokenRange:
    """Take sentences from a random one on until the target is reached; one even if the target is below it."""
    first = int(rng.integers(len(borders) - 1))
    return borders[first], borders[_find_chunk_end(borders, first, target)]


def _truncate_pair(a: TokenRange, b: TokenRange, most: int, rng: np.random.Generator) -> tuple[TokenRange, TokenRange]:
    """Cut a pair down to `most` tokens: one at a time from the longer side, from B on a tie."""
    lead = (a[1] - a[0]) - (b[1] - b[0])
    over = max(0, (a[1] - a[0]) + (b[1] - b[0]) - most)
    level = min(over, abs(lead))
    rest = over - level
    from_a = rest // 2 + (level if lead > 0 else 0)
    return _truncate_side(a, from_a, rng), _truncate_side(b, over - from_a, rng)


def _truncate_side(side: TokenRange, count: int, rng: np.random.Generator) -> TokenRange:
    """Drop so many tokens, each from the front or the back with an even chance."""
    front = int(rng.binomial(count, 0.5))
    return side[0] + front, side[1] - (count - front)
