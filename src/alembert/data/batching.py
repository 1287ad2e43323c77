"""Which texts go into one batch: sorted by length, cut by a budget of tokens."""

from collections.abc import Iterator, Sequence


def by_token_budget(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield the numbers of the texts of each batch; a text longer than the budget gets a batch of its own.

    >>> list(by_token_budget([5, 2, 9, 3], budget=10))
    [[1, 3, 0], [2]]
    """
    batch: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and tokens + lengths[row] > budget:
            yield batch
            batch, tokens = [], 0
        batch.append(row)
        tokens += lengths[row]
    if batch:
        yield batch


def by_padded_budget(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches as `by_token_budget` does, of texts that are all padded to the longest of their batch.

    The budget counts the padding.

    >>> list(by_padded_budget([5, 2, 9, 3], budget=10))
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
