"""`annotate` on a Ray cluster: chunks are computed by its workers, and read and written here as ever.

In: chunks, in the order of the input. Out: what was found in each, in the same order, whichever workers died meanwhile.
Every worker opens the models once, so their folders must be there under the same paths; inputs and output are needed
here alone. The price: texts go to the workers and come back with what was found in them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

from alembert.infer.annotate_chunks import Computed, Portion, compute
from alembert.infer.annotate_models import Pipeline
from alembert.workers.ray import RayCluster, WorkerSpec, connect


@dataclass(frozen=True)
class OnRay:
    """A cluster; `open_pipeline` runs on each worker, and must give the models that the run was started with."""

    cluster: RayCluster
    open_pipeline: Callable[[], Pipeline]

    def computed(self, chunks: Iterator[list[Portion]]) -> Generator[Computed, None, None]:
        first = next(chunks, None)
        if first is None:  # no cluster is started for nothing
            return
        work = WorkerSpec(partial(_opened, self.open_pipeline), _named)
        with (
            connect(self.cluster) as connection,
            closing(connection.run(work, chain([first], chunks))) as results,
        ):
            yield from results


def _opened(open_pipeline: Callable[[], Pipeline]) -> Callable[[Sequence[Portion]], Computed]:
    return partial(compute, open_pipeline())


def _named(chunk: Sequence[Portion]) -> str:
    """Say which documents a chunk has, without a word of them."""
    first, last = chunk[0], chunk[-1]
    if first.source == last.source:
        return f"items {first.place.items} to {last.place.items} of {first.source}"
    return f"the documents from item {first.place.items} of {first.source} to item {last.place.items} of {last.source}"
