"""Drop the pieces of a vocabulary that a corpus never uses.

In: a tokenizer and a `WordCounts`. Out: a `Pruning`: the smaller tokenizer, the ids that are kept, and the proof that every
word of the corpus is cut as before. A piece that longest match never takes can go without changing any cut. Special
tokens, added tokens and single characters stay, so that text from elsewhere is cut smaller but seldom unknown.
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
    """A tokenizer without the pieces that were not used."""

    tokenizer: Tokenizer
    kept: tuple[int, ...]
    """Old ids of the pieces that stay, in the order of their new ids."""
    dropped: int
    proof: SegmentationComparison


def prune(tokenizer: Tokenizer, census: WordCounts) -> Pruning:
    """Drop what the corpus does not use."""
    if not census.words:
        raise BadInput("The corpus has no words, so every piece would be dropped. Give a corpus with text.")
    words = list(census.words)
    before = segment_words(tokenizer, words)
    kept = sorted({*_always_kept(tokenizer), *before.ids.tolist(), *_first_pieces_of_unknown(tokenizer, before)})
    smaller = _keep_only(tokenizer, kept)
    new_ids: Int64Array = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    new_ids[kept] = np.arange(len(kept))
    after = (smaller, segment_words(smaller, words))
    proof = compare_segmentations((tokenizer, before), after, census.words, new_ids=new_ids)
    return Pruning(smaller, tuple(kept), tokenizer.vocab_size - len(kept), proof)


def _always_kept(tokenizer: Tokenizer) -> Iterator[int]:
    named = {token.content for token in tokenizer.parts.added} | set(tokenizer.vocabulary.special.roles().values())
    for number, piece in enumerate(tokenizer.vocabulary):
        if piece in named or len(piece.removeprefix(CONTINUATION_PREFIX)) == 1:
            yield number


def _first_pieces_of_unknown(tokenizer: Tokenizer, cuts: Segmentations) -> Iterator[int]:
    """Give the pieces that unknown words begin with: without them, such a word might become known."""
    ids = tokenizer.vocabulary.ids
    for position in np.flatnonzero(cuts.unknown).tolist():
        word = cuts.words[position]
        start = 0
        while start < len(word) <= MAX_WORD_CHARACTERS:
            mark = CONTINUATION_PREFIX if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in ids), None)
            if end is None:
                break
            yield ids[mark + word[start:end]]
            start = end


def _keep_only(tokenizer: Tokenizer, kept: list[int]) -> Tokenizer:
    parts = tokenizer.parts
    size = parts.model_size
    vocabulary = Vocabulary(tuple(parts.vocabulary.pieces[number] for number in kept), parts.vocabulary.special)
    inside = None if size is None else sum(number < size for number in kept)
    return Tokenizer(TokenizerParts(vocabulary, parts.settings, parts.added, inside))
