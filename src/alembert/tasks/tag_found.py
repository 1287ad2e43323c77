"""What the task `tag` has found: ranges of words with scores, and the entities in the text that they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from alembert.tasks.example import Encoded
from alembert.tasks.pointer_decode import pointer_spans
from alembert.tasks.runner import Outputs
from alembert.tasks.tag_examples import FoundEntity, Tagged
from alembert.tasks.tag_words import Words

Found = tuple[int, int, str, float]
"""First word, the word after the last, type, score."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the answers of the rows stand in the text."""

    words: Words
    first_words: tuple[int, ...]
    """The word of the first place of each row."""
    own: tuple[tuple[int, int], ...]
    """Words that each row answers for."""


def pointed(layout: Layout, outputs: Sequence[Outputs], types: Sequence[str]) -> list[Found]:
    """Give the spans that a span head finds, each by the row that answers for it; their scores are above 0."""
    return sorted(
        (begin + first, begin + last + 1, types[kind], score)
        for begin, own, vectors in zip(layout.first_words, layout.own, outputs, strict=True)
        for first, last, kind, score in pointer_spans(vectors, len(types))
        if own[0] <= begin + first < own[1]
    )


def sure(found: Iterable[Found], temperature: float) -> Iterator[Found]:
    """Turn scores above 0 into probabilities."""
    for first, end, label, score in found:
        yield first, end, label, 1 / (1 + math.exp(-score / temperature))


def tagged(encoded: Encoded, found: Iterable[Found]) -> Tagged:
    """Give ranges of words as entities at characters."""
    words: Words = encoded.layout.words
    entities = (
        FoundEntity(int(words.starts_W[first]), int(words.ends_W[end - 1]), label, score)
        for first, end, label, score in found
    )
    return Tagged(tuple(entities), encoded.coverage)
