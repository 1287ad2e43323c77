"""Segment many words with a tokenizer, and compare the segmentations of two tokenizers.

In: the words of `WordCounts`. Out: `Segmentations`, the ids of all pieces in a row with the border of each word; and
`SegmentationComparison`, which counts the words that two tokenizers segment differently. The tokenizer itself segments
many words in one text, since a word begins at every piece without `##`; where that does not hold, each word alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import CONTINUATION_PREFIX

Int64Array = NDArray[np.int64]
_BoolArray = NDArray[np.bool_]
_BATCH = 1024
_BATCHES = 64
_EXAMPLES = 20


@dataclass(frozen=True)
class Segmentations:
    """The pieces of each of many words."""

    words: Sequence[str]
    ids: Int64Array
    """Ids of all pieces, word after word."""
    starts: Int64Array
    """Where in `ids` each word begins, and the end of the last."""
    unk_id: int

    @cached_property
    def sizes(self) -> Int64Array:
        """How many pieces each word has."""
        return np.diff(self.starts)

    @cached_property
    def unknown(self) -> _BoolArray:
        """Which words the tokenizer does not know; such a word is one piece."""
        return np.equal(self.firsts, self.unk_id)

    @property
    def firsts(self) -> Int64Array:
        """The id of each word's first piece."""
        return self.ids[self.starts[:-1]]

    def get_ids(self, position: int) -> tuple[int, ...]:
        """Return the ids of one word."""
        return tuple(self.ids[self.starts[position] : self.starts[position + 1]].tolist())

    def table(self) -> dict[str, int]:
        """Return word -> number of pieces."""
        return dict(zip(self.words, self.sizes.tolist(), strict=True))


@dataclass(frozen=True)
class SegmentationChange:
    """A word that is segmented differently."""

    word: str
    count: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class SegmentationComparison:
    """Counts of the distinct words of a corpus by how their segmentation changed."""

    words: int
    unchanged: int
    joined: int
    """Words that became one piece because they are terms."""
    changed: int
    """Other words that are segmented differently."""
    changed_at_start: int
    """Changed words that begin with a new piece and are segmented as before after it."""
    changed_occurrences: int
    occurrences: int
    examples: tuple[SegmentationChange, ...] = field(default=())
    """The most frequent of the changed words."""

    def to_table(self) -> dict[str, Any]:
        """Return plain values, with the keys that `vocabulary.json` has."""
        table = asdict(self)
        return {"begun": table.pop("changed_at_start"), **table}

    def counts(self) -> dict[str, int]:
        """Return the numbers for a manifest."""
        return {
            "words_checked": self.words,
            "words_unchanged": self.unchanged,
            "words_joined": self.joined,
            "words_changed": self.changed,
            "words_changed_at_the_start_only": self.changed_at_start,
            "occurrences_checked": self.occurrences,
            "occurrences_changed": self.changed_occurrences,
        }


def segment_words(tokenizer: Tokenizer, words: Sequence[str]) -> Segmentations:
    continues = np.array([_continues(piece) for piece in tokenizer.vocabulary], dtype=bool)
    ids, sizes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    step = _BATCH * _BATCHES
    for begin in range(0, len(words), step):
        group = words[begin : begin + step]
        batches = [group[i : i + _BATCH] for i in range(0, len(group), _BATCH)]
        encoded = tokenizer.encode_batch(
            [" ".join(batch) for batch in batches], add_special_tokens=False, offsets=False
        )
        for batch, encoding in zip(batches, encoded, strict=True):
            piece_ids = np.array(encoding.ids, dtype=np.int64)
            borders = np.flatnonzero(~continues[piece_ids])
            if len(borders) == len(batch):
                sizes.append(np.diff(borders, append=len(piece_ids)))
            else:
                piece_ids, lengths = _one_by_one(tokenizer, batch)
                sizes.append(lengths)
            ids.append(piece_ids)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    return Segmentations(words, np.concatenate(ids), starts, tokenizer.unk_id)


def compare_segmentations(
    before: tuple[Tokenizer, Segmentations],
    after: tuple[Tokenizer, Segmentations],
    counts: Mapping[str, int],
    *,
    new_ids: Int64Array | None = None,
    terms: Collection[str] = (),
) -> SegmentationComparison:
    """Compare two segmentations of the same words; `new_ids` maps old ids to new ones, if ids have changed."""
    old, new = before[1], after[1]
    differs = _find_differences(old if new_ids is None else _renumber(old, new_ids), new)
    is_term = np.fromiter((word in terms for word in old.words), dtype=bool, count=len(old.words))
    joined = differs & is_term & (new.sizes == 1) & ~new.unknown
    changed = np.flatnonzero(differs & ~joined).tolist()
    weights = {position: counts[old.words[position]] for position in changed}
    shown = sorted(changed, key=lambda position: (-weights[position], position))[:_EXAMPLES]
    return SegmentationComparison(
        words=len(old.words),
        unchanged=int((~differs).sum()),
        joined=int(joined.sum()),
        changed=len(changed),
        changed_at_start=sum(_same_behind_first(old.get_ids(position), new.get_ids(position)) for position in changed),
        changed_occurrences=sum(weights.values()),
        occurrences=sum(counts[word] for word in old.words),
        examples=tuple(
            SegmentationChange(
                old.words[position],
                weights[position],
                tuple(before[0].tokens(old.get_ids(position))),
                tuple(after[0].tokens(new.get_ids(position))),
            )
            for position in shown
        ),
    )


def _same_behind_first(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    rest = new[1:]
    return len(old) > len(new) and old[len(old) - len(rest) :] == rest


def _continues(piece: str) -> bool:
    return piece.startswith(CONTINUATION_PREFIX) and piece != CONTINUATION_PREFIX


def _one_by_one(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Int64Array, Int64Array]:
    rows = [e.ids for e in tokenizer.encode_batch(words, add_special_tokens=False, offsets=False)]
    # A word of which normalisation leaves nothing would have no pieces.
    rows = [row or (tokenizer.unk_id,) for row in rows]
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    return np.array([number for row in rows for number in row], dtype=np.int64), sizes


def _renumber(segmentations: Segmentations, new_ids: Int64Array) -> Segmentations:
    return Segmentations(
        segmentations.words, new_ids[segmentations.ids], segmentations.starts, int(new_ids[segmentations.unk_id])
    )


def _find_differences(old: Segmentations, new: Segmentations) -> _BoolArray:
    differs: _BoolArray = np.not_equal(old.sizes, new.sizes)
    same = np.flatnonzero(~differs)
    if len(same):
        sizes = old.sizes[same]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        left = old.ids[np.repeat(old.starts[same], sizes) + inside]
        right = new.ids[np.repeat(new.starts[same], sizes) + inside]
        differs[same] = np.logical_or.reduceat(left != right, np.cumsum(sizes) - sizes)
    return differs
