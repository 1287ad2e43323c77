"""Right entities against guessed ones, each with what became of it.

Each entity is paired with at most one of the other side, in this order: equal ones (right), the same borders with another
type (type), the same type with other borders (boundary), and whatever overlaps (both). Of several overlaps the longest
counts. What is left is missed or spurious. So right ones are exactly those of the strict score, and an entity that was
guessed in two parts is one error of the border and one spurious guess.

>>> [found.kind for found in compare([(0, 13, "Disease"), (20, 24, "Gene")], [(7, 13, "Disease"), (20, 24, "Drug")])]
['type', 'boundary']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from alembert.tasks.metrics import spans
from alembert.tasks.metrics.spans import EntityTuple

Kind = Literal["right", "type", "boundary", "both", "missed", "spurious"]
Pairs = Iterator[tuple[EntityTuple, EntityTuple]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A right entity, a guess, or the two that belong together."""

    kind: Kind
    gold: EntityTuple | None
    guess: EntityTuple | None


def compare(gold: Iterable[EntityTuple], guess: Iterable[EntityTuple]) -> list[Finding]:
    """Say what became of each entity of one document."""
    left, right = set(gold), set(guess)
    found: list[Finding] = []
    for kind, pairs in _STEPS:
        for one, other in list(pairs(left, right)):
            found.append(Finding(kind, one, other))
            left.discard(one)
            right.discard(other)
    found += [Finding("missed", one, None) for one in sorted(left)]
    return found + [Finding("spurious", None, other) for other in sorted(right)]


def _equal(gold: set[EntityTuple], guess: set[EntityTuple]) -> Pairs:
    yield from ((entity, entity) for entity in sorted(gold & guess))


def _same_borders(gold: set[EntityTuple], guess: set[EntityTuple]) -> Pairs:
    waiting: dict[tuple[int, int], list[EntityTuple]] = {}
    for other in sorted(guess, reverse=True):
        waiting.setdefault(other[:2], []).append(other)
    for one in sorted(gold):
        if waiting.get(one[:2]):
            yield one, waiting[one[:2]].pop()


def _overlapping(gold: set[EntityTuple], guess: set[EntityTuple]) -> Pairs:
    ours, theirs = ({entity[:2]: entity for entity in sorted(side)} for side in (gold, guess))
    bare = ([(*borders, "") for borders in side] for side in (ours, theirs))
    for one, other in spans.match_entities(*bare):
        yield ours[one[:2]], theirs[other[:2]]


_STEPS: Final[tuple[tuple[Kind, Callable[[set[EntityTuple], set[EntityTuple]], Pairs]], ...]] = (
    ("right", _equal),
    ("type", _same_borders),
    ("boundary", spans.match_entities),
    ("both", _overlapping),
)
