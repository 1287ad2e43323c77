"""Which entities of a text may be related: the pairs that the task `relate` answers for.

Of a marked sentence it is the marked pair. In a document it is every pair that is near enough and whose types and
direction occur among the relations that were learnt from: if chemicals inhibit genes and never the reverse, a gene and
a chemical make one pair, the chemical first. Where both directions of two types occur (or both have one type), and all
of these relations run in the order of the text, so do the pairs. Pairs without a relation are the negative ones.
Relations between concepts are judged once for each two concepts, at the two mentions that are nearest to each other. A
relation that is no such pair (too far apart, of other types) is listed too: nobody can find it, and it counts as
missed. A pair without a relation is not certain to have none where the document has a relation that could not be linked
and may be this one, or where two other concepts of the same two mentions are related, so that the same words would be
learnt as both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from alembert.tasks.relate.data import EntityMention, RelateExample, RelationLink
from alembert.tasks.settings import MAX_MAGNITUDE, load_number

TypePair = tuple[str, str]
NamePair = tuple[str, str]
"""Names of what is related, mentions or concepts, the head first."""
MentionPair = tuple[int, int]
"""Two mentions by their numbers, the head first."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two mentions of an example, by their numbers, that may be related."""

    head: int
    tail: int
    label: str | None = None
    """The right answer; none: not known."""
    is_reachable: bool = True
    """Whether the model is asked; a relation that is no pair of the task is missed without that."""
    is_certain: bool = True
    """Whether the label can be learnt from; one that is not certain is scored all the same."""


