"""Batches of rows by a budget of tokens, several at once: how everything that predicts feeds a torch model.

On a CPU one stream of batches runs per core, each operation on one thread; a lone batch has all cores to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import torch

from alembert.data.batching import batch_by_tokens, map_in_threads
from alembert.hardware.torch_settings import limit_operation_threads

Result = TypeVar("Result")

TOKEN_BUDGET: Final = 1024
"""Tokens in a batch: large enough for full matrix products, small enough for the cache (docs/benchmarks.md)."""


def in_batches(
    compute: Callable[[list[int]], Result], lengths: Sequence[int], device: torch.device
) -> Iterator[Result]:
    """Compute on batches of the numbers of rows with these lengths, short rows first.

    While it runs with several streams, torch computes each operation on one thread, in the whole process.
    """
    batches = list(batch_by_tokens(lengths, TOKEN_BUDGET))
    streams = min(torch.get_num_threads() if device.type == "cpu" else 1, len(batches))
    if streams < 2:
        yield from map(compute, batches)
        return
    with limit_operation_threads(1):
        yield from map_in_threads(compute, batches, streams)
