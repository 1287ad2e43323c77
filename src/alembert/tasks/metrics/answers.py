"""How well texts answer questions: exact match and F1 as in the scripts of SQuAD and CMRC 2018, and ranks as in BioASQ.

SQuAD (Rajpurkar et al. 2016, 2018) compares words without case, punctuation and articles; version 2 adds questions whose
right answer is none, and so takes two texts without words for the same, which share nothing in version 1. CMRC (Cui et al. 2019) compares Chinese characters and foreign words, and counts the longest run
that both texts have in common. Of several right answers the one that fits best counts. All values are shares, not
percentages.

>>> of_squad = SCRIPTS["squad2"]
>>> of_squad.exact("The Normans!", "normans"), round(of_squad.f1("in the 10th century", "10th century"), 2)
(True, 0.8)
"""

# N questions
from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from alembert.tasks.metrics.english_words import english_words
from alembert.tasks.metrics.tally import Floats

ScriptName = Literal["squad1", "squad2", "cmrc"]
NONE: Final = ""
"""The answer to a question that the passage does not answer."""
RANKS: Final = 5
"""Answers of a list that BioASQ looks at."""
_ARTICLES: Final = re.compile(r"\b(?:an?|the)\b")
_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_CHINESE: Final = re.compile("([\u4e00-\u9fa5])")
_WITHOUT_MARKS: Final = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


@dataclass(frozen=True)
class Script:
    """How two texts are compared."""

    normal: Callable[[str], str]
    """What must be the same for an exact match."""
    words: Callable[[str], list[str]]
    common: Callable[[list[str], list[str]], int]
    """How many words two texts have in common."""
    has_none: bool = False
    """Whether no answer may be right."""

    def exact(self, right: str, guess: str) -> bool:
        return self.normal(right) == self.normal(guess)

    def f1(self, right: str, guess: str) -> float:
        """Compute F1 of the words."""
        gold, given = self.words(right), self.words(guess)
        if not gold or not given:
            return float(self.has_none and gold == given)
        return 2 * self.common(gold, given) / (len(gold) + len(given))

    def golds(self, rights: Sequence[str]) -> list[str]:
        """Give the right answers that are compared; if there are none, the right answer is none."""
        return [right for right in rights if not self.has_none or self.words(right)] or [NONE]

    def best(self, rights: Sequence[str], guess: str) -> tuple[float, float]:
        """Give exact match and F1 with the right answer that fits best; without right answers, none is right."""
        if not rights:
            is_right = float(self.exact(NONE, guess))
            return is_right, is_right
        golds = self.golds(rights)
        return float(any(self.exact(gold, guess) for gold in golds)), max(self.f1(gold, guess) for gold in golds)


def _squad_normal(text: str) -> str:
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def _squad_words(text: str) -> list[str]:
    return _squad_normal(text).split()


def _squad_common(one: list[str], other: list[str]) -> int:
    return (Counter(one) & Counter(other)).total()


def _cmrc_normal(text: str) -> str:
    return text.lower().strip().translate(_WITHOUT_MARKS)


def _cmrc_words(text: str) -> list[str]:
    words: list[str] = []
    for part in _CHINESE.split(_cmrc_normal(text)):
        words += [part] if _CHINESE.fullmatch(part) else english_words(part)
    return words


def longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """Give the length of the longest run of words that two lists have in common.

    >>> longest_run("the cat sat down".split(), "a cat sat up".split())
    2
    """
    where: dict[str, list[int]] = {}
    for place, word in enumerate(other):
        where.setdefault(word, []).append(place)
    longest = 0
    runs: dict[int, int] = {}
    for word in one:
        runs = {place: runs.get(place - 1, 0) + 1 for place in where.get(word, ())}
        longest = max(longest, *runs.values(), 0)
    return longest


SCRIPTS: Final[dict[ScriptName, Script]] = {
    "squad1": Script(_squad_normal, _squad_words, _squad_common),
    "squad2": Script(_squad_normal, _squad_words, _squad_common, has_none=True),
    "cmrc": Script(_cmrc_normal, _cmrc_words, longest_run),
}


def best_threshold(scores_N: Floats, is_none_N: Floats, sure_N: Floats) -> tuple[float, float]:
    """Find the threshold above which questions should be left unanswered, and the mean score that it gives.

    `scores_N` are those of the best answers (0 for questions without one), `is_none_N` is 1 where none is right, and
    `sure_N` says how much more likely none is than the best answer.
    """
    order = np.argsort(sure_N, kind="stable")
    sure, gain = sure_N[order], (scores_N - is_none_N)[order]
    totals = is_none_N.sum() + np.append(0.0, np.cumsum(gain))
    # Questions that are equally sure fall on the same side.
    is_cut = np.append(True, np.append(sure[1:] != sure[:-1], True)) if len(sure) else np.array([True])
    best = int(np.flatnonzero(is_cut)[np.argmax(totals[is_cut])])
    # A whole unit below: the next number below zero is too small for threads that flush such numbers.
    below = float(sure[0]) - 1 if len(sure) else 0.0
    threshold = float(sure[best - 1]) if best else below
    return threshold, float(totals[best] / max(len(sure), 1))


def rank_of(rights: Sequence[str], ranked: Sequence[str]) -> int | None:
    """Give the place of the first right answer among the five best, from 1; case and outer spaces do not count.

    >>> rank_of(["BRCA1", "BRCA-1"], ["TP53", "brca1"])
    2
    """
    known = {right.strip().lower() for right in rights}
    places = (place for place, text in enumerate(ranked[:RANKS], 1) if text.strip().lower() in known)
    return next(places, None)
