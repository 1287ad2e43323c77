"""Where the task `tag` cuts documents into windows, and what the right answers of a window look like as numbers."""

# W words, C tags, K entities
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from alembert.data.windows import Window, compute_windows
from alembert.tasks.tag.data import TagExample
from alembert.tasks.tag.tags import OUTSIDE, LabelledSpan, WordOffsets
from alembert.text.sentences import split_sentences

UNANNOTATED_TYPE: Final = -1
"""First word of a line of a span head's labels that says: entities of this type are not annotated in the row."""


def cut_document(example: TagExample, words: WordOffsets, length: int, limit: int, overlap: int) -> list[Window]:
    """Cut a document of so many pieces into windows of at most `limit`, at sentences if it can be, never in a word."""
    if length <= limit:
        return compute_windows(length, limit, overlap)
    sentences = example.sentences or [start for start, _ in split_sentences(example.text)]
    breaks = words.pieces_W[np.unique(np.searchsorted(words.starts_W, sentences).clip(max=len(words) - 1))]
    solid = np.ones(length, np.bool_)
    solid[words.pieces_W] = False
    return compute_windows(length, limit, overlap, breaks.tolist(), solid)


def build_span_labels(
    ranges: Sequence[LabelledSpan], begin: int, end: int, types: Sequence[str], unknown: Collection[str]
) -> npt.NDArray[np.int64]:
    """Give the entities within words `begin` to `end` as lines (K, 3): first word, last word, type; unknown types last."""
    place = {label: number for number, label in enumerate(types)}
    lines = [(s - begin, e - 1 - begin, place[t]) for s, e, t in ranges if begin <= s and e <= end]
    lines += [(UNANNOTATED_TYPE, UNANNOTATED_TYPE, place[label]) for label in unknown]
    return np.array(lines, np.int64).reshape(-1, 3)


def build_allowed_tags(
    tags_W: npt.NDArray[np.int64], names: Sequence[str], unknown: Collection[str]
) -> npt.NDArray[np.bool_]:
    """Say which tags each word may have (W, C): its own, and outside of entities those of all unknown types."""
    allowed_WC: npt.NDArray[np.bool_] = np.arange(len(names)) == tags_W[:, None]
    is_outside_W = ~np.isin(tags_W, [place for place, name in enumerate(names) if name != OUTSIDE])
    for number, name in enumerate(names):
        if name[2:] in unknown or OUTSIDE not in names:
            allowed_WC[is_outside_W, number] = True
    return allowed_WC
