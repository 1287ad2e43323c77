"""Several batches at once: one stream of work per core, with a bounded look-ahead, results in the order of the batches.

On a CPU, two batches on one core each finish sooner than one batch after the other on two cores: no core waits for the
other inside a matrix product.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def in_streams(
    compute: Callable[[Work], Result], work: Iterable[Work], streams: int, *, ahead: int = 2
) -> Iterator[Result]:
    """Yield `compute(item)` for each item in order, at most `ahead` items a stream under way or waiting.

    >>> list(in_streams(abs, [-3, 2, -1], streams=2))
    [3, 2, 1]
    """
    items = iter(work)
    with ThreadPoolExecutor(streams, thread_name_prefix="stream") as pool:
        waiting: deque[Future[Result]] = deque(
            pool.submit(compute, i) for i in islice(items, ahead * streams)
        )
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(compute, item) for item in islice(items, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()
