"""Remove the pieces of a vocabulary that a corpus never uses.

In: a tokenizer and a `WordCounts`. Out: a `Pruning`: the smaller tokenizer, the remaining ids, and the proof that every
word of the corpus is segmented as before. A piece that longest match never uses can be removed without changing any
segmentation. Special tokens, added tokens and single characters stay, so that words of other texts have more pieces but
are seldom unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alembert.errors import BadInput
from alembert.text.segmentation import (
    Int64Array,
    SegmentationComparison,
    Segmentations,
    compare_segmentations,
    segment_words,
)
from alembert.text.tokenizer import Tokenizer
from alembert.text.tokenizer_files import MAX_WORD_CHARACTERS, TokenizerParts
from alembert.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from alembert.text.word_counts import WordCounts


@dataclass(frozen=True)
class Pruning:
    """A tokenizer without unused pieces."""

    tokenizer: Tokenizer
    kept_ids: tuple[int, ...]
    """Old ids of the pieces that stay, in the order of their new ids."""
    dropped: int
    proof: SegmentationComparison


def prune(tokenizer: Tokenizer, word_counts: WordCounts) -> Pruning:
    """Remove the pieces that the corpus does not use."""
    if not word_counts.words:
        raise BadInput("The corpus has no words, so every piece would be dropped. Give a corpus with text.")
    words = list(word_counts.words)
    before = segment_words(tokenizer, words)
    kept_ids = sorted({*_protected_ids(tokenizer), *before.ids.tolist(), *_first_pieces_of_unknown(tokenizer, before)})
    smaller = _keep_only(tokenizer, kept_ids)
    new_ids: Int64Array = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    new_ids[kept_ids] = np.arange(len(kept_ids))
    after = (smaller, segment_words(smaller, words))
    proof = compare_segmentations((tokenizer, before), after, word_counts.words, new_ids=new_ids)
    return Pruning(smaller, tuple(kept_ids), tokenizer.vocab_size - len(kept_ids), proof)


def _protected_ids(tokenizer: Tokenizer) -> Iterator[int]:
    named = {token.content for token in tokenizer.parts.added} | set(tokenizer.vocabulary.special.roles().values())
    for number, piece in enumerate(tokenizer.vocabulary):
        if piece in named or len(piece.removeprefix(CONTINUATION_PREFIX)) == 1:
            yield number


def _first_pieces_of_unknown(tokenizer: Tokenizer, segmentations: Segmentations) -> Iterator[int]:
    """Yield the first pieces of unknown words: without them, such a word might become known."""
    ids = tokenizer.vocabulary.ids
    for position in np.flatnonzero(segmentations.unknown).tolist():
        word = segmentations.words[position]
        start = 0
        while start < len(word) <= MAX_WORD_CHARACTERS:
            mark = CONTINUATION_PREFIX if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in ids), None)
            if end is None:
                break
            yield ids[mark + word[start:end]]
            start = end


def _keep_only(tokenizer: Tokenizer, ids: list[int]) -> Tokenizer:
    parts = tokenizer.parts
    size = parts.model_size
    vocabulary = Vocabulary(tuple(parts.vocabulary.pieces[number] for number in ids), parts.vocabulary.special)
    inside = None if size is None else sum(number < size for number in ids)
    return Tokenizer(TokenizerParts(vocabulary, parts.settings, parts.added, inside))
