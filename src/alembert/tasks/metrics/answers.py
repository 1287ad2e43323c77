"""How well texts answer questions or say what they should: exact match, F1 and ROUGE.

SQuAD (Rajpurkar et al. 2016, 2018) compares words without case, punctuation and articles; version 2 adds questions
whose right answer is none, and so takes two texts without words for the same, which share nothing in version 1. CMRC
(Cui et al. 2019) compares Chinese characters and foreign words, and counts the longest run that both texts have in
common; ranks are those of BioASQ. Of several right answers the one that fits best counts. All values are shares, not
percentages.

>>> of_squad = ANSWER_SCORERS["squad2"]
>>> of_squad.exact("The Normans!", "normans"), round(of_squad.f1("in the 10th century", "10th century"), 2)
(True, 0.8)

The script of CMRC cuts everything but Chinese into words of the Penn Treebank: `can't` is `ca n't`, punctuation is set
apart, and a full stop is a word of its own at the end of the text alone, so that `u.s.` and `3.5` stay whole. Written
after the published rules; the library that the script calls first looks for sentence ends with a learnt model, which
makes a difference only where a foreign text of several sentences stands in an answer.

ROUGE-1, ROUGE-2 and ROUGE-L are as Lin (2004) defines them, F with equal weights, with one right text and without
stemming; equal to the package `rouge_score` on English. Words are runs of a to z and 0 to 9 in lower case; each Chinese
character is a word, which that package does not know.

>>> rouge("The cat sat.", "the cat sat on the mat")["rouge1"]
0.6666666666666666
>>> rouge_words("阿司匹林 100 mg/d")
['阿', '司', '匹', '林', '100', 'mg', 'd']
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np

from alembert.tasks.metrics import Floats
from alembert.text.sentences import CJK

_CONTRACTED: Final = frozenset(("cannot", "gimme", "lemme", "gonna", "gotta", "d'ye", "more'n"))


def _split_contraction(match: re.Match[str]) -> str:
    return f" {match[1]} {match[2]} " if match[0] in _CONTRACTED else match[0]


def _replace_opening_quote(match: re.Match[str]) -> str:
    return " `` `` " if match[0] == '""' else " `` "


_RULES: Final = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"^\"\"?|(?<=[ (\[{<«“‘„])(?:\"|'')", _replace_opening_quote),
        (r"(?<!\w)'\b(?!(?:[dmnst]|ll|re|ve)\b)", "' "),
        (r"(?<=[^.])\.(?=[\])}>\"'»”’\s]*$)", " . "),
        (r"[:,](?!\d)", r" \g<0> "),
        (r"\.{2,}|--|`+|[;@#$%&?!*\[\](){}<>«»“”‘’„‒–—―]", r" \g<0> "),
        (r"''|\"", " '' "),
        (r"(?<=[^'\s])(?:'(?:[smd]|ll|re|ve)?|n't)(?=\s|$)", r" \g<0> "),
        (r"\b(can|gim|lem|gon|got|d|more)(not|me|na|ta|'ye|'n)\b", _split_contraction),
    )
)
"""What is looked for, in this order, and what is put there: mostly the same, set apart by spaces."""


def split_english_words(text: str) -> list[str]:
    """Cut a text in small letters into words and punctuation.

    >>> split_english_words("the u.s. can't (yet) pay $3,000.")
    ['the', 'u.s.', 'ca', "n't", '(', 'yet', ')', 'pay', '$', '3,000', '.']
    """
    for pattern, put in _RULES:
        text = pattern.sub(put, text)
    return text.split()


# N questions


AnswerScorerName = Literal["squad1", "squad2", "cmrc"]
NO_ANSWER: Final = ""
"""The answer to a question that the passage does not answer."""
MAX_RANK: Final = 5
"""Answers of a list that BioASQ looks at."""
_ARTICLES: Final = re.compile(r"\b(?:an?|the)\b")
_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_CHINESE: Final = re.compile("([\u4e00-\u9fa5])")
_WITHOUT_MARKS: Final = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


@dataclass(frozen=True)
class AnswerScorer:
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
        gold, guessed = self.words(right), self.words(guess)
        if not gold or not guessed:
            return float(self.has_none and gold == guessed)
        return 2 * self.common(gold, guessed) / (len(gold) + len(guessed))

    def golds(self, rights: Sequence[str]) -> list[str]:
        """Return the right answers that are compared; if there are none, the right answer is none."""
        return [right for right in rights if not self.has_none or self.words(right)] or [NO_ANSWER]

    def best(self, rights: Sequence[str], guess: str) -> tuple[float, float]:
        """Compute exact match and F1 with the right answer that fits best; without right answers, none is right."""
        if not rights:
            is_right = float(self.exact(NO_ANSWER, guess))
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
        words += [part] if _CHINESE.fullmatch(part) else split_english_words(part)
    return words


def longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """Measure the longest run of words that two lists have in common.

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


ANSWER_SCORERS: Final[dict[AnswerScorerName, AnswerScorer]] = {
    "squad1": AnswerScorer(_squad_normal, _squad_words, _squad_common),
    "squad2": AnswerScorer(_squad_normal, _squad_words, _squad_common, has_none=True),
    "cmrc": AnswerScorer(_cmrc_normal, _cmrc_words, longest_run),
}


def best_no_answer_threshold(scores_N: Floats, is_none_N: Floats, sure_N: Floats) -> tuple[float, float]:
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


def find_first_rank(rights: Sequence[str], ranked: Sequence[str]) -> int | None:
    """Find the rank of the first right answer among the five best, from 1; case and outer spaces do not count.

    >>> find_first_rank(["BRCA1", "BRCA-1"], ["TP53", "brca1"])
    2
    """
    answers = {right.strip().lower() for right in rights}
    ranks = (rank for rank, text in enumerate(ranked[:MAX_RANK], 1) if text.strip().lower() in answers)
    return next(ranks, None)


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
