"""Which guessed entity belongs to which right one, and what is wrong with it.

Each entity is paired with at most one of the other side, in this order: equal ones (right), the same borders with another
type (type), the same type with other borders (boundary), and whatever overlaps (both). Of several overlaps the longest
counts. What is left is missed or spurious. So right ones are exactly those of the strict score, and an entity that was
guessed in two parts is one error of the border and one spurious guess.

>>> [match.kind for match in match_entities([(0, 13, "Disease"), (20, 24, "Gene")], [(7, 13, "Disease"), (20, 24, "Drug")])]
['type', 'boundary']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from alembert.tasks.metrics import spans
from alembert.tasks.metrics.spans import EntityTuple

MatchKind = Literal["right", "type", "boundary", "both", "missed", "spurious"]
EntityPairs = Iterator[tuple[EntityTuple, EntityTuple]]


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """A right entity, a guess, or the two that belong together."""

    kind: MatchKind
    gold: EntityTuple | None
    guess: EntityTuple | None


def match_entities(gold: Iterable[EntityTuple], guess: Iterable[EntityTuple]) -> list[EntityMatch]:
    """Pair the entities of one document; the order of kinds is that of the module's description."""
    left, right = set(gold), set(guess)
    matches: list[EntityMatch] = []
    for kind, pairs in _MATCH_STEPS:
        for one, other in list(pairs(left, right)):
            matches.append(EntityMatch(kind, one, other))
            left.discard(one)
            right.discard(other)
    matches += [EntityMatch("missed", one, None) for one in sorted(left)]
    return matches + [EntityMatch("spurious", None, other) for other in sorted(right)]


def _equal(gold: set[EntityTuple], guess: set[EntityTuple]) -> EntityPairs:
    yield from ((entity, entity) for entity in sorted(gold & guess))


def _same_borders(gold: set[EntityTuple], guess: set[EntityTuple]) -> EntityPairs:
    waiting: dict[tuple[int, int], list[EntityTuple]] = {}
    for other in sorted(guess, reverse=True):
        waiting.setdefault(other[:2], []).append(other)
    for one in sorted(gold):
        if waiting.get(one[:2]):
            yield one, waiting[one[:2]].pop()


def _overlapping(gold: set[EntityTuple], guess: set[EntityTuple]) -> EntityPairs:
    ours, theirs = ({entity[:2]: entity for entity in sorted(side)} for side in (gold, guess))
    bare = ([(*borders, "") for borders in side] for side in (ours, theirs))
    for one, other in spans.match_entities(*bare):
        yield ours[one[:2]], theirs[other[:2]]


_MATCH_STEPS: Final[tuple[tuple[MatchKind, Callable[[set[EntityTuple], set[EntityTuple]], EntityPairs]], ...]] = (
    ("right", _equal),
    ("type", _same_borders),
    ("boundary", spans.match_entities),
    ("both", _overlapping),
)


MATCH_KINDS: Final[dict[MatchKind, str]] = {
    "right": "borders and type are right",
    "boundary": "the type is right, the borders are not",
    "type": "the borders are right, the type is not",
    "both": "it overlaps, borders and type are wrong",
    "missed": "there is no guess for it",
    "spurious": "a guess where there is no entity, or one that another guess is nearer to",
}
