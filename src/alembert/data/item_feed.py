"""The order of labelled data: a new one in every pass, cut into micro-batches by a budget of tokens.

Items are what must be computed together: a window, or all windows of one example. They are shuffled and put into pools
of some dozens of micro-batches; inside a pool, items of similar length go together, since attention over texts of one
length is one product instead of many small ones, and then the micro-batches of the pool are shuffled. Items that a loss
compares with each other come in groups of a fixed number instead, whatever their lengths, and the few that are left at
the end of a pass wait for the next. A pass is planned whole when it begins; a `Cursor` names its micro-batch, so a run
can go on anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

from alembert.data.feed import Cursor
from alembert.data.order import Permutation, number

T = TypeVar("T")

POOL: Final = 48
"""Micro-batches of a pool, about."""


@dataclass(frozen=True)
class ItemPortion:
    """The items of one micro-batch."""

    items: tuple[int, ...]
    tokens: int
    epoch: int = 0
    """The pass that it belongs to."""

    @property
    def address(self) -> tuple[int | str, ...]:
        """What chance that is new in every pass is found by."""
        return (self.epoch, self.items[0])


class ItemFeed:
    """Plans the micro-batches of a run over labelled items."""

    def __init__(self, lengths: Sequence[int], *, seed: int, micro_tokens: int, group: int = 1) -> None:
        self._lengths = tuple(lengths)
        self._seed = seed
        self._budget = micro_tokens
        self._group = min(group, len(self._lengths))
        self._pass = lru_cache(maxsize=2)(self._planned)

    def of_pass(self, epoch: int) -> Sequence[ItemPortion]:
        """Give all micro-batches of a pass, in their order."""
        return self._pass(epoch)

    def take(self, cursor: Cursor, count: int) -> tuple[list[ItemPortion], Cursor]:
        """Give the next micro-batches and the cursor after them."""
        return take(self.of_pass, cursor, count)

    def _planned(self, epoch: int) -> list[ItemPortion]:
        order = Permutation(len(self._lengths), number(self._seed, "items", epoch))
        shuffled = [order[place] for place in range(len(self._lengths))]
        if self._group > 1:
            return list(self._grouped(shuffled, epoch))
        portions: list[ItemPortion] = []
        for pool in self._pools(shuffled):
            cut = list(self._cut(iter(sorted(pool, key=self._lengths.__getitem__)), epoch))
            turns = Permutation(len(cut), number(self._seed, "pool", epoch, len(portions)))
            portions += [cut[turns[place]] for place in range(len(cut))]
        return portions

    def _grouped(self, items: Sequence[int], epoch: int) -> Iterator[ItemPortion]:
        for start in range(0, len(items) - self._group + 1, self._group):
            chosen = tuple(items[start : start + self._group])
            yield ItemPortion(chosen, sum(self._lengths[item] for item in chosen), epoch)

    def _pools(self, items: Sequence[int]) -> Iterator[list[int]]:
        held: list[int] = []
        tokens = 0
        for item in items:
            held.append(item)
            tokens += self._lengths[item]
            if tokens >= POOL * self._budget:
                yield held
                held, tokens = [], 0
        if held:
            yield held

    def _cut(self, items: Iterator[int], epoch: int) -> Iterator[ItemPortion]:
        held: list[int] = []
        tokens = 0
        for item in items:
            if held and tokens + self._lengths[item] > self._budget:
                yield ItemPortion(tuple(held), tokens, epoch)
                held, tokens = [], 0
            held.append(item)
            tokens += self._lengths[item]
        if held:
            yield ItemPortion(tuple(held), tokens, epoch)


def take(of_pass: Callable[[int], Sequence[T]], cursor: Cursor, count: int) -> tuple[list[T], Cursor]:
    """Take the next of what is planned pass by pass; give it and the cursor after it."""
    taken: list[T] = []
    while len(taken) < count:
        planned = of_pass(cursor.epoch)
        part = planned[cursor.micro : cursor.micro + count - len(taken)]
        taken += part
        cursor = replace(cursor, micro=cursor.micro + len(part))
        if cursor.micro == len(planned):
            cursor = Cursor(epoch=cursor.epoch + 1)
    return taken, cursor
