"""Streams of work inside streams of work, and work that ends in an error."""

from collections.abc import Iterator

import pytest

from alembert.data import batching
from alembert.data.batching import map_in_threads


def test_who_leaves_early_waits_for_the_innermost_items_only() -> None:
    computed: list[int] = []

    def inner(item: int) -> int:
        outermost = batching._CANCEL_EVENTS.get()[0]
        assert outermost.wait(60)  # until nobody waits for the whole
        computed.append(item)
        return item

    def outer(item: int) -> int:
        return sum(map_in_threads(inner, range(1000), streams=2)) if item else 0

    results = map_in_threads(outer, range(3), streams=2, ahead=1)
    assert next(results) == 0
    results.close()
    assert len(computed) < 10


def test_streams_in_streams_give_all_results_in_order() -> None:
    def outer(item: int) -> list[int]:
        return list(map_in_threads(lambda n: n * item, range(20), streams=3))

    assert list(map_in_threads(outer, range(5), streams=2)) == [[n * item for n in range(20)] for item in range(5)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_all_results_come_before_an_error_of_the_work(number: int) -> None:
    def work() -> Iterator[int]:
        yield from range(5)
        raise ZeroDivisionError

    found: list[int] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(map_in_threads(abs, work(), number))
    assert found == [0, 1, 2, 3, 4]
