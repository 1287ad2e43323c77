"""Decide whether an English period ends a sentence, from the words around it.

In go the words before the period and the text after it, out comes yes or no. The sets hold lower-case words without
their last period. A word belongs in one only if a period after it is commoner inside a sentence than at its end:
every further word hides some real border.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_LAST = _words(
    """
    e.g eg i.e ie cf viz vs approx ca resp a.k.a
    dr drs mr mrs prof st mt capt
    fig figs eq eqs eqn eqns suppl supp
    """
)
"""Always followed by more of the same sentence: "vs. The Control Group", "Fig. 2", "Dr. Smith", "St. Louis"."""

NOT_BEFORE_NUMBER = _words(
    """
    no nos nr pp pg vol vols chap sec sect tab ref refs art exp exps ex fr ver app cat lot
    sp spp subsp ssp var cv etc max avg temp conc jan feb mar apr jun jul aug sep sept oct nov dec
    """
)
"""Inside a sentence if a number or a bracket follows, and able to end one otherwise: "no. 5", "Vibrio sp. (ATCC)"."""

ONLY_BEFORE_STARTER = _words(
    """
    al inc ltd co corp dept univ jr sr bros proc natl acad sci biol chem genet hum mol med am assoc surv mutat
    biochem biophys physiol pharmacol immunol pathol clin lett rev ann eur int intl inst soc microbiol neurosci
    """
)
"""Followed by a name or a number more often than by a sentence; only a word of `STARTERS` makes a border."""

STARTERS = _words(
    """
    a an the this these those that we our it its they their there here he she his her you one two three both each
    all some several such many most other another no none not neither any only even
    in on at by for from to of with within without under upon over between among after before during since until
    through throughout along across against as if when where whether while whereas because although though despite
    unlike like using based given due
    however moreover furthermore further thus therefore hence then finally first second third next also additionally
    similarly conversely importantly interestingly notably indeed instead overall together taken again once so but and
    yet or nor how what which who why can could did do does is are was were have has had
    background objective objectives aim aims purpose methods results conclusion conclusions discussion introduction
    """
)
"""Words that open sentences and are seldom names."""

BEFORE_INITIAL = _words("by and or of from with for per the see dear")
"""Words before a person's initial. After other small words a lone capital is the end of a name: "vitamin C."."""

PARTICLES = _words("von van de di du der den del della la le")
"""Small words that begin a family name, and so may begin a sentence: "von Willebrand disease"."""

_ABBREVIATIONS = NEVER_LAST | NOT_BEFORE_NUMBER | ONLY_BEFORE_STARTER
_OPERATORS = "=<>≤≥~≈±×(-–,;:/"
_MUTATION_PREFIXES = "cgmnpr"  # c. 38T>C and p. Arg22Cys, with a space
_AFTER_CHINESE = re.compile(r".*[\u2e80-\uffff](?=[A-Za-z])")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_ROMAN_OR_NUMBER = re.compile(r"\d{1,3}|[IVXivx]{1,5}|\d{1,2}(?:\.\d{1,2})+")
# mRNA, p53, c-Myc, beta-Glucuronidase; p-values, n = 5, p<0.05; (a) Cells
_SMALL_OPENING = re.compile(r"[^\W\d_A-Z]{1,7}-?[A-Z0-9]|[^\W\d_A-Z](?:-\w|\s?[<=>≤≥])|[a-z]{1,4}\)\s")


def period_ends(words: list[str], following: str, bracketed: bool) -> bool:
    """Tell whether the period after `words`, the last few of a sentence, ends it.

    `following` is the text after the period without white space and opening brackets or quotes; `bracketed` says
    whether there were any.

    >>> period_ends(["see", "Fig"], "2 and 3", False), period_ends(["the", "cells"], "The next", False)
    (False, True)
    """
    word = _bare(words[-1])
    if not opens(following):
        return False
    first = following[:1]
    key = word.lower()
    if key in _ABBREVIATIONS:
        return _ends_after_abbreviation(key, following, bracketed)
    if len(word) <= 1:
        return word != "" and _ends_after_letter(words, word, following)
    if "." in word and _DOTTED.fullmatch(word):
        return starts(following) or (word.islower() and first.isupper())
    if len(words) == 1 and _ROMAN_OR_NUMBER.fullmatch(word):
        return False
    return not (first.isdigit() and word[-1] in _OPERATORS)


def _bare(word: str) -> str:
    """Strip opening brackets and quotes, and the Chinese that a Latin word may follow without a space."""
    word = word.lstrip("([{\"'“‘")
    return word if word.isascii() else _AFTER_CHINESE.sub("", word)


def opens(following: str) -> bool:
    """Tell whether a text can be the beginning of a sentence."""
    first = following[:1]
    if first.islower():
        return _SMALL_OPENING.match(following) is not None or _opens_with_particle(following)
    return first.isalnum() or first in "~$•"


def starts(following: str) -> bool:
    """Tell whether a text begins with a word that opens sentences and is seldom a name."""
    words = following.split(maxsplit=1)
    return bool(words) and words[0].rstrip(",:;").lower() in STARTERS


def is_plain(word: str) -> bool:
    """Tell whether a word is ordinary enough to end a sentence even without white space after its period.

    Names such as ``bEnd.3``, ``lecrk-I.8`` and ``Tris.Cl`` are not; ``cells.12`` and ``(C4).The`` are.
    """
    return word[-1:] in ")]" or (len(word) > 2 and word.isalpha() and word.islower() and word not in _ABBREVIATIONS)


def _opens_with_particle(following: str) -> bool:
    words = following.split(maxsplit=3)[:3]
    capital = next((at for at, word in enumerate(words) if word not in PARTICLES), 0)
    return capital > 0 and words[capital][0].isupper()


def _ends_after_abbreviation(key: str, following: str, bracketed: bool) -> bool:
    if key in NEVER_LAST:
        return False
    if key in NOT_BEFORE_NUMBER:
        return following[:1].isupper() and not bracketed
    return not bracketed and starts(following)


def _ends_after_letter(words: list[str], letter: str, following: str) -> bool:
    if letter.isdigit():
        return len(words) > 1
    if not letter.isalpha():
        return letter not in _OPERATORS
    if len(words) == 1:
        return False
    before = words[-2]
    if before[-1].isdigit():  # a unit: 5 m, 0.2 M
        return True
    if not letter.isupper():
        return following[:1].isupper() and letter not in _MUTATION_PREFIXES
    if starts(following):
        return True
    is_name = before.isalpha() and before.islower() and len(before) > 2 and before not in BEFORE_INITIAL
    return is_name and following[1:2] != "."