@dataclass(frozen=True, kw_only=True)
class PairRules:
    """What was learnt about pairs."""

    types: tuple[TypePair, ...]
    """Types of head and tail that are related; blank in sentences whose marks tell no types."""
    forward: tuple[TypePair, ...] = ()
    """Those of them whose relations all run in the order of the text, while the reverse types are related too."""
    by_concept: bool = False
    distance: int | None = 0
    directed: bool = True
    negative: str | None = None
    """Label of pairs without a relation; none: only related pairs are learnt from and scored."""

    @cached_property
    def is_typed(self) -> bool:
        return self.types != (("", ""),)

    @cached_property
    def _types(self) -> frozenset[TypePair]:
        return frozenset(map(_casefold_types, self.types))

    @cached_property
    def _forward(self) -> frozenset[TypePair]:
        return frozenset(map(_casefold_types, self.forward))

    def allows(self, head: EntityMention, tail: EntityMention, *, is_forward: bool) -> bool:
        """Whether two mentions may be related, the first to the second."""
        types = _casefold_types((head.type, tail.type)) if self.is_typed else ("", "")
        if not self.directed:
            return is_forward and (types in self._types or types[::-1] in self._types)
        return types in self._types and (is_forward or types not in self._forward)

    def has_related_types(self, mentions: Sequence[EntityMention]) -> bool:
        """Whether there are two mentions of types that are related, near each other or not."""
        if not self.is_typed:
            return len(mentions) > 1
        counts = Counter(mention.type.casefold() for mention in mentions)
        return any(counts[head] and counts[tail] > (head == tail) for head, tail in self._types)

    def to_table(self) -> dict[str, Any]:
        return {
            "types": [list(types) for types in self.types],
            "forward": [list(types) for types in self.forward],
            "by_concept": self.by_concept,
            "distance": self.distance,
            "directed": self.directed,
            "negative": self.negative,
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> PairRules:
        """Make them again of plain values."""
        distance, negative = table["distance"], table["negative"]
        return cls(
            types=tuple((str(head), str(tail)) for head, tail in table["types"]),
            forward=tuple((str(head), str(tail)) for head, tail in table["forward"]),
            by_concept=bool(table["by_concept"]),
            distance=None if distance is None else int(load_number(table, "distance", 0, MAX_MAGNITUDE)),
            directed=bool(table["directed"]),
            negative=None if negative is None else str(negative),
        )


def _casefold_types(types: TypePair) -> TypePair:
    return types[0].casefold(), types[1].casefold()


# -- learning


def learn_pair_rules(
    examples: Sequence[RelateExample], *, distance: int | None, directed: bool, negative: str | None
) -> PairRules:
    """Learn from relations between which types they are, and in which direction they run."""
    by_concept = _names_concepts(examples)
    orders: dict[TypePair, set[bool]] = {}
    for example in examples:
        named = _MentionNames.of(example, by_concept=by_concept)
        for link in example.links or ():
            head, tail = named.nearest(link)
            one, other = example.mentions[head], example.mentions[tail]
            orders.setdefault((one.type, other.type), set()).add(one.start <= other.start)
    forward = (types for types, seen in orders.items() if types[::-1] in orders and seen == {True})
    return PairRules(
        types=tuple(sorted(orders)),
        forward=tuple(sorted(forward)),
        by_concept=by_concept,
        distance=distance,
        directed=directed,
        negative=negative,
    )


def _names_concepts(examples: Iterable[RelateExample]) -> bool:
    """Whether more relations are between concepts than between mentions."""
    concepts = mentions = 0
    for example in examples:
        ids = {mention.id for mention in example.mentions}
        of_mentions = sum({link.head, link.tail} <= ids for link in example.links or ())
        mentions += of_mentions
        concepts += len(example.links or ()) - of_mentions
    return concepts > mentions


@dataclass(frozen=True)
class _MentionNames:
    """What the mentions of an example are called: by their own names, or by those of their concepts."""

    example: RelateExample
    of_mention: tuple[tuple[str, ...], ...]
    mentions: Mapping[str, list[int]] = field(default_factory=dict)
    """Name of a mention or a concept -> the mentions that it means."""

    @classmethod
    def of(cls, example: RelateExample, *, by_concept: bool) -> _MentionNames:
        names = tuple(
            mention.concepts or (mention.id,) if by_concept else (mention.id,) for mention in example.mentions
        )
        mentions: dict[str, list[int]] = {}
        for place, mention in enumerate(example.mentions):
            for name in dict.fromkeys((mention.id, *mention.concepts)):
                mentions.setdefault(name, []).append(place)
        return cls(example, names, mentions)

    def nearest(self, link: RelationLink) -> MentionPair:
        """Choose the two mentions that stand for a relation."""
        places = [(h, t) for h in self.mentions[link.head] for t in self.mentions[link.tail] if h != t]
        return min(places or [(self.mentions[link.head][0], self.mentions[link.tail][0])], key=self.gap)

    def gap(self, place: MentionPair) -> int:
        """Count the characters between two mentions."""
        one, other = (self.example.mentions[each] for each in sorted(place))
        return max(0, other.start - one.end)

    def may_be_unlinked(self, place: MentionPair) -> bool:
        """Whether a relation that could not be linked may be between two mentions."""
        mentions = [self.example.mentions[number] for number in place]
        names = {name for mention in mentions for name in (mention.id, *mention.concepts)}
        return any(names.issuperset(relation.ends) for relation in self.example.unlinked)


# -- pairs


def list_candidate_pairs(example: RelateExample, rules: PairRules) -> list[CandidatePair]:
    """List the pairs of an example, each once a right answer; pairs that have two relations are two."""
    if example.form == "plain":
        return []
    if example.form != "document":
        labels: Sequence[str | None] = [None] if example.links is None else [link.label for link in example.links]
        return [CandidatePair(0, 1, label) for label in labels]
    named = _MentionNames.of(example, by_concept=rules.by_concept)
    near = _find_near_pairs(named, rules)
    if example.links is None:
        return [CandidatePair(*place) for place in near.values()]
    gold = _labels_by_pair(named, rules)
    related = {place for pair, place in near.items() if pair in gold}
    candidates = [
        CandidatePair(*place, label, is_certain=pair in gold or not (place in related or named.may_be_unlinked(place)))
        for pair, place in near.items()
        for label in gold.get(pair, [rules.negative])
        if label is not None
    ]
    return candidates + [
        CandidatePair(*place, label, is_reachable=False)
        for place, label in _relations_outside_pairs(named, rules, near)
    ]


def _find_near_pairs(named: _MentionNames, rules: PairRules) -> dict[NamePair, MentionPair]:
    """Find the pairs that are asked about, by their names; of several places of a pair, the one with the least gap."""
    nearest: dict[NamePair, MentionPair] = {}
    for place in _pair_near_mentions(named.example, rules):
        head, tail = place
        for pair in ((one, other) for one in named.of_mention[head] for other in named.of_mention[tail]):
            if pair[0] != pair[1] and (pair not in nearest or named.gap(place) < named.gap(nearest[pair])):
                nearest[pair] = place
    return nearest if rules.directed else _drop_reverse_pairs(nearest, named)


def _drop_reverse_pairs(nearest: Mapping[NamePair, MentionPair], named: _MentionNames) -> dict[NamePair, MentionPair]:
    """Keep one of the two directions of a pair, the nearer one; of two at the same place, the first by name."""

    def rank(pair: NamePair) -> tuple[int, MentionPair, NamePair]:
        return named.gap(nearest[pair]), nearest[pair], pair

    return {
        pair: place for pair, place in nearest.items() if (back := pair[::-1]) not in nearest or rank(pair) < rank(back)
    }


def _pair_near_mentions(example: RelateExample, rules: PairRules) -> Iterator[MentionPair]:
    """List the mentions that are near each other and whose types and direction fit."""
    spans = [_sentences_of(mention, example) for mention in example.mentions]
    for one, first in enumerate(example.mentions):
        for other in range(one + 1, len(spans)):
            if rules.distance is not None and spans[other][0] - spans[one][1] > rules.distance:
                break
            second = example.mentions[other]
            if rules.allows(first, second, is_forward=True):
                yield one, other
            if rules.allows(second, first, is_forward=False):
                yield other, one


def _sentences_of(mention: EntityMention, example: RelateExample) -> tuple[int, int]:
    """Number the sentences in which a mention begins and ends."""
    first = max(0, bisect_right(example.sentence_starts, mention.start) - 1)
    return first, max(first, bisect_right(example.sentence_starts, mention.end - 1) - 1)


def get_context(example: RelateExample, place: CandidatePair) -> tuple[int, int]:
    """Find the stretch of text in which a pair is read: a marked sentence whole, of a document the pair's sentences."""
    if example.form != "document" or not example.sentences:
        return 0, len(example.text)
    mentions = [example.mentions[number] for number in (place.head, place.tail)]
    ends = [_sentences_of(mention, example) for mention in mentions]
    first, last = min(start for start, _ in ends), max(end for _, end in ends)
    return (
        min(example.sentences[first][0], *(mention.start for mention in mentions)),
        max(example.sentences[last][1], *(mention.end for mention in mentions)),
    )


def _labels_by_pair(named: _MentionNames, rules: PairRules) -> dict[NamePair, list[str | None]]:
    """Sort the relations by the names of what they relate."""
    gold: dict[NamePair, dict[str | None, None]] = {}
    for link in named.example.links or ():
        pair = _name_pair(link, named)
        for each in (pair,) if rules.directed else (pair, pair[::-1]):
            gold.setdefault(each, {})[link.label] = None
    return {pair: list(labels) for pair, labels in gold.items()}


def _relations_outside_pairs(
    named: _MentionNames, rules: PairRules, near: Mapping[NamePair, MentionPair]
) -> Iterator[tuple[MentionPair, str]]:
    """List the relations that are none of the pairs."""
    for link in named.example.links or ():
        pair = _name_pair(link, named)
        if pair not in near and (rules.directed or pair[::-1] not in near):
            yield named.nearest(link), link.label


def _name_pair(link: RelationLink, named: _MentionNames) -> NamePair:
    """Name what a relation is between, as pairs are named: a concept where mentions are asked about is a mention."""
    places = named.nearest(link)
    one, other = (
        name if name in named.of_mention[place] else named.of_mention[place][0]
        for name, place in zip((link.head, link.tail), places, strict=True)
    )
    return one, other
