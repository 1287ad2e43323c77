"""The order of several sets of labelled data: whose turn each micro-batch is.

A pass has about as many micro-batches as the passes of all owners have together. Each owner has turns by its size (the
micro-batches of its own pass), or by its size to the power of 1 / temperature, which gives small ones more and large
ones fewer; the turns are shuffled, and inside its turns each owner goes through its data in its own order. Data with
more turns than micro-batches are gone through again, in another order; of those with fewer, each pass sees another part.
With temperature 1 every item comes once in a pass. All of it is found by the seed and the number of the pass, so a run
can go on at any `Cursor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count as numbers_from
from typing import Final

from alembert.data.feed import Cursor
from alembert.data.item_feed import ItemFeed, ItemPortion, take
from alembert.data.order import Permutation, number

_AGAIN: Final = 1 << 32
"""Between the numbers of two goes through the same data in one pass: beyond the passes of any run."""


@dataclass(frozen=True)
class MixedPortion:
    """A micro-batch of one owner."""

    owner: str
    items: ItemPortion
    share: float = 1.0
    """Share of the micro-batches taken with it that have the same owner."""

    @property
    def tokens(self) -> int:
        return self.items.tokens

    @property
    def address(self) -> tuple[int | str, ...]:
        """What chance that is new in every pass is found by."""
        return (self.owner, *self.items.address)


class MixedFeed:
    """Plans the micro-batches of a run over the data of several owners."""

    def __init__(self, feeds: Mapping[str, ItemFeed], *, seed: int, temperature: float = 1.0) -> None:
        self._feeds = dict(feeds)
        self._seed = seed
        self._temperature = temperature
        self._pass = lru_cache(maxsize=2)(self._planned)

    def take(self, cursor: Cursor, count: int) -> tuple[list[MixedPortion], Cursor]:
        """Give the next micro-batches, of which a step is made, and the cursor after them."""
        portions, cursor = take(self._pass, cursor, count)
        return _with_shares(portions), cursor

    def _planned(self, epoch: int) -> list[MixedPortion]:
        sizes = {owner: len(feed.of_pass(epoch)) for owner, feed in self._feeds.items()}
        turns = turns_of(sizes, self._temperature)
        owners = [owner for owner, count in turns.items() for _ in range(count)]
        order = Permutation(len(owners), number(self._seed, "owners", epoch))
        sources = {owner: _endless(feed, epoch) for owner, feed in self._feeds.items()}
        shuffled = [owners[order[place]] for place in range(len(owners))]
        return [MixedPortion(owner, next(sources[owner])) for owner in shuffled]


def turns_of(sizes: Mapping[str, int], temperature: float) -> dict[str, int]:
    """Say how many turns each owner has in a pass; each has at least one.

    >>> turns_of({"large": 90, "small": 10}, 1), turns_of({"large": 90, "small": 10}, 2)
    ({'large': 90, 'small': 10}, {'large': 75, 'small': 25})
    """
    weights = {owner: size ** (1 / temperature) for owner, size in sizes.items()}
    scale = sum(sizes.values()) / sum(weights.values())
    return {owner: max(1, round(weight * scale)) for owner, weight in weights.items()}


def _endless(feed: ItemFeed, epoch: int) -> Iterator[ItemPortion]:
    for go in numbers_from():
        yield from feed.of_pass(epoch + go * _AGAIN)


def _with_shares(portions: Sequence[MixedPortion]) -> list[MixedPortion]:
    counts = Counter(portion.owner for portion in portions)
    return [replace(portion, share=counts[portion.owner] / len(portions)) for portion in portions]
