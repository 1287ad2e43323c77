"""Unicode normalisation with an alignment between the original and the normalised text.

In: a text. Out: the normalised ("plain") text, and an alignment that maps spans (entities, sentences) to the plain text
and back. Line ends become "\\n", odd spaces and tabs become spaces, soft hyphens, zero-width and control characters are
removed, and the rest is composed (NFC) or also simplified (NFKC: "ﬁ" becomes "fi", "²" becomes "2").

The alignment lists the edits instead of a number per character. Most text needs no change at all, which two searches in
C detect.

>>> plain = normalise("IL\\u00ad-6\\u00a0is  up", collapse_spaces=True)
>>> plain.text, plain.to_plain(3, 5), plain.to_original(0, 4)
('IL-6 is up', (2, 4), (0, 5))
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, groupby
from typing import Literal

UnicodeForm = Literal["NFC", "NFKC"]

_SPACES = "\t\v\f\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_LINE_ENDS = "\u0085\u2028\u2029"
_DROPPED = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff"
)
_SPECIAL_CHARACTERS = re.compile(f"[\r{_SPACES}{_LINE_ENDS}{_DROPPED}]")
_ANY_LINE_END = re.compile(f"\r\n?|[{_LINE_ENDS}]")
_ANY_SPACE = re.compile(f"[{_SPACES}]")
_ANY_DROPPED = re.compile(f"[{_DROPPED}]+")


@dataclass(frozen=True)
class NormalisedText:
    """A normalised text, and its alignment with the original.

    The four sequences describe the edits that did not keep characters one to one, in order: where each begins and ends
    in the original and in the plain text. Between edits, the n-th characters belong together.
    """

    text: str
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    plain_starts: tuple[int, ...] = ()
    plain_ends: tuple[int, ...] = ()

    def to_plain(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the original to the plain text; a span that cuts an edit includes the whole of it."""
        return _map_span((start, end), self.starts, self.ends, self.plain_starts, self.plain_ends)

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the plain text to the original; what was removed at its borders stays outside."""
        return _map_span((start, end), self.plain_starts, self.plain_ends, self.starts, self.ends)


def normalise(text: str, form: UnicodeForm = "NFC", *, collapse_spaces: bool = False) -> NormalisedText:
    """Normalise a text. With `collapse_spaces`, several spaces, as a lost formula leaves them, become one."""
    if _is_plain(text, form) and not (collapse_spaces and "  " in text):
        return NormalisedText(text)
    pieces: list[str] = []
    edits: list[tuple[int, int, int, int]] = []
    done = length = 0
    for start, end in _changing_spans(text, form, collapse_spaces):
        before = text[start:end]
        after = _plain(before, form, collapse_spaces)
        pieces += (text[done:start], after)
        length += start - done + len(after)
        done = end
        if len(after) != len(before) or any(_width(char, form) != 1 for char in before):
            edits.append(_trim_edit(before, after, done, length))
    pieces.append(text[done:])
    return NormalisedText("".join(pieces), *zip(*edits, strict=True))


def remove_spans(text: str, spans: Sequence[tuple[int, int]]) -> NormalisedText:
    """Remove spans, which are in order and do not overlap, from a text.

    >>> remove_spans("TITLE: Gout", [(0, 7)]).to_original(0, 4)
    (7, 11)
    """
    spans = [span for span in spans if span[0] < span[1]]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    parts = [text[start:end] for start, end in zip([0, *ends], [*starts, len(text)], strict=True)]
    offsets = tuple(accumulate(map(len, parts[:-1])))
    return NormalisedText("".join(parts), tuple(starts), tuple(ends), offsets, offsets)


def _is_plain(text: str, form: UnicodeForm) -> bool:
    return unicodedata.is_normalized(form, text) and not _SPECIAL_CHARACTERS.search(text)


def _plain(text: str, form: UnicodeForm, collapse_spaces: bool) -> str:
    text = _ANY_SPACE.sub(" ", _ANY_LINE_END.sub("\n", text))
    text = unicodedata.normalize(form, _ANY_DROPPED.sub("", text))
    return re.sub(" {2,}", " ", text) if collapse_spaces else text


@lru_cache(maxsize=1 << 14)
def _width(char: str, form: UnicodeForm) -> int:
    """Count the characters that one becomes: adjacent losses and gains may add up to the same length."""
    return len(_plain(char, form, collapse_spaces=False))


def _trim_edit(before: str, after: str, end: int, plain_end: int) -> tuple[int, int, int, int]:
    """Narrow an edit, given by its ends, to what differs, but never to nothing of the original."""
    start, plain_start = end - len(before), plain_end - len(after)
    shortest = min(len(before) - 1, len(after))
    head = next((i for i in range(shortest) if before[i] != after[i]), shortest)
    shortest -= head
    tail = next((i for i in range(shortest) if before[-1 - i] != after[-1 - i]), shortest)
    return start + head, end - tail, plain_start + head, plain_end - tail


def _map_span(
    span: tuple[int, int],
    starts: Sequence[int],
    ends: Sequence[int],
    other_starts: Sequence[int],
    other_ends: Sequence[int],
) -> tuple[int, int]:
    start, end = span
    edit = bisect_right(starts, start) - 1
    first = start
    if edit >= 0:
        first = other_starts[edit] if start < ends[edit] else other_ends[edit] + start - ends[edit]
    if end <= start:
        return first, first
    edit = bisect_left(starts, end) - 1
    last = end if edit < 0 else other_ends[edit] + max(0, end - ends[edit])
    return first, max(first, last)


def _changing_spans(text: str, form: UnicodeForm, collapse_spaces: bool) -> Iterator[tuple[int, int]]:
    """Find the spans that may change, each wide enough to be normalised independently of its neighbours."""
    first = last = 0
    for match in _changing_pattern(form, collapse_spaces).finditer(text):
        start, end = match.span()
        if text.startswith("\r\n", end - 1):
            end += 1
        if collapse_spaces:
            start, end = _with_spaces(text, start, end)
        start = max(0, start - 1)  # accents may join the character before them
        if start >= last:
            if last:
                yield first, last
            first = start
        last = max(last, end)
    if last:
        yield first, last


def _with_spaces(text: str, start: int, end: int) -> tuple[int, int]:
    while start > 0 and text[start - 1] == " ":
        start -= 1
    while text.startswith(" ", end):
        end += 1
    return start, end


@cache
def _changing_pattern(form: UnicodeForm, collapse_spaces: bool) -> re.Pattern[str]:
    unstable = f"[\r{_SPACES}{_LINE_ENDS}{_DROPPED}{_unstable(form)}]+"
    return re.compile(f"{unstable}| {{2,}}" if collapse_spaces else unstable)


@cache
def _unstable(form: UnicodeForm) -> str:
    """Collect, as ranges for a regular expression, the characters that normalisation may change or join.

    All above U+FFFF are included: `re` is fast on sets of 16-bit characters only, and checking more does no harm.
    """
    characters = [chr(code) for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000]
    joining = {char for base in characters for char in unicodedata.normalize("NFD", base)[1:]}
    changing = [
        ord(char)
        for char in characters
        if char in joining or unicodedata.combining(char) or unicodedata.normalize(form, char) != char
    ]
    return "".join(_ranges(changing)) + "\U00010000-\U0010ffff"


def _ranges(codes: list[int]) -> list[str]:
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    return [f"{chr(run[0])}-{chr(run[-1])}" for run in runs]
