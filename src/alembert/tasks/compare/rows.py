"""Rows of the task `compare`: each text of an example is read by itself, as `[CLS] text [SEP]`.

To be trained on, a text is cut to a length, as SimCSE does, and what is cut is counted; without supervision the text is
there twice, and dropout makes the difference. Otherwise long texts are read through windows, and their vectors averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from alembert.data.windows import IntArray, Row
from alembert.tasks.classify.rows import WindowSpec, encode_text
from alembert.tasks.example import Coverage, EncodedExample
from alembert.text.tokenizer import Tokenizer

ANCHOR, PARTNER, NEGATIVE = range(3)
"""What a text is in its example."""
RowLabels = Sequence[npt.NDArray[Any] | None]
"""What stands at the first row of each text: its role, or the score; none: not known, or said at another."""


@dataclass(frozen=True, eq=False)
class CompareLayout:
    """Which text of the example each row belongs to, and how much it counts there: by its tokens."""

    owners: IntArray
    weights: IntArray
    texts: int


def encode_texts(
    texts: Sequence[str], ids: Sequence[IntArray], cutting: WindowSpec, labels: RowLabels
) -> EncodedExample:
    """Encode whole texts."""
    parts = [encode_text([text], [own], cutting, None) for text, own in zip(texts, ids, strict=True)]
    rows = [
        replace(row, labels=label if row is part.rows[0] else None)
        for part, label in zip(parts, labels, strict=True)
        for row in part.rows
    ]
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    split = int(len(rows) > len(texts))
    total = Coverage.total(part.coverage for part in parts)
    coverage = replace(total, examples=1, split_examples=split, gold=_count_gold(labels))
    return EncodedExample(tuple(rows), coverage, _layout(rows, owners))


def encode_training_texts(
    texts: Sequence[str], ids: Sequence[IntArray], tokenizer: Tokenizer, limit: int, labels: RowLabels
) -> EncodedExample:
    """Encode the beginnings of texts, one row each."""
    room = limit - 2
    cls, sep = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    rows = tuple(
        Row(ids=np.concatenate([cls, own[:room], sep]), positions=np.zeros(1, np.int64), labels=label)
        for own, label in zip(ids, labels, strict=True)
    )
    coverage = Coverage(
        examples=1,
        characters=sum(map(len, texts)),
        tokens=sum(row.length for row in rows),
        windows=len(rows),
        unknown=sum(int(np.count_nonzero(row.ids == tokenizer.unk_id)) for row in rows),
        gold=_count_gold(labels),
        cut_characters=sum(
            _count_cut_characters(text, tokenizer, room)
            for text, own in zip(texts, ids, strict=True)
            if len(own) > room
        ),
    )
    return EncodedExample(rows, coverage, _layout(rows, np.arange(len(rows))))


def duplicate_rows(encoded: EncodedExample) -> EncodedExample:
    """Let a text that is alone in its example be its own partner; its characters still count once."""
    (row,) = encoded.rows
    partner = None if row.labels is None else np.array([PARTNER])
    rows, once = (row, replace(row, labels=partner)), encoded.coverage
    coverage = replace(once, tokens=2 * once.tokens, windows=2, unknown=2 * once.unknown)
    return EncodedExample(rows, coverage, _layout(rows, np.arange(2)))


def _layout(rows: Sequence[Row], owners: IntArray) -> CompareLayout:
    return CompareLayout(owners, np.array([row.length for row in rows]), int(owners[-1]) + 1)


def _count_cut_characters(text: str, tokenizer: Tokenizer, room: int) -> int:
    """Count the characters behind the last token that is kept."""
    return len(text) - tokenizer.encode(text, add_special_tokens=False).offsets[room - 1][1]


def _count_gold(labels: RowLabels) -> int:
    return int(any(label is not None for label in labels))
