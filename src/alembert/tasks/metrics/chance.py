"""What guessing would score: the level, and how often guessing is as right as a model was.

Examples may have different numbers of choices, so the number of lucky guesses is a sum of binomials, one for each
number of choices; its distribution is computed exactly.
"""

# N examples, K right guesses
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from alembert.tasks.metrics.tally import Floats

UNLIKELY: Final = 0.05
"""Guessing that does as well as a model no more often than this does not explain its score."""


def chance_level(choices_N: Sequence[int]) -> float:
    """Give the accuracy that guessing has on average: the mean of 1 / choices; 0 without examples.

    >>> chance_level([4, 4, 2, 2])
    0.375
    """
    return sum(1 / count for count in choices_N) / len(choices_N) if choices_N else 0.0


def chance_of(right: int, choices_N: Sequence[int]) -> float:
    """Say how likely guessing is right at least so often.

    >>> chance_of(2, [2, 2]), chance_of(1, [4])
    (0.25, 0.25)
    """
    parts = [_binomial(count, 1 / choices) for choices, count in sorted(Counter(choices_N).items())]
    distribution_K = reduce(np.convolve, parts, np.ones(1))
    return float(min(1.0, distribution_K[right:].sum()))


def _binomial(count: int, share: float) -> Floats:
    """Give the probability of each number of successes, 0 to `count`; in logarithms, since they are tiny."""
    if share == 1:
        return np.append(np.zeros(count), 1.0)
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, count + 1))))
    right = np.arange(count + 1)
    ways = logs[-1] - logs - logs[::-1]
    found: Floats = np.exp(ways + right * np.log(share) + (count - right) * np.log1p(-share))
    return found
