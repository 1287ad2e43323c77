"""ROUGE: how many words, pairs of words, and words in the same order a written text shares with the right one.

As Lin (2004) defines ROUGE-1, ROUGE-2 and ROUGE-L, F with equal weights, with one right text and without stemming; equal
to the package `rouge_score` on English. Words are runs of a to z and 0 to 9 in lower case; each Chinese character is a
word, which that package does not know.

>>> rouge("The cat sat.", "the cat sat on the mat")["rouge1"]
0.6666666666666666
>>> rouge_words("阿司匹林 100 mg/d")
['阿', '司', '匹', '林', '100', 'mg', 'd']
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from alembert.text.sentences import CJK

ROUGE_METRICS: Final = ("rouge1", "rouge2", "rougeL")
_WORD: Final = re.compile(rf"[a-z0-9]+|[{CJK}]")


def rouge_words(text: str) -> list[str]:
    """Take a text apart into what is compared."""
    return _WORD.findall(text.lower())


def rouge(written: str, right: str) -> dict[str, float]:
    """Compute ROUGE-1, ROUGE-2 and ROUGE-L (F) of a text."""
    one, other = rouge_words(written), rouge_words(right)
    pairs = Counter(pairwise(one)), Counter(pairwise(other))
    return {
        "rouge1": overlap_f1(Counter(one), Counter(other)),
        "rouge2": overlap_f1(*pairs),
        "rougeL": _f1(_lcs_length(one, other), len(one), len(other)),
    }


def overlap_f1(written: Mapping[Any, int], right: Mapping[Any, int]) -> float:
    """Compute F of what two counts have in common."""
    common = sum(min(count, right[ngram]) for ngram, count in written.items() if ngram in right)
    return _f1(common, sum(written.values()), sum(right.values()))


def _lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the words of the longest common subsequence."""
    best = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, each in enumerate(other, start=1):
            before, best[place] = (
                best[place],
                before + 1 if word == each else max(best[place], best[place - 1]),
            )
    return best[-1]


def _f1(common: int, one: int, other: int) -> float:
    return 2 * common / (one + other) if common else 0.0
