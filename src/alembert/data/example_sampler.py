"""The order of labelled data: a new one in every pass, cut into micro-batches by a budget of tokens.

Items are what must be computed together: a window, or all windows of one example. They are shuffled and put into pools
of some dozens of micro-batches; inside a pool, items of similar length go together, since attention over texts of one
length is one product instead of many small ones, and then the micro-batches of the pool are shuffled. Items that a loss
compares with each other come in groups of a fixed number instead, whatever their lengths, and the few that are left at
the end of a pass wait for the next. A pass is planned whole when it begins; a `Cursor` names its micro-batch, so a run
can go on anywhere.

The order of several sets of labelled data: whose turn each micro-batch is.

A pass has about as many micro-batches as the passes of all owners have together. Each owner has turns by its size (the
micro-batches of its own pass), or by its size to the power of 1 / temperature, which gives small ones more and large
ones fewer; the turns are shuffled, and inside its turns each owner goes through its data in its own order. Data with
more turns than micro-batches are gone through again, in another order; of those with fewer, each pass sees another part.
With temperature 1 every item comes once in a pass. All of it is found by the seed and the number of the pass, so a run
can go on at any `Cursor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count as numbers_from
from typing import Final, TypeVar

from alembert.data.feed import Cursor
from alembert.data.order import Permutation, stable_hash

T = TypeVar("T")

POOL_BATCHES: Final = 48
"""Micro-batches of a pool, about."""


@dataclass(frozen=True)
class ExampleBatchPlan:
    """The items of one micro-batch."""

    indices: tuple[int, ...]
    tokens: int
    epoch: int = 0
    """The pass that it belongs to."""

    @property
    def address(self) -> tuple[int | str, ...]:
        """What chance that is new in every pass is found by."""
        return (self.epoch, self.indices[0])


class ExampleSampler:
    """Plans the micro-batches of a run over labelled items."""

    def __init__(self, lengths: Sequence[int], *, seed: int, micro_tokens: int, group: int = 1) -> None:
        self._lengths = tuple(lengths)
        self._seed = seed
        self._budget = micro_tokens
        self._group = min(group, len(self._lengths))
        self._pass = lru_cache(maxsize=2)(self._planned)

    def epoch_batches(self, epoch: int) -> Sequence[ExampleBatchPlan]:
        """Give all micro-batches of a pass, in their order."""
        return self._pass(epoch)

    def take(self, cursor: Cursor, count: int) -> tuple[list[ExampleBatchPlan], Cursor]:
        """Give the next micro-batches and the cursor after them."""
        return take_batches(self.epoch_batches, cursor, count)

    def _planned(self, epoch: int) -> list[ExampleBatchPlan]:
        order = Permutation(len(self._lengths), stable_hash(self._seed, "items", epoch))
        shuffled = [order[place] for place in range(len(self._lengths))]
        if self._group > 1:
            return list(self._grouped(shuffled, epoch))
        portions: list[ExampleBatchPlan] = []
        for pool in self._pools(shuffled):
            cut = list(self._cut(iter(sorted(pool, key=self._lengths.__getitem__)), epoch))
            turns = Permutation(len(cut), stable_hash(self._seed, "pool", epoch, len(portions)))
            portions += [cut[turns[place]] for place in range(len(cut))]
        return portions

    def _grouped(self, items: Sequence[int], epoch: int) -> Iterator[ExampleBatchPlan]:
        for start in range(0, len(items) - self._group + 1, self._group):
            chosen = tuple(items[start : start + self._group])
            yield ExampleBatchPlan(chosen, sum(self._lengths[item] for item in chosen), epoch)

    def _pools(self, items: Sequence[int]) -> Iterator[list[int]]:
        held: list[int] = []
        tokens = 0
        for item in items:
            held.append(item)
            tokens += self._lengths[item]
            if tokens >= POOL_BATCHES * self._budget:
                yield held
                held, tokens = [], 0
        if held:
            yield held

    def _cut(self, items: Iterator[int], epoch: int) -> Iterator[ExampleBatchPlan]:
        held: list[int] = []
        tokens = 0
        for item in items:
            if held and tokens + self._lengths[item] > self._budget:
                yield ExampleBatchPlan(tuple(held), tokens, epoch)
                held, tokens = [], 0
            held.append(item)
            tokens += self._lengths[item]
        if held:
            yield ExampleBatchPlan(tuple(held), tokens, epoch)


def take_batches(of_pass: Callable[[int], Sequence[T]], cursor: Cursor, count: int) -> tuple[list[T], Cursor]:
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


_REPEAT_STRIDE: Final = 1 << 32
"""Between the numbers of two goes through the same data in one pass: beyond the passes of any run."""


@dataclass(frozen=True)
class MultiTaskBatchPlan:
    """A micro-batch of one owner."""

    task: str
    batch: ExampleBatchPlan
    share: float = 1.0
    """Share of the micro-batches taken with it that have the same owner."""

    @property
    def tokens(self) -> int:
        return self.batch.tokens

    @property
    def address(self) -> tuple[int | str, ...]:
        """What chance that is new in every pass is found by."""
        return (self.task, *self.batch.address)


class MultiTaskSampler:
    """Plans the micro-batches of a run over the data of several owners."""

    def __init__(self, feeds: Mapping[str, ExampleSampler], *, seed: int, temperature: float = 1.0) -> None:
        self._feeds = dict(feeds)
        self._seed = seed
        self._temperature = temperature
        self._pass = lru_cache(maxsize=2)(self._planned)

    def take(self, cursor: Cursor, count: int) -> tuple[list[MultiTaskBatchPlan], Cursor]:
        """Give the next micro-batches, of which a step is made, and the cursor after them."""
        portions, cursor = take_batches(self._pass, cursor, count)
        return _with_shares(portions), cursor

    def _planned(self, epoch: int) -> list[MultiTaskBatchPlan]:
        sizes = {owner: len(feed.epoch_batches(epoch)) for owner, feed in self._feeds.items()}
        turns = count_task_batches(sizes, self._temperature)
        owners = [owner for owner, count in turns.items() for _ in range(count)]
        order = Permutation(len(owners), stable_hash(self._seed, "owners", epoch))
        sources = {owner: _repeat_batches(feed, epoch) for owner, feed in self._feeds.items()}
        shuffled = [owners[order[place]] for place in range(len(owners))]
        return [MultiTaskBatchPlan(owner, next(sources[owner])) for owner in shuffled]


def count_task_batches(sizes: Mapping[str, int], temperature: float) -> dict[str, int]:
    """Say how many turns each owner has in a pass; each has at least one.

    >>> count_task_batches({"large": 90, "small": 10}, 1), count_task_batches({"large": 90, "small": 10}, 2)
    ({'large': 90, 'small': 10}, {'large': 75, 'small': 25})
    """
    weights = {owner: size ** (1 / temperature) for owner, size in sizes.items()}
    scale = sum(sizes.values()) / sum(weights.values())
    return {owner: max(1, round(weight * scale)) for owner, weight in weights.items()}


def _repeat_batches(feed: ExampleSampler, epoch: int) -> Iterator[ExampleBatchPlan]:
    for go in numbers_from():
        yield from feed.epoch_batches(epoch + go * _REPEAT_STRIDE)


def _with_shares(portions: Sequence[MultiTaskBatchPlan]) -> list[MultiTaskBatchPlan]:
    counts = Counter(portion.task for portion in portions)
    return [replace(portion, share=counts[portion.task] / len(portions)) for portion in portions]
