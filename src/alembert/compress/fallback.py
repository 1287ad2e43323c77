"""Which products stay in float, so that int8 costs no more than it may.

All are quantised first. If that costs too much, those that harm most go back to float: one, then two, four and so on,
each time with everything else quantised anew. So few tries are needed, at the price of keeping up to twice as many in
float as would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

GraphT = TypeVar("GraphT")


@dataclass(frozen=True)
class FloatFallback(Generic[GraphT]):
    """What the search needs to know of graphs, whatever they are."""

    quantised: Callable[[Sequence[str]], GraphT]
    """Quantise, with these products in float."""
    loss: Callable[[GraphT], float]
    """What it costs, in points."""
    ranked: Callable[[GraphT], Sequence[str]]
    """Name the products, the most harmful first."""

    def search(
        self, limit: float, say: Callable[[str], None] = lambda _: None
    ) -> tuple[GraphT, tuple[str, ...]] | None:
        """Find a graph that costs at most `limit` points, and what is in float in it; none: there is none."""
        graph = self.quantised(())
        lost = self.loss(graph)
        if lost <= limit:
            return graph, ()
        names = self.ranked(graph)
        count = 1
        while count < len(names):
            say(
                f"int8 costs {lost:.2f} points, more than {limit:g}: trying with {count} of {len(names)} products in float"
            )
            kept = tuple(names[:count])
            graph = self.quantised(kept)
            lost = self.loss(graph)
            if lost <= limit:
                return graph, kept
            count *= 2
        return None


def relative_error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Give the squared error of an output over all rows, as a share of its size: so all outputs count alike."""
    size = sum(float(np.square(each).sum()) for each in wanted)
    return sum(float(np.square(a - b).sum()) for a, b in zip(found, wanted, strict=True)) / (size or 1.0)
