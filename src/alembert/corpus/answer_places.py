"""Where the right answer to a question stands in its passage: as the file says, or where it is found.

In: the text of an answer, the offset that the file states for it (or none), the passage. Out: the spans of the passage
that it may be, and how they were come by. An offset that is right is taken. A wrong one is mended if the text occurs once
in the passage, or once nearer to the offset than anywhere else. An answer without an offset is wherever its text stands
between words; which of several places was meant, nobody knows, so all of them are given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Span = tuple[int, int]
How = Literal["stated", "mended", "looked up", "unclear", "absent"]


@dataclass(frozen=True, slots=True)
class Places:
    """Spans of a passage that are the answer; several if the file does not say which, none if it is not known."""

    spans: tuple[Span, ...]
    how: How


def places_of(text: str, start: int | None, passage: str) -> Places:
    """Find an answer in its passage.

    >>> places_of("fever", 3, "No fever."), places_of("fever", 0, "No fever.")
    (Places(spans=((3, 8),), how='stated'), Places(spans=((3, 8),), how='mended'))
    """
    if start is not None and start >= 0 and text and passage.startswith(text, start):
        return Places((_trimmed(text, start),), "stated")
    found = _occurrences(text, passage)
    if not found:
        return Places((), "absent")
    if start is None:
        return Places(tuple(found), "looked up")
    nearest = _nearest(found, start, len(passage))
    return Places((), "unclear") if nearest is None else Places((nearest,), "mended")


def _trimmed(text: str, start: int) -> Span:
    begin = start + len(text) - len(text.lstrip())
    return begin, begin + len(text.strip())


def _nearest(found: list[Span], start: int, length: int) -> Span | None:
    if len(found) == 1:
        return found[0]
    ranked = sorted(found, key=lambda span: abs(span[0] - start))
    is_clear = 0 <= start < length and abs(ranked[0][0] - start) < abs(ranked[1][0] - start)
    return ranked[0] if is_clear else None


def _occurrences(text: str, passage: str) -> list[Span]:
    """Find a text as it is written; where it is not, with other white space or in another case."""
    words = text.split()
    if not words:
        return []
    exact = _between_words(re.escape(text.strip()), text.strip())
    loose = _between_words(r"\s+".join(map(re.escape, words)), text.strip())
    patterns = (re.compile(exact), re.compile(loose), re.compile(loose, re.IGNORECASE))
    for pattern in patterns:
        if found := [match.span() for match in pattern.finditer(passage)]:
            return found
    return []


def _between_words(pattern: str, text: str) -> str:
    """Let a pattern match whole words alone, where words are written apart: Chinese has no such borders."""
    before = r"(?<![A-Za-z0-9])" if _is_plain(text[0]) else ""
    after = r"(?![A-Za-z0-9])" if _is_plain(text[-1]) else ""
    return f"{before}{pattern}{after}"


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()
