"""The order of labelled examples of one task or several, in micro-batches of a token budget.

Items are what must be computed together: a window, or all windows of one example. They are shuffled and put into pools
of some dozens of micro-batches; inside a pool, items of similar length go together, since attention over texts of one
length is one product instead of many small ones, and then the micro-batches of the pool are shuffled. Items that a loss
compares with each other come in groups of a fixed number instead, whatever their lengths, and the few that are left at
the end of a pass wait for the next.

A pass over several tasks has about as many micro-batches as their own passes together. Each task gets its share by
its size (the micro-batches of its own pass), or by its size to the power of 1 / temperature, which gives small tasks
more and large ones fewer. The micro-batches of all tasks are shuffled; each task goes through its data in its own
order. A task with more than its own pass repeats its data in another order; one with fewer sees another part in each
pass. With temperature 1 every item comes once in a pass. A pass is planned whole when it begins, from the seed and its
number alone, so a run can resume at any `Cursor`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count as numbers_from
from typing import Final, TypeVar

from alembert.data.batching import group_by_budget
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
        """The address of random draws that are new in every pass."""
        return (self.epoch, self.indices[0])


class ExampleSampler:
    """Plans the micro-batches of a run over labelled items."""

    def __init__(self, lengths: Sequence[int], *, seed: int, micro_tokens: int, group: int = 1) -> None:
        self._lengths = tuple(lengths)
        self._seed = seed
        self._budget = micro_tokens
        self._group = min(group, len(self._lengths))
        self._pass = lru_cache(maxsize=2)(self._plan_epoch)

    def epoch_batches(self, epoch: int) -> Sequence[ExampleBatchPlan]:
        """Return all micro-batches of a pass, in their order."""
        return self._pass(epoch)

    def take(self, cursor: Cursor, count: int) -> tuple[list[ExampleBatchPlan], Cursor]:
        """Return the next micro-batches and the cursor after them."""
        return take_batches(self.epoch_batches, cursor, count)

    def _plan_epoch(self, epoch: int) -> list[ExampleBatchPlan]:
        order = Permutation(len(self._lengths), stable_hash(self._seed, "items", epoch))
        shuffled = [order[index] for index in range(len(self._lengths))]
        if self._group > 1:
            return list(self._group_items(shuffled, epoch))
        portions: list[ExampleBatchPlan] = []
        for pool in self._pools(shuffled):
            by_length = sorted(pool, key=self._lengths.__getitem__)
            batches = group_by_budget(by_length, self._lengths.__getitem__, self._budget)
            cut = [self._batch(items, epoch) for items in batches]
            order = Permutation(len(cut), stable_hash(self._seed, "pool", epoch, len(portions)))
            portions += [cut[order[index]] for index in range(len(cut))]
        return portions

    def _group_items(self, items: Sequence[int], epoch: int) -> Iterator[ExampleBatchPlan]:
        for start in range(0, len(items) - self._group + 1, self._group):
            yield self._batch(items[start : start + self._group], epoch)

    def _batch(self, items: Sequence[int], epoch: int) -> ExampleBatchPlan:
        return ExampleBatchPlan(tuple(items), sum(self._lengths[item] for item in items), epoch)

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


def take_batches(of_pass: Callable[[int], Sequence[T]], cursor: Cursor, count: int) -> tuple[list[T], Cursor]:
    """Return the next of what is planned pass by pass, and the cursor after it."""
    batches: list[T] = []
    while len(batches) < count:
        planned = of_pass(cursor.epoch)
        part = planned[cursor.micro : cursor.micro + count - len(batches)]
        batches += part
        cursor = replace(cursor, micro=cursor.micro + len(part))
        if cursor.micro == len(planned):
            cursor = Cursor(epoch=cursor.epoch + 1)
    return batches, cursor


_REPEAT_STRIDE: Final = 1 << 32
"""Between the numbers of two repeats of the same data in one pass: beyond the passes of any run."""


@dataclass(frozen=True)
class MultiTaskBatchPlan:
    """A micro-batch of one task."""

    task: str
    batch: ExampleBatchPlan
    share: float = 1.0
    """Share of the micro-batches of the same step that have the same task."""

    @property
    def tokens(self) -> int:
        return self.batch.tokens

    @property
    def address(self) -> tuple[int | str, ...]:
        """The address of random draws that are new in every pass."""
        return (self.task, *self.batch.address)


class MultiTaskSampler:
    """Plans the micro-batches of a run over the data of several tasks."""

    def __init__(self, feeds: Mapping[str, ExampleSampler], *, seed: int, temperature: float = 1.0) -> None:
        self._feeds = dict(feeds)
        self._seed = seed
        self._temperature = temperature
        self._pass = lru_cache(maxsize=2)(self._plan_epoch)

    def take(self, cursor: Cursor, count: int) -> tuple[list[MultiTaskBatchPlan], Cursor]:
        """Return the next micro-batches, which make a step, and the cursor after them."""
        portions, cursor = take_batches(self._pass, cursor, count)
        return _with_shares(portions), cursor

    def _plan_epoch(self, epoch: int) -> list[MultiTaskBatchPlan]:
        sizes = {task: len(feed.epoch_batches(epoch)) for task, feed in self._feeds.items()}
        counts = count_task_batches(sizes, self._temperature)
        tasks = [task for task, count in counts.items() for _ in range(count)]
        order = Permutation(len(tasks), stable_hash(self._seed, "owners", epoch))
        sources = {task: _repeat_batches(feed, epoch) for task, feed in self._feeds.items()}
        shuffled = [tasks[order[index]] for index in range(len(tasks))]
        return [MultiTaskBatchPlan(task, next(sources[task])) for task in shuffled]


def count_task_batches(sizes: Mapping[str, int], temperature: float) -> dict[str, int]:
    """Count the micro-batches of each task in a pass; each has at least one.

    >>> count_task_batches({"large": 90, "small": 10}, 1), count_task_batches({"large": 90, "small": 10}, 2)
    ({'large': 90, 'small': 10}, {'large': 75, 'small': 25})
    """
    weights = {task: size ** (1 / temperature) for task, size in sizes.items()}
    scale = sum(sizes.values()) / sum(weights.values())
    return {task: max(1, round(weight * scale)) for task, weight in weights.items()}


def _repeat_batches(feed: ExampleSampler, epoch: int) -> Iterator[ExampleBatchPlan]:
    for repeat in numbers_from():
        yield from feed.epoch_batches(epoch + repeat * _REPEAT_STRIDE)


def _with_shares(portions: Sequence[MultiTaskBatchPlan]) -> list[MultiTaskBatchPlan]:
    counts = Counter(portion.task for portion in portions)
    return [replace(portion, share=counts[portion.task] / len(portions)) for portion in portions]
