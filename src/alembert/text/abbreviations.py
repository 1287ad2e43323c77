"""Abbreviations that a text defines: "acute lymphoblastic leukemia (ALL)", or "ALL (acute lymphoblastic leukemia)".

In: a text. Out: where each short form and its long form are defined, with exact offsets. The algorithm is that of
Schwartz and Hearst (2003), "A simple algorithm for identifying abbreviation definitions in biomedical text": the
letters of the short form are looked for from right to left, and the first one has to begin a word; a Greek letter
counts as the first letter of its name. It knows no lexicon, needs no training and is right in 95 of 100 definitions;
short forms whose letters the long form does not have are not found. (`sentences` has another list of abbreviations:
those after which a full stop ends no sentence.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from alembert.text.sentences import Span

_PARENTHESES: Final = re.compile(r"\(([^()]{2,400})\)")
_BORDER: Final = re.compile(r"(?<=[a-z\d)][a-z\d)])[.!?]\s+(?=[A-Z\d])|\n\s*\n|[()]")
"""What no long form reaches across: the end of a sentence or a paragraph, and other parentheses."""
_SEPARATOR: Final = re.compile(r"[;,:]\s")
_WORDS: Final = re.compile(r"[^\s-]+")
_QUOTES: Final = "\"'“”‘’"
_MAX_CONTEXT: Final = 400
_SHORTEST, _LONGEST = 2, 10
_MAX_SHORT_WORDS: Final = 2
_GREEK: Final = dict(zip("αβγδεζηθικλμνξοπρσςτυφχψω", "abgdezetiklmnxoprsstupcpo", strict=True))


class AbbreviationDefinition(NamedTuple):
    """Where a text defines an abbreviation."""

    short: Span
    long: Span


def find_abbreviations(text: str) -> list[AbbreviationDefinition]:
    """Find the definitions of abbreviations, in the order of the text.

    >>> text = "Patients with acute lymphoblastic leukemia (ALL)"
    >>> [(text[slice(*each.short)], text[slice(*each.long)]) for each in find_abbreviations(text)]
    [('ALL', 'acute lymphoblastic leukemia')]
    """
    return [] if "(" not in text else [found for match in _PARENTHESES.finditer(text) for found in _define(text, match)]


def find_occurrences(text: str, form: str, *, any_case: bool = False) -> Iterator[Span]:
    """Yield where a short or long form stands between word borders.

    >>> list(find_occurrences("ALL, not BALL; ALL-1", "ALL"))
    [(0, 3), (15, 18)]
    """
    pattern = rf"(?<![^\W_]){re.escape(form)}(?![^\W_])"
    return (match.span() for match in re.finditer(pattern, text, re.IGNORECASE if any_case else 0))


def _define(text: str, match: re.Match[str]) -> Iterator[AbbreviationDefinition]:
    """Read parentheses as a short form after its long form or, if they are too long for one, as the long form."""
    inside = _strip(text, match.span(1))
    before = _strip(text, (_context_start(text, match.start()), match.start()))
    if separator := _SEPARATOR.search(text, *inside):
        inside = _strip(text, (inside[0], separator.start()))
    if _is_short_form(text[slice(*inside)]):
        long = _find_long_form(text, inside, _last_words(text, before, inside[1] - inside[0]))
        if long is not None:
            yield AbbreviationDefinition(inside, long)
        return
    short = (
        (before[1] - len(text[slice(*before)].rsplit(maxsplit=1)[-1]), before[1]) if before[0] < before[1] else before
    )
    surface = text[slice(*short)]
    if _is_short_form(surface) and any(map(str.isupper, surface)):
        long = _find_long_form(text, short, inside)
        if long is not None:
            yield AbbreviationDefinition(short, long)


def _strip(text: str, span: Span) -> Span:
    """Leave out spaces and quotes at both ends."""
    start, end = span
    ignored = _QUOTES + " \t\r\n"
    start += len(text[start:end]) - len(text[start:end].lstrip(ignored))
    return start, start + len(text[start:end].rstrip(ignored))


def _context_start(text: str, end: int) -> int:
    """Return where the sentence begins in which a parenthesis opens."""
    start = max(0, end - _MAX_CONTEXT)
    borders = [border.end() for border in _BORDER.finditer(text, start, end)]
    return max([start, *borders])


def _last_words(text: str, span: Span, letters: int) -> Span:
    """Return the last words of a span, as many as a short form of so many letters may stand for."""
    words = list(re.finditer(r"\S+", text[slice(*span)]))[-min(letters + 5, 2 * letters) :]
    return (span[0] + words[0].start() if words else span[1]), span[1]


def _is_short_form(surface: str) -> bool:
    return (
        _SHORTEST <= len(surface) <= _LONGEST
        and len(surface.split()) <= _MAX_SHORT_WORDS
        and surface[0].isalnum()
        and any(map(str.isalpha, surface))
    )


def _find_long_form(text: str, short: Span, candidate: Span) -> Span | None:
    """Find the shortest long form that ends where the candidate does; none: it has no such letters, or is no long form."""
    surface = text[slice(*short)]
    start = _match_letters(surface, text[slice(*candidate)])
    if start is None:
        return None
    long = (candidate[0] + start, candidate[1])
    return long if _is_long_form(text[slice(*long)], surface) else None


def _match_letters(short: str, candidate: str) -> int | None:
    """Match the letters and digits of a short form from right to left; return where the word of the first one begins."""
    place = len(candidate)
    for number in reversed([n for n, letter in enumerate(short) if letter.isalnum()]):
        place -= 1
        while place >= 0 and not (
            _fold(candidate[place]) == _fold(short[number])
            and (number > 0 or place == 0 or not candidate[place - 1].isalnum())
        ):
            place -= 1
        if place < 0:
            return None
    while place > 0 and not candidate[place - 1].isspace():
        place -= 1
    return place


def _fold(letter: str) -> str:
    lower = letter.lower()
    return _GREEK.get(lower, lower)


def _is_long_form(long: str, short: str) -> bool:
    letters = sum(map(str.isalnum, short))
    words = len(_WORDS.findall(long))
    has_short = f"{short} " in long or long.endswith(short)
    return len(long) > len(short) and not has_short and words <= min(2 * letters, letters + 5)
