"""Batches of texts of similar length within a budget of tokens, and several batches at once.

Texts are sorted by length and cut into batches. `map_in_threads` computes batches in one stream of work per core,
with a bounded look-ahead, and returns results in the order of the batches. On a CPU, two batches on one core each
finish sooner than one batch after the other on two cores: no core waits for the other inside a matrix product. Streams
may be nested.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from itertools import islice
from threading import Event
from typing import TypeVar

Item = TypeVar("Item")


def group_by_budget(items: Iterable[Item], length: Callable[[Item], int], budget: int) -> Iterator[list[Item]]:
    """Put items together, in their order, as long as they fit; one that is longer than the budget stands alone."""
    group: list[Item] = []
    tokens = 0
    for item in items:
        if group and tokens + length(item) > budget:
            yield group
            group, tokens = [], 0
        group.append(item)
        tokens += length(item)
    if group:
        yield group


def batch_by_tokens(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield the numbers of the texts of each batch; a text longer than the budget gets a batch of its own.

    >>> list(batch_by_tokens([5, 2, 9, 3], budget=10))
    [[1, 3, 0], [2]]
    """
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    return group_by_budget(by_length, lengths.__getitem__, budget)


def batch_by_padded_tokens(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches as `batch_by_tokens` does, of texts that are all padded to the longest of their batch.

    The budget counts the padding.

    >>> list(batch_by_padded_tokens([5, 2, 9, 3], budget=10))
    [[1, 3], [0], [2]]
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


Work = TypeVar("Work")
Result = TypeVar("Result")

_CANCEL_EVENTS: ContextVar[tuple[Event, ...]] = ContextVar("left", default=())
"""Set when nobody waits any more for the streams that the work at hand is part of."""


class _Cancelled(BaseException):
    """Nobody waits for the result; nothing that handles errors should take this for one."""


def map_in_threads(
    compute: Callable[[Work], Result], work: Iterable[Work], streams: int, *, ahead: int = 2
) -> Generator[Result, None, None]:
    """Yield `compute(item)` for each item in order, at most `ahead` items a stream under way or waiting.

    A single stream needs no thread: items are computed as they are asked for. An error of `work` is raised after the
    results of the items before it. Leaving the loop early waits for the items under way, of nested streams for those of
    the innermost.

    >>> list(map_in_threads(abs, [-3, 2, -1], streams=2))
    [3, 2, 1]
    """
    items = iter(work)
    if streams < 2:
        yield from map(compute, items)
        return
    left, context = Event(), _CANCEL_EVENTS.get()

    def compute_unless_cancelled(item: Work) -> Result:
        if any(event.is_set() for event in context):
            raise _Cancelled
        _CANCEL_EVENTS.set((*context, left))
        return compute(item)

    with ThreadPoolExecutor(streams, thread_name_prefix="stream") as pool:
        submitted = _submit_all(pool, compute_unless_cancelled, items)
        waiting = deque(islice(submitted, ahead * streams))
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(islice(submitted, 1))
                yield result
        finally:
            left.set()
            for future in waiting:
                future.cancel()


def _submit_all(
    pool: ThreadPoolExecutor, compute: Callable[[Work], Result], items: Iterable[Work]
) -> Iterator[Future[Result]]:
    """Hand items to the pool as they are asked for; if they end in an error, so do the futures."""
    try:
        for item in items:
            yield pool.submit(compute, item)
    except Exception as problem:
        broken: Future[Result] = Future()
        broken.set_exception(problem)
        yield broken
