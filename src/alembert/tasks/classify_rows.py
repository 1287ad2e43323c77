"""Rows of the task `classify`: what the model reads of a text, a pair or a document, whatever its length.

Texts and pairs are `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, and have one answer for all their windows together. Of
a pair the longer side is read through windows and the shorter is repeated in each; if that is too long as well (more
than half a window), it has windows of its own, and both sides move on together, so the cost grows with the longer text
and not with the product of both. A document is `[CLS] s1 [SEP] s2 [SEP] ...`, each sentence answered for at the [SEP]
behind it (Cohan et al. 2019), in the one window that owns it. A sentence that is longer than a window is read in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Row, Window, compute_windows
from alembert.tasks.example import Coverage, Encoded
from alembert.text.sentences import split_sentences
from alembert.text.tokenizer import Encoding, Tokenizer

Targets = npt.NDArray[Any]
_KEPT_TEXTS: Final = 16
"""Long texts that are remembered with their borders."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Which answer of the example each place of its rows belongs to."""

    owners: IntArray
    answers: int


@dataclass(frozen=True, eq=False)
class Cutting:
    """How long texts are cut."""

    tokenizer: Tokenizer
    limit: int
    """Tokens of a row at most."""
    overlap: int
    most: int | None = None
    """Windows of one text that are kept at most."""

    def overlap_in(self, room: int) -> int:
        return min(self.overlap, room // 2)

    @cached_property
    def long_text(self) -> Callable[[str], _LongText]:
        """Return a text with its borders; the last few are kept, since the questions on a passage stand together."""
        return lru_cache(maxsize=_KEPT_TEXTS)(partial(_LongText.of, self.tokenizer))


@dataclass(frozen=True, eq=False)
class _LongText:
    """A text that does not fit into a row, and where it can be cut."""

    encoding: Encoding
    sentence_starts: list[int]
    solid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str) -> _LongText:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        starts = np.array([start for start, _ in encoding.offsets])
        words = np.array([-1 if word is None else word for word in encoding.word_ids])
        breaks = np.searchsorted(starts, [start for start, _ in split_sentences(text)])
        return cls(encoding, breaks.tolist(), np.append(False, words[1:] == words[:-1]))

    def cuts(self, room: int, overlap: int) -> list[tuple[int, int]]:
        """Cut it at sentences where one begins nearby, between words where not."""
        found = compute_windows(len(self.solid), room, overlap, self.sentence_starts, self.solid)
        return [(window.start, window.end) for window in found]


