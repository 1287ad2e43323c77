"""Scores of entities: (start, end, label) of each document, right ones against guessed ones.

The score that counts is strict: borders and label must be right. Beside it stand three lenient ones, close to those of
SemEval-2013 task 9 (Segura-Bedmar et al. 2013): `borders` asks for the borders alone (their "exact"), `overlap` for the
label and at least one common character (their "type"), and `partial` is `overlap` with half the credit where the
borders differ, which is how MUC-5 scored it (Chinchor and Sundheim 1993); their own "partial" ignores the label, ours
does not. In the lenient ones every entity is matched at most once: equal entities first, then the longest overlap.

Entities are sets: the same borders and label twice in a document are one entity. Macro averages are over the labels
that occur in gold or guess, as seqeval's.

>>> found = span_scores([[(0, 7, "Drug"), (9, 15, "Drug")]], [[(0, 7, "Drug"), (9, 13, "Drug"), (20, 24, "Gene")]])
>>> found.strict.tp, round(found.strict.f1, 2), round(found.partial.f1, 2), found.overlap.recall, found.macro_f1
(1, 0.4, 0.6, 1.0, 0.25)
"""

# N documents
from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from statistics import fmean

import numpy as np

from alembert.tasks.metrics import Ints, Tally, f1, f1_measure, f1_of_sums

__all__ = [
    "EntityTuple",
    "SpanScores",
    "f1",
    "f1_measure",
    "f1_of_sums",
    "match_entities",
    "span_counts",
    "span_scores",
]

EntityTuple = tuple[int, int, str]
DocumentSpans = Sequence[Iterable[EntityTuple]]


@dataclass(frozen=True, kw_only=True)
class SpanScores:
    """How many entities were found; `strict` is the score to report, micro over all labels."""

    strict: Tally
    by_type: Mapping[str, Tally]
    """Label -> strict tally; labels in alphabetical order."""
    partial: Tally
    borders: Tally
    overlap: Tally

    @property
    def macro_f1(self) -> float:
        return _mean(tally.f1 for tally in self.by_type.values())


def span_scores(gold: DocumentSpans, guess: DocumentSpans) -> SpanScores:
    """Compare the entities of each document; both sides have the same documents in the same order."""
    pairs = list(zip(map(set, gold), map(set, guess), strict=True))
    by_type = _by_type(pairs)
    gold_size, guess_size = sum(len(one) for one, _ in pairs), sum(len(other) for _, other in pairs)
    same = [one == other for pair in pairs for one, other in match_entities(*pair)]
    lenient = (len(same) + sum(same)) / 2, sum(starmap(_same_borders, pairs)), len(same)
    partial, borders, overlap = (Tally(tp=hits, fp=guess_size - hits, fn=gold_size - hits) for hits in lenient)
    return SpanScores(
        strict=Tally.total(by_type.values()),
        by_type=by_type,
        partial=partial,
        borders=borders,
        overlap=overlap,
    )


def span_counts(gold: DocumentSpans, guess: DocumentSpans) -> Ints:
    """Count strict (tp, fp, fn) of each document, one row each: what resampling adds up."""
    rows = [_strict(set(one), set(other)) for one, other in zip(gold, guess, strict=True)]
    return np.array(rows, np.int64).reshape(len(rows), 3)


def match_entities(
    gold: Iterable[EntityTuple], guess: Iterable[EntityTuple]
) -> Iterator[tuple[EntityTuple, EntityTuple]]:
    """Pair entities of one document that have the same label and overlap, each at most once, the closest first."""
    gold, guess = set(gold), set(guess)
    same = gold & guess
    yield from ((entity, entity) for entity in sorted(same))
    used: set[tuple[bool, EntityTuple]] = set()
    for _, one, other in sorted(_overlaps(gold - same, guess - same)):
        if (True, one) not in used and (False, other) not in used:
            used |= {(True, one), (False, other)}
            yield one, other


def _overlaps(gold: set[EntityTuple], guess: set[EntityTuple]) -> Iterator[tuple[int, EntityTuple, EntityTuple]]:
    ordered = sorted(guess)
    starts = [start for start, _, _ in ordered]
    longest = max((end - start for start, end, _ in ordered), default=0)
    for one in gold:
        # Only guesses that begin here can reach into it; comparing all with all is slow where every token is an entity.
        for other in ordered[bisect_right(starts, one[0] - longest) : bisect_left(starts, one[1])]:
            shared = min(one[1], other[1]) - max(one[0], other[0])
            if shared > 0 and one[2] == other[2]:
                yield -shared, one, other


def _strict(gold: set[EntityTuple], guess: set[EntityTuple]) -> tuple[int, int, int]:
    hits = len(gold & guess)
    return hits, len(guess) - hits, len(gold) - hits


def _by_type(pairs: Sequence[tuple[set[EntityTuple], set[EntityTuple]]]) -> dict[str, Tally]:
    tp = Counter(label for one, other in pairs for _, _, label in one & other)
    fp = Counter(label for one, other in pairs for _, _, label in other - one)
    fn = Counter(label for one, other in pairs for _, _, label in one - other)
    return {label: Tally(tp=tp[label], fp=fp[label], fn=fn[label]) for label in sorted({*tp, *fp, *fn})}


def _same_borders(gold: set[EntityTuple], guess: set[EntityTuple]) -> int:
    """Count common borders; where labels share borders, as many as both sides have."""
    return (Counter(entity[:2] for entity in gold) & Counter(entity[:2] for entity in guess)).total()


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fmean(listed) if listed else 0.0
