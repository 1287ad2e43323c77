"""How likely a sample is under a distribution, or two samples under one: for tests with fixed seeds.

A test asks for more than `UNLIKELY`. What was right once stays right, since the seeds are fixed; a wrong share of one
percent among 100,000 draws is found.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

from scipy.stats import chi2_contingency, chisquare

UNLIKELY = 1e-3
_RARE = 20


def fits(sample: Iterable[Hashable], shares: Mapping[Hashable, float]) -> float:
    """Give the chance of a sample that is at least as far from the shares as this one."""
    seen = Counter(sample)
    assert seen.keys() <= shares.keys()
    expected = [share * seen.total() for share in shares.values()]
    return float(chisquare([seen[outcome] for outcome in shares], expected).pvalue)


def alike(first: Iterable[Hashable], second: Iterable[Hashable]) -> float:
    """Give the chance that two samples of one distribution are at least as far apart as these."""
    one, other = Counter(first), Counter(second)
    both = one + other
    common = [outcome for outcome in both if both[outcome] >= _RARE]
    rows = [(one[outcome], other[outcome]) for outcome in common]
    rare = tuple(seen.total() - sum(seen[outcome] for outcome in common) for seen in (one, other))
    rows += [rare] if sum(rare) else []
    return 1.0 if len(rows) == 1 else float(chi2_contingency(rows).pvalue)
