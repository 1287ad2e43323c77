"""Which words of a text may be replaced by others: the words that carry its meaning.

In: a text and a stretch of it. Out: the spans of its words, without function words of English and Chinese, numbers,
single letters and punctuation. Digits, Greek and hyphens are parts of words: "p53", "IL-6" and "TGF-β" are one word each.
A hyphen joins where one of its sides is short or has a digit; "insulin-dependent" is two words, each of which has better
substitutes than both together. Chinese words are those of the segmenter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from alembert.text.sentences import CJK, Span
from alembert.text.stop_words import CHINESE_FUNCTION_WORDS, FUNCTION_WORDS
from alembert.text.words import Segmenter

_PART: Final = rf"[^\W_{CJK}](?:[^\W_{CJK}]|[\u0300-\u036f])*"
_RUN: Final = re.compile(rf"([{CJK}]+)|{_PART}(?:[-\u2010\u2011]{_PART})*")
_PARTS: Final = re.compile(_PART)
_LETTER: Final = re.compile(r"[^\W\d_]")
_GLUE: Final = re.compile(rf"[^\W_{CJK}]|[\u0300-\u036f]")
_SHORT: Final = 2
STOPPED: Final = frozenset(FUNCTION_WORDS.split())
CHINESE_STOPPED: Final = frozenset(CHINESE_FUNCTION_WORDS.split())
_CHINESE: Final = re.compile(f"[{CJK}]+")


def is_chinese(word: str) -> bool:
    """Tell whether a word is written in Chinese characters, all of it."""
    return _CHINESE.fullmatch(word) is not None


def carries_meaning(word: str) -> bool:
    """Tell whether a word may be replaced, or replace another.

    >>> [word for word in ("the", "p53", "10", "s", "糖尿病", "的") if carries_meaning(word)]
    ['p53', '糖尿病']
    """
    if is_chinese(word):
        return word not in CHINESE_STOPPED
    return len(word) > 1 and _LETTER.search(word) is not None and word.lower() not in STOPPED


def is_word(piece: str) -> bool:
    """Tell whether a piece of a vocabulary is a word that may replace another; Chinese characters are none yet.

    >>> [piece for piece in ("aspirin", "##in", "[MASK]", "of", "il-6") if is_word(piece)]
    ['aspirin', 'il-6']
    """
    found = _RUN.fullmatch(piece)
    return found is not None and found[1] is None and carries_meaning(piece)


def in_case_of(word: str, candidate: str) -> str:
    """Write a candidate that has neither capitals nor digits as the word that it replaces is written.

    >>> in_case_of("Mice", "rats"), in_case_of("RNA", "dna"), in_case_of("mRNA", "dna"), in_case_of("Mice", "p53")
    ('Rats', 'DNA', 'dna', 'p53')
    """
    if not candidate.islower() or any(map(str.isdigit, candidate)):
        return candidate
    if word.isupper():
        return candidate.upper()
    return candidate[0].upper() + candidate[1:] if word[0].isupper() and word[1:].islower() else candidate


def replaceable(text: str, stretch: Span, segmenter: Segmenter) -> list[Span]:
    """Find the words of a stretch of a text that may be replaced; a part of a word is none.

    >>> from alembert.text.words import Dictionary, DictionarySegmenter
    >>> text = "IL-6 and insulin-dependent growth by TGF-β (10 mg)"
    >>> spans = replaceable(text, (0, len(text)), DictionarySegmenter(Dictionary(())))
    >>> [text[start:end] for start, end in spans]
    ['IL-6', 'insulin', 'dependent', 'growth', 'TGF-β', 'mg']
    """
    return [
        span
        for span in _words(text, stretch, segmenter)
        if carries_meaning(text[slice(*span)]) and not _is_part(text, span)
    ]


def _words(text: str, stretch: Span, segmenter: Segmenter) -> Iterator[Span]:
    for match in _RUN.finditer(text, *stretch):
        if match[1] is None:
            yield from _joined(text, match.span())
            continue
        at = match.start()
        for word in segmenter.segment(match[1]):
            yield at, at + len(word)
            at += len(word)


def _joined(text: str, run: Span) -> Iterator[Span]:
    """Cut a run at the hyphens between two long parts."""
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
    """Tell whether letters or digits go on where a word ends, because the stretch does not end between words."""
    start, end = span
    if is_chinese(text[start:end]):
        return False
    return _GLUE.match(text, end) is not None or (start > 0 and _GLUE.match(text, start - 1) is not None)
