"""Replace words of a text, and map offsets to the new text.

`EditedText` applies edits, and maps every old offset that no edit covers to its new one, so that labels stay on their
words. An offset inside of a replaced span has no new one: edits must stay clear of borders (`find_editable_spans`), and
mapping such an offset is a bug.

`find_replaceable_words` finds the words that may be replaced: not function words of English and Chinese, numbers,
single letters and punctuation. Digits, Greek and hyphens are parts of words: "p53", "IL-6" and "TGF-β" are one word
each. A hyphen joins if one of its sides is short or has a digit; "insulin-dependent" is two words, each of which has
better substitutes than both together. Chinese words are those of the segmenter.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

from alembert.text.lexicon_compiler import CHINESE_FUNCTION_WORDS, FUNCTION_WORDS
from alembert.text.sentences import CJK, Span
from alembert.text.words import Segmenter


@dataclass(frozen=True, slots=True, order=True)
class TextEdit:
    """Replaces the characters from `start` to `end` by `text`; neither is empty."""

    start: int
    end: int
    text: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end or not self.text:
            raise ValueError("an edit replaces at least one character by at least one")


class EditedText:
    """A text after edits that do not overlap.

    >>> edited = EditedText("No fever in mice.", [TextEdit(3, 8, "rash"), TextEdit(12, 16, "rabbits")])
    >>> edited.text, edited.map_span((3, 16))
    ('No rash in rabbits.', (3, 18))
    """

    def __init__(self, text: str, edits: Iterable[TextEdit]) -> None:
        self._edits = sorted(edits)
        ends = [0, *(edit.end for edit in self._edits)]
        starts = [*(edit.start for edit in self._edits), len(text)]
        if any(start < end for start, end in zip(starts, ends, strict=True)):
            raise ValueError("edits overlap, or reach beyond the text")
        unchanged = [text[end:start] for start, end in zip(starts, ends, strict=True)]
        replacements = [*(edit.text for edit in self._edits), ""]
        self.text = "".join(part for pair in zip(unchanged, replacements, strict=True) for part in pair)

    @cached_property
    def _ends(self) -> list[int]:
        return [edit.end for edit in self._edits]

    @cached_property
    def _shifts(self) -> list[int]:
        """How far the text has moved after so many edits."""
        return [0, *accumulate(len(edit.text) - (edit.end - edit.start) for edit in self._edits)]

    def map_offset(self, at: int) -> int:
        """Return the new offset of a border between two characters."""
        passed = bisect_right(self._ends, at)
        if passed < len(self._edits) and self._edits[passed].start < at:
            raise ValueError("a border is inside of a stretch that was replaced")
        return at + self._shifts[passed]

    def map_span(self, span: Span) -> Span:
        """Return the new span, which grows and shrinks with the edits inside of it."""
        return self.map_offset(span[0]), self.map_offset(span[1])


def find_editable_spans(length: int, *, borders: Iterable[int] = (), fixed: Sequence[Span] = ()) -> list[Span]:
    """Split a text of this length at borders, without what is fixed; each of the spans may be edited by itself.

    >>> find_editable_spans(10, borders=[4], fixed=[(6, 8)])
    [(0, 4), (4, 6), (8, 10)]
    """
    cuts = sorted({0, length, *borders, *(border for span in fixed for border in span)})
    covered = _merge_spans(fixed)
    ends = [end for _, end in covered]
    return [
        (start, end)
        for start, end in pairwise(cuts)
        if not any(first < end for first, _ in covered[bisect_right(ends, start) :][:1])
    ]


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def are_isolated(spans: Sequence[Span]) -> list[bool]:
    """Check of each span that it does not overlap another one.

    >>> are_isolated([(0, 3), (2, 5), (7, 9)])
    [False, False, True]
    """
    starts, ends = sorted(start for start, _ in spans), sorted(end for _, end in spans)
    return [bisect_left(starts, end) - bisect_right(ends, start) == 1 for start, end in spans]


_PART: Final = rf"[^\W_{CJK}](?:[^\W_{CJK}]|[\u0300-\u036f])*"
_RUN: Final = re.compile(rf"([{CJK}]+)|{_PART}(?:[-\u2010\u2011]{_PART})*")
_PARTS: Final = re.compile(_PART)
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD_CHARACTER: Final = re.compile(rf"[^\W_{CJK}]|[\u0300-\u036f]")
_SHORT: Final = 2
FUNCTION_WORD_SET: Final = frozenset(FUNCTION_WORDS.split())
CHINESE_FUNCTION_WORD_SET: Final = frozenset(CHINESE_FUNCTION_WORDS.split())
_CHINESE: Final = re.compile(f"[{CJK}]+")


def is_chinese(word: str) -> bool:
    """Whether all of a word is written in Chinese characters."""
    return _CHINESE.fullmatch(word) is not None


def is_content_word(word: str) -> bool:
    """Whether a word may be replaced, or replace another.

    >>> [word for word in ("the", "p53", "10", "s", "糖尿病", "的") if is_content_word(word)]
    ['p53', '糖尿病']
    """
    if is_chinese(word):
        return word not in CHINESE_FUNCTION_WORD_SET
    return len(word) > 1 and _LETTER.search(word) is not None and word.lower() not in FUNCTION_WORD_SET


def is_replacement_word(piece: str) -> bool:
    """Whether a piece of a vocabulary is a word that may replace another; Chinese characters are not supported.

    >>> [piece for piece in ("aspirin", "##in", "[MASK]", "of", "il-6") if is_replacement_word(piece)]
    ['aspirin', 'il-6']
    """
    match = _RUN.fullmatch(piece)
    return match is not None and match[1] is None and is_content_word(piece)


def match_case(word: str, candidate: str) -> str:
    """Apply the case of a word to a candidate that has neither capitals nor digits.

    >>> match_case("Mice", "rats"), match_case("RNA", "dna"), match_case("mRNA", "dna"), match_case("Mice", "p53")
    ('Rats', 'DNA', 'dna', 'p53')
    """
    if not candidate.islower() or any(map(str.isdigit, candidate)):
        return candidate
    if word.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if word[0].isupper() and word[1:].islower() else candidate


def find_replaceable_words(text: str, stretch: Span, segmenter: Segmenter) -> list[Span]:
    """Find the words of a span of a text that may be replaced, without parts of words.

    >>> from alembert.text.words import Dictionary, DictionarySegmenter
    >>> text = "IL-6 and insulin-dependent growth by TGF-β (10 mg)"
    >>> spans = find_replaceable_words(text, (0, len(text)), DictionarySegmenter(Dictionary(())))
    >>> [text[start:end] for start, end in spans]
    ['IL-6', 'insulin', 'dependent', 'growth', 'TGF-β', 'mg']
    """
    return [
        span
        for span in _words(text, stretch, segmenter)
        if is_content_word(text[slice(*span)]) and not _is_part(text, span)
    ]


def _words(text: str, stretch: Span, segmenter: Segmenter) -> Iterator[Span]:
    for match in _RUN.finditer(text, *stretch):
        if match[1] is None:
            yield from _split_at_hyphens(text, match.span())
            continue
        at = match.start()
        for word in segmenter.segment(match[1]):
            yield at, at + len(word)
            at += len(word)


def _split_at_hyphens(text: str, run: Span) -> Iterator[Span]:
    """Split a run at the hyphens between two long parts."""
    start, before = run[0], ""
    for part in _PARTS.finditer(text, *run):
        if before and not _is_sign(before) and not _is_sign(part[0]):
            yield start, part.start() - 1
            start = part.start()
        before = part[0]
    yield start, run[1]


def _is_sign(part: str) -> bool:
    return len(part) <= _SHORT or any(character.isdigit() for character in part)


def _is_part(text: str, span: Span) -> bool:
    """Whether letters or digits continue where a word ends, because the span does not end between words."""
    start, end = span
    if is_chinese(text[start:end]):
        return False
    return _WORD_CHARACTER.match(text, end) is not None or (
        start > 0 and _WORD_CHARACTER.match(text, start - 1) is not None
    )