@dataclass(frozen=True, eq=False)
class _Side:
    """One text: its tokens, and the stretches of them that are read at once."""

    text: str
    ids: IntArray
    cuts: list[tuple[int, int]]
    encoding: Encoding | None = None

    def cut_at(self, row: int, rows: int) -> tuple[int, int]:
        return self.cuts[row * len(self.cuts) // rows]

    def lost(self, rows: Sequence[int], count: int) -> int:
        """Count the characters of the tokens that none of the kept rows reads."""
        if self.encoding is None:
            return 0
        is_read = np.zeros(len(self.ids), np.bool_)
        for row in rows:
            start, end = self.cut_at(row, count)
            is_read[start:end] = True
        offsets = self.encoding.offsets
        return sum(offsets[place][1] - offsets[place][0] for place in np.flatnonzero(~is_read).tolist())


# -- texts and pairs


def token_ids(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[IntArray]:
    """Return the tokens of each text; those that are the same go through the tokenizer once."""
    distinct = list(dict.fromkeys(texts))
    found = tokenizer.encode_batch(distinct, add_special_tokens=False, offsets=False)
    ids = {text: np.array(each.ids, np.int64) for text, each in zip(distinct, found, strict=True)}
    return (ids[text] for text in texts)


def text_rows(texts: Sequence[str], ids: Sequence[IntArray], cutting: Cutting, gold: Targets | None) -> Encoded:
    """Encode a text or a pair; the right answer stands at its first row."""
    sides = _sides(texts, ids, cutting)
    count = max(len(side.cuts) for side in sides)
    kept = _kept(count, cutting.most)
    rows = []
    for row in kept:
        parts = [side.ids[slice(*side.cut_at(row, count))] for side in sides]
        rows.append(_row(parts, cutting.tokenizer, gold if row == kept[0] else None))
    lost = sum(side.lost(kept, count) for side in sides) if len(kept) < count else 0
    coverage = _coverage(texts, rows, cutting.tokenizer, gold, lost)
    return Encoded(tuple(rows), coverage, Layout(np.zeros(len(rows), np.int64), answers=1))


def _sides(texts: Sequence[str], ids: Sequence[IntArray], cutting: Cutting) -> list[_Side]:
    room = cutting.limit - 1 - len(texts)
    if sum(map(len, ids)) <= room:
        return [_Side(text, own, [(0, len(own))]) for text, own in zip(texts, ids, strict=True)]
    if len(texts) == 1:
        return [_side(texts[0], ids[0], room, cutting)]
    shorter = min(len(ids[0]), len(ids[1]), room // 2)
    rooms = (shorter, room - shorter) if len(ids[0]) <= len(ids[1]) else (room - shorter, shorter)
    return [_side(*side, cutting) for side in zip(texts, ids, rooms, strict=True)]


def _side(text: str, ids: IntArray, room: int, cutting: Cutting) -> _Side:
    if len(ids) <= room:
        return _Side(text, ids, [(0, len(ids))])
    whole = cutting.long_text(text)
    return _Side(text, ids, whole.cuts(room, cutting.overlap_in(room)), whole.encoding)


def _kept(count: int, most: int | None) -> list[int]:
    """Choose windows that are spread evenly from the first to the last."""
    if most is None or count <= most:
        return list(range(count))
    places: list[int] = np.linspace(0, count - 1, most).round().astype(int).tolist()
    return places


def _row(parts: Sequence[IntArray], tokenizer: Tokenizer, labels: Targets | None) -> Row:
    cls, sep = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    ids = np.concatenate([cls, *(piece for part in parts for piece in (part, sep))])
    segments = None
    if len(parts) > 1:
        segments = np.repeat([0, 1], [len(parts[0]) + 2, len(parts[1]) + 1])
    return Row(ids=ids, places=np.zeros(1, np.int64), labels=labels, segments=segments)


# -- documents


def document_rows(sentences: Sequence[str], ids: Sequence[IntArray], cutting: Cutting, gold: Targets | None) -> Encoded:
    """Encode a document; each sentence has its right answer in the row that owns it."""
    flat, ends, owners = _flat(ids, cutting)
    first = np.append(0, ends[:-1])
    solid = np.ones(len(flat), np.bool_)
    solid[first[: len(ends)]] = False
    rows, owned = [], []
    limit = cutting.limit - 1
    for window in compute_windows(len(flat), limit, cutting.overlap_in(limit), solid=solid):
        own = (ends > window.own_start) & (ends <= window.own_end)
        rows.append(
            Row(
                ids=np.append(cutting.tokenizer.cls_id, flat[window.start : window.end]),
                places=ends[own] - window.start,
                labels=None if gold is None else gold[owners[own]],
            )
        )
        owned.append(owners[own])
    layout = Layout(np.concatenate(owned) if owned else np.empty(0, np.int64), len(ids))
    return Encoded(tuple(rows), _coverage(sentences, rows, cutting.tokenizer, gold), layout)


def _flat(ids: Sequence[IntArray], cutting: Cutting) -> tuple[IntArray, IntArray, IntArray]:
    """Join the sentences, [SEP] behind each part; give also where parts end and which sentence they are of."""
    room = cutting.limit - 2
    parts: list[IntArray] = []
    owners: list[int] = []
    for number, sentence in enumerate(ids):
        cuts = compute_windows(len(sentence), room, cutting.overlap_in(room)) or [Window(0, 0, 0, 0)]
        for window in cuts:
            part = sentence[window.start : window.end]
            parts.append(np.append(part, cutting.tokenizer.sep_id).astype(np.int64))
            owners.append(number)
    flat = np.concatenate(parts) if parts else np.empty(0, np.int64)
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return flat, ends, np.array(owners, np.int64)


def _coverage(
    texts: Sequence[str], rows: Sequence[Row], tokenizer: Tokenizer, gold: Targets | None, lost: int = 0
) -> Coverage:
    return Coverage(
        examples=1,
        characters=sum(map(len, texts)),
        tokens=sum(row.length for row in rows),
        windows=len(rows),
        split_examples=int(len(rows) > 1),
        unknown=sum(int(np.count_nonzero(row.ids == tokenizer.unk_id)) for row in rows),
        gold=0 if gold is None else len(gold),
        cut_characters=lost,
    )
