"""Find the parts of a text that say nothing about its subject.

In: a text. Out: the spans to take out, by kind: machine-made headings ("ABSTRACT.METHODS:" on a line of its own, and
the "TITLE:" before a title), copyright notices ("© 2020 Elsevier Ltd. All rights reserved."), and publishers' notes
("The pre-publication history for this paper can be accessed here: ..."). A heading's blank lines stay, so that a border
between sections remains where it stood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADING = re.compile(r"^(?:TITLE|ABSTRACT|BODY)(?:[.:][^\n]*)?:[ \t]*$\n?|^TITLE:[ \t]*", re.MULTILINE)
_COPYRIGHT_SIGNS = ("©", "(c) ", "opyright", "OPYRIGHT", "ights reserved", "ights Reserved")
_COPYRIGHT = re.compile(
    r"""(?:^|(?<=[.!?)\]”"])[ ]+|(?<=[.!?)\]”"]))          # a notice starts a line or follows a sentence
        (?:
          \(?PsycINFO[ ]Database[ ]Record[ ]\(c\)[ ][^\n]{0,80}?all[ ]rights[ ]reserved\)?\.?
        | (?:Copyright[ ,:]*)?(?:©|\(c\)|Copyright)[ ]*(?:Copyright[ ]*)?(?:\(c\)[ ]*)?
          (?:(?:19|20)\d\d\b(?![ ](?!by\b)(?-i:[a-z]))|The[ ]Authors?\b)[^\n]{0,200}
        | (?:This[ ]article[ ]is[ ]protected[ ]by[ ]copyright\.[ ]*)?All[ ]rights[ ]reserved\.?
        | This[ ]article[ ]is[ ]protected[ ]by[ ]copyright\.?
        )[ \t]*$""",
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_NOTE_SIGNS = ("pre-publication history", "upplementary material", "upplemental material")
_NOTE = re.compile(
    r"""^[ ]*(?:
          The[ ]pre-publication[ ]history[ ]for[ ]this[ ]paper[ ]can[ ]be[ ]accessed[ ]here:?[^\n]{0,120}
        | (?:Electronic[ ]supplementary[ ]material[ ]*)?The[ ]online[ ]version[ ]of[ ]this[ ]article[ ]\([^)\n]*\)
          [ ]contains[ ]supplementary[ ]material,?[ ]which[ ]is[ ]available[ ]to[ ]authori[sz]ed[ ]users\.?
        | (?:Supplementary|Supplemental)[ ]material[ ]is[ ]available[ ](?:for[ ]this[ ]article|online)\.?
        )[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)


def headings(text: str) -> Iterator[tuple[int, int]]:
    """Give the spans of machine-made headings."""
    return (found.span() for found in _HEADING.finditer(text))


def copyright_notices(text: str) -> Iterator[tuple[int, int]]:
    """Give the spans of copyright notices, each at the end of a line."""
    return _guarded(_COPYRIGHT, _COPYRIGHT_SIGNS, text)


def publisher_notes(text: str) -> Iterator[tuple[int, int]]:
    """Give the spans of publishers' notes that take a whole line."""
    return _guarded(_NOTE, _NOTE_SIGNS, text)


def _guarded(pattern: re.Pattern[str], signs: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """Try a slow pattern only on the lines where one of its signs stands."""
    done = 0
    for place in sorted(place for sign in signs for place in _places(sign, text)):
        if place < done:
            continue
        start = text.rfind("\n", done, place) + 1 or done
        end = text.find("\n", place)
        done = len(text) if end < 0 else end
        match = pattern.search(text, start, done)
        if match:
            yield match.span()


def _places(sign: str, text: str) -> Iterator[int]:
    place = text.find(sign)
    while place >= 0:
        yield place
        place = text.find(sign, place + len(sign))
