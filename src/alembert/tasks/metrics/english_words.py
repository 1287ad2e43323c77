"""English words as the Penn Treebank writes them: what the script of CMRC 2018 cuts everything but Chinese into.

`can't` is `ca n't`, punctuation is set apart, and a full stop is a word of its own at the end of the text alone, so that
`u.s.` and `3.5` stay whole. Written after the published rules; the library that the script calls first looks for sentence
ends with a learnt model, which makes a difference only where a foreign text of several sentences stands in an answer.
"""

from __future__ import annotations

import re
from typing import Final

_CONTRACTED: Final = frozenset(("cannot", "gimme", "lemme", "gonna", "gotta", "d'ye", "more'n"))


def _parted(found: re.Match[str]) -> str:
    return f" {found[1]} {found[2]} " if found[0] in _CONTRACTED else found[0]


def _opening(found: re.Match[str]) -> str:
    return " `` `` " if found[0] == '""' else " `` "


_RULES: Final = tuple(
    (re.compile(pattern), put)
    for pattern, put in (
        (r"^\"\"?|(?<=[ (\[{<«“‘„])(?:\"|'')", _opening),
        (r"(?<!\w)'\b(?!(?:[dmnst]|ll|re|ve)\b)", "' "),
        (r"(?<=[^.])\.(?=[\])}>\"'»”’\s]*$)", " . "),
        (r"[:,](?!\d)", r" \g<0> "),
        (r"\.{2,}|--|`+|[;@#$%&?!*\[\](){}<>«»“”‘’„‒–—―]", r" \g<0> "),
        (r"''|\"", " '' "),
        (r"(?<=[^'\s])(?:'(?:[smd]|ll|re|ve)?|n't)(?=\s|$)", r" \g<0> "),
        (r"\b(can|gim|lem|gon|got|d|more)(not|me|na|ta|'ye|'n)\b", _parted),
    )
)
"""What is looked for, in this order, and what is put there: mostly the same, set apart by spaces."""


def english_words(text: str) -> list[str]:
    """Cut a text in small letters into words and punctuation.

    >>> english_words("the u.s. can't (yet) pay $3,000.")
    ['the', 'u.s.', 'ca', "n't", '(', 'yet', ')', 'pay', '$', '3,000', '.']
    """
    for pattern, put in _RULES:
        text = pattern.sub(put, text)
    return text.split()
