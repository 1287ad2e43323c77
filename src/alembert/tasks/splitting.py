"""Dividing one set of examples into training, development and test, and finding examples that two sets share.

Which part an example falls into is decided by its text and a seed alone, so neither the order of the files nor their
number matters, and examples with the same text are never on both sides. Texts are ranked by a hash and the ranks are
cut, rather than each hash compared with a threshold: the shares are exact, and small sets have no empty part by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from alembert.data.order import stable_hash
from alembert.errors import BadSetting
from alembert.tasks.example import E, Example


@dataclass(frozen=True)
class SplitShares:
    """Percentages of the different texts that go to each part; no test part if its share is 0."""

    train: float
    dev: float
    test: float = 0.0

    def counts(self, texts: int) -> tuple[int, int, int]:
        """Share out a number of texts; each part with a share gets one before any gets more.

        >>> SplitShares(80, 10, 10).counts(25)
        (20, 3, 2)
        """
        exact = [texts * share / 100 for share in (self.train, self.dev, self.test)]
        shared = [int(part) for part in exact]
        by_remainder = sorted(range(3), key=lambda part: shared[part] - exact[part])
        for part in by_remainder[: texts - sum(shared)]:
            shared[part] += 1
        for part in range(3):
            richest = shared.index(max(shared))
            if exact[part] and not shared[part] and shared[richest] > 1:
                shared[richest] -= 1
                shared[part] += 1
        return shared[0], shared[1], shared[2]


@dataclass(frozen=True)
class SplitOverlap(Generic[E]):
    """Examples of one set whose texts another set has too."""

    examples: tuple[E, ...]

    @property
    def count(self) -> int:
        return len(self.examples)


def parse_split(text: str) -> SplitShares:
    """Read the shares of training, development and, if there is a third, test.

    >>> parse_split("80/10/10")
    SplitShares(train=80.0, dev=10.0, test=10.0)
    """
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        shares = []
    if len(shares) not in (2, 3) or not all(share > 0 for share in shares) or abs(sum(shares) - 100) > 1e-6:
        raise BadSetting(
            f"The split {text!r} cannot be used; expected percentages of train/dev/test or train/dev, each above 0, "
            "that add up to 100, such as 80/10/10 or 90/10."
        )
    return SplitShares(*shares)


def split_examples(
    examples: Sequence[E], shares: SplitShares, seed: int
) -> tuple[tuple[E, ...], tuple[E, ...], tuple[E, ...]]:
    """Divide examples into training, development and test, each in the given order.

    Examples of one document, and those whose texts are the same but for white space and case, stay together.
    """
    keys = [example.group_id for example in examples]
    ranked = sorted(set(keys), key=lambda key: (stable_hash(seed, "split", key), str(key)))
    train, dev, _ = shares.counts(len(ranked))
    part_of = {key: (rank >= train) + (rank >= train + dev) for rank, key in enumerate(ranked)}
    parts: tuple[list[E], list[E], list[E]] = ([], [], [])
    for example, key in zip(examples, keys, strict=True):
        parts[part_of[key]].append(example)
    return tuple(parts[0]), tuple(parts[1]), tuple(parts[2])


def find_overlap(first: Sequence[Example], second: Sequence[E]) -> SplitOverlap[E]:
    """Find the examples of the second set whose text the first has, but for white space and case."""
    keys = {example.key for example in first}
    return SplitOverlap(tuple(example for example in second if example.key in keys))
