"""Ways of sorting things into a few named groups, for tables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sorting(Generic[T]):
    """What things are sorted by, and the groups in their order."""

    name: str
    title: str
    of: str
    """What the names of the groups are: a unit, or a noun."""
    groups: Sequence[str]
    group: Callable[[T], str]

    @classmethod
    def by_range(cls, name: str, title: str, of: str, starts: Sequence[int], value: Callable[[T], int]) -> Sorting[T]:
        """Sort by a number; `starts` are where ranges begin."""
        return cls(name, title, of, range_names(starts), lambda thing: range_of(value(thing), starts))


def range_of(value: int, starts: Sequence[int]) -> str:
    """Name the range that a number falls into; `starts` are where ranges begin, rising.

    >>> [range_of(value, (1, 2, 3, 5)) for value in (1, 4, 99)]
    ['1', '3-4', '5+']
    """
    place = max(0, bisect_right(starts, value) - 1)
    return range_names(starts)[place]


def range_names(starts: Sequence[int]) -> list[str]:
    """Name all ranges, in order.

    >>> range_names((1, 2, 3, 5))
    ['1', '2', '3-4', '5+']
    """
    closed = [str(low) if high - low == 1 else f"{low}-{high - 1}" for low, high in pairwise(starts)]
    return [*closed, f"{starts[-1]}+"]
