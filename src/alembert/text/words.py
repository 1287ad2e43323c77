"""Find words in text, above all in Chinese, with exact offsets.

In: a text, a segmenter for Chinese and, optionally, a dictionary of terms. Out: ``(start, end)`` spans that hold every
character that is not white space, in order. Outside Chinese, a run of letters and digits is a word and every other
character is one of its own, as in BERT's pre-tokenizer.

A term of the dictionary is always one word: the leftmost term wins, then the longest, and the segmenter sees only the
text between terms, so that its words never overlap one. The trade-off: a term that overlaps an earlier one is lost, and
a short term may split a longer word that the dictionary lacks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from alembert.errors import BadFile, require
from alembert.text.sentences import CJK, Span

_MARKS = "\u0300-\u036f"
_WORD = re.compile(rf"([{CJK}]+)|[^\W_{CJK}]++(?:[{_MARKS}]++[^\W_{CJK}]*+)*+|\S")
_LETTER = re.compile(rf"[^\W_{CJK}]|[{_MARKS}]")


class Segmenter(Protocol):
    """Splits a run of Chinese characters into words."""

    def segment(self, text: str) -> Iterable[str]:
        """Return the words of `text`; joined, they are `text` again."""


class Dictionary:
    """Terms that are never split. One-character terms are left out, as nothing can split them."""

    def __init__(self, terms: Iterable[str]) -> None:
        self.terms = frozenset(term for term in terms if len(term) > 1)
        lengths: dict[str, set[int]] = defaultdict(set)
        for term in self.terms:
            lengths[term[:2]].add(len(term))
        self._lengths = {opening: sorted(sizes, reverse=True) for opening, sizes in lengths.items()}

    @classmethod
    def read(cls, path: Path) -> Dictionary:
        """Read a list of terms, one a line; what follows a tab (a frequency, say) is ignored.

        White space around a term, empty lines and a byte order mark do no harm.
        """
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            raise BadFile(f"There is no dictionary at {path}. Give a UTF-8 file with one term a line.") from None
        except UnicodeDecodeError as error:
            raise BadFile(
                f"The dictionary {path} is not UTF-8 (byte {error.start}). Convert it to UTF-8 and try again."
            ) from None
        return cls(line.partition("\t")[0].strip() for line in lines)

    def __contains__(self, term: str) -> bool:
        return term in self.terms

    def __len__(self) -> int:
        return len(self.terms)

    def find(self, text: str) -> Iterator[Span]:
        """Yield the terms in `text`: leftmost first, the longest at each place, never half of a Latin word.

        >>> list(Dictionary(["糖尿病", "糖尿病足"]).find("有糖尿病足"))
        [(1, 5)]
        """
        at, last = 0, len(text) - 1
        while at < last:
            lengths = self._lengths.get(text[at : at + 2])
            end = self._longest(text, at, lengths) if lengths else 0
            if end:
                yield at, end
            at = end or at + 1

    def _longest(self, text: str, at: int, lengths: list[int]) -> int:
        for end in (at + length for length in lengths):
            if text[at:end] in self.terms and not _cuts_word(text, at) and not _cuts_word(text, end):
                return end
        return 0


class DictionarySegmenter:
    """Forward maximum matching with a dictionary alone: no dependency, and no guess at unknown words."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary

    def segment(self, text: str) -> Iterator[str]:
        """Yield the dictionary's terms, and single characters between them."""
        at = 0
        for start, end in self._dictionary.find(text):
            yield from text[at:start]
            yield text[start:end]
            at = end
        yield from text[at:]


class JiebaSegmenter:
    """Segments with jieba's dictionary and its model of unknown words (rjieba). Create one per process."""

    def __init__(self) -> None:
        require("Cutting Chinese text into words", "rjieba")
        import rjieba

        self._jieba = rjieba.Jieba()

    def segment(self, text: str) -> Iterable[str]:
        words: list[str] = self._jieba.cut(text)
        return words


def find_words(text: str, segmenter: Segmenter, dictionary: Dictionary | None = None) -> list[Span]:
    """Return the spans of the words of `text`, the terms of `dictionary` whole.

    >>> segmenter = DictionarySegmenter(Dictionary(["血糖"]))
    >>> text = "血糖 7.2，2型糖尿病"
    >>> [text[start:end] for start, end in find_words(text, segmenter, Dictionary(["2型糖尿病"]))]
    ['血糖', '7', '.', '2', '，', '2型糖尿病']
    """
    spans: list[Span] = []
    at = 0
    for start, end in dictionary.find(text) if dictionary else ():
        spans += _words_between(text, at, start, segmenter)
        spans.append((start, end))
        at = end
    spans += _words_between(text, at, len(text), segmenter)
    return spans


def _words_between(text: str, start: int, end: int, segmenter: Segmenter) -> Iterator[Span]:
    for match in _WORD.finditer(text, start, end):
        if match.group(1) is None:
            yield match.span()
            continue
        at = match.start()
        for word in segmenter.segment(match.group(1)):
            yield at, at + len(word)
            at += len(word)


def _cuts_word(text: str, at: int) -> bool:
    """Whether a run of letters or digits continues across `at`."""
    if not 0 < at < len(text):
        return False
    return _LETTER.match(text, at) is not None and _LETTER.match(text, at - 1) is not None
