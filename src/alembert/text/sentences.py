"""Find sentences in English biomedical and in Chinese text, with exact offsets.

In goes a string, out come ``(start, end)`` spans: in order, never overlapping, without surrounding white space, and
together holding every character that is not white space. Nothing is normalised, so ``text[start:end]`` is the
sentence as it was written.

One compiled expression finds the places where a sentence could end; small functions then look at a few characters on
either side. Both are bounded, so the time grows linearly with the text, whatever the text is. The trade-off: rules
without training are fast and can be explained, but they know nothing of meaning ("... in group A. Patients ..." is a
guess). Where the evidence is thin, two sentences stay together rather than one being cut in half.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from alembert.errors import BadSetting
from alembert.text.abbreviations import is_plain, opens, period_ends, starts

Span = tuple[int, int]

CHINESE_SHARE = 0.15
"""A Chinese character says as much as two or three letters: far less than half of them makes a text Chinese."""
SHORT_LINE = 40
"""No paragraph is wrapped this narrow: a line of at most so many characters ends where its author wanted it to."""
LONGEST_BRACKET = 300
"""A bracket that is open for longer was never closed."""
NEARBY = 32
"""How many characters on either side of a possible border are read."""

CJK = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and kana, as the inside of a character class."""
LINE_ENDS = "\n\r\f\u2028\u2029"
WIDE_ENDS = "。！？｡"
ENGLISH_ENDS = ".!?…" + WIDE_ENDS
CHINESE_ENDS = ENGLISH_ENDS + "；"
CLOSERS = "'\"’”»›)]}」』）》】〕〉］｝"
OPENERS = "'\"‘“«‹([{「『（《【〔〈［｛"
_BEFORE_SENTENCE = OPENERS + " "  # tokenised text has spaces around its quotes
_BRACKETS = (("(", ")"), ("[", "]"))
_WIDE_BRACKETS = (("（", "）"), ("(", ")"), ("《", "》"), ("【", "】"))

# Every repeat is possessive and a run of ends is entered at its first character only, so nothing is read twice.
# Group 1: a reference number follows ("cells.12 The"); 2: white space; 3: the next sentence ("disease.The").
_ENGLISH = re.compile(
    rf"""[{ENGLISH_ENDS}{LINE_ENDS}](?:
        (?<=[{LINE_ENDS}])\s*+
      | (?<![{ENGLISH_ENDS}]{{2}})[{ENGLISH_ENDS}]*+[{re.escape(CLOSERS)}]*+(?:
            ((?:[ ]?\[)?\d{{1,3}}(?:[,–-][ ]?\d{{1,3}}){{0,9}}+\]?+)\s++(?=[A-Z"“])
          | ()\s++
          | ()(?=[A-Z\u2e80-\uffff])
        )
    )""",
    re.VERBOSE,
)
_CHINESE = re.compile(
    rf"""[{CHINESE_ENDS}{LINE_ENDS}](?:
        (?<=[{LINE_ENDS}])\s*+
      | [{CHINESE_ENDS}]*+[{re.escape(CLOSERS)}]*+()\s*+
    )""",
    re.VERBOSE,
)
_REFERENCE, _SPACED = 1, 2
_CJK = re.compile(f"[{CJK}]+")
_PERHAPS_CJK = re.compile("[\u3005-\U0003ffff]")  # one range: three times as fast as the exact search
_WORD_AND_GAP = re.compile(r"[A-Z][A-Za-z]*[\s,:]|[\u2e80-\uffff]")
_ITEM = re.compile(r"(?:\(?\d{1,2}[.)]|[-•*–—·]|\([a-z]\))\s")


def split(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of `text`; without a language, its share of Chinese characters decides.

    >>> text = "E. coli grew (Fig. 2). No growth at 3.5 mM."
    >>> [text[start:end] for start, end in split(text)]
    ['E. coli grew (Fig. 2).', 'No growth at 3.5 mM.']
    """
    if language not in (None, "en", "zh"):
        raise BadSetting(f"There are no sentence rules for the language {language!r}. Use 'en', 'zh' or None.")
    if (language or language_of(text)) == "zh":
        return _split(text, _CHINESE, _chinese_end)
    return _split(text, _ENGLISH, _english_end)


def language_of(text: str) -> str:
    """Return ``"zh"`` if Chinese characters make up enough of a text, else ``"en"``."""
    if text.isascii() or not _PERHAPS_CJK.search(text):
        return "en"
    chinese = sum(map(len, _CJK.findall(text)))
    return "zh" if chinese > CHINESE_SHARE * len(text) else "en"


def _split(text: str, candidates: re.Pattern[str], end_at: Callable[[str, int, re.Match[str]], int]) -> list[Span]:
    """Cut at the candidates for which `end_at` tells an end; it answers 0 for none."""
    spans: list[Span] = []
    start = len(text) - len(text.lstrip())
    for match in candidates.finditer(text, start):
        if match.end() < len(text) and (end := end_at(text, start, match)):
            spans.append((start, end))
            start = end
            while text[start].isspace():
                start += 1
    if start < len(text):
        spans.append((start, _rstrip(text, len(text))))
    return spans


def _rstrip(text: str, end: int) -> int:
    while text[end - 1].isspace():
        end -= 1
    return end


def _english_end(text: str, start: int, match: re.Match[str]) -> int:
    stop, after, group = match.start(), match.end(), match.lastindex
    if group is None:
        end = _rstrip(text, stop)
        return end if _line_ends(text, start, end, after) else 0
    end = match.end(group)
    if stop == start:
        return 0
    if after - end > 1 and _is_paragraph(text[end:after]):
        return end
    if text[stop] in WIDE_ENDS:
        return end
    if group == _SPACED and end - stop == 1 and text[stop] == ".":
        end = _period_end(text, start, stop, after)
    elif not _opens_after_mark(text, start, match):
        return 0
    return 0 if not end or _inside(text, start, end, _BRACKETS) else end


def _period_end(text: str, start: int, stop: int, after: int) -> int:
    """Judge a plain period followed by white space."""
    words = text[max(start, stop - NEARBY) : stop].split()
    following = text[after : after + NEARBY]
    bare = following.lstrip(_BEFORE_SENTENCE)
    if not words or not period_ends(words, bare, len(bare) < len(following)):
        return 0
    return _before_item(text, start, words[-1], stop) or stop + 1


def _before_item(text: str, start: int, word: str, stop: int) -> int:
    """Return the end of item 1 in "1. Aspirin 2. Insulin" if the period at `stop` is that of item 2."""
    if len(word) > 2 or not word.isdecimal() or not text.startswith(f"{int(word) - 1}. ", start):
        return 0
    return _rstrip(text, text.rindex(word, start, stop))


def _opens_after_mark(text: str, start: int, match: re.Match[str]) -> bool:
    """Judge every other candidate: question marks, ellipses, closed quotes, glued numbers and glued sentences."""
    following = text[match.end() : match.end() + NEARBY].lstrip(_BEFORE_SENTENCE)
    if match.lastindex == _SPACED:
        return opens(following)
    words = text[max(start, match.start() - NEARBY) : match.start()].split()
    plain = bool(words) and is_plain(words[-1])
    if match.lastindex == _REFERENCE:
        return plain
    if _WORD_AND_GAP.match(following) is None:
        return False
    return plain or (starts(following) and not following[:2].isupper())  # ABSTRACT.METHODS: is one heading


def _inside(text: str, start: int, end: int, brackets: tuple[tuple[str, str], ...]) -> bool:
    """Tell whether `end` lies inside a bracket that is closed soon after."""
    sentence = text[max(start, end - LONGEST_BRACKET) : end]
    for opening, closing in brackets:
        if opening in sentence and sentence.count(opening) > sentence.count(closing):
            closed = text.find(closing, end, end + LONGEST_BRACKET)
            if closed >= 0 and text.find(opening, end, closed) < 0:
                return True
    return False


def _is_paragraph(gap: str) -> bool:
    return gap.count("\n") > 1 or gap.count("\r") > 1 or "\f" in gap or "\u2029" in gap


def _line_ends(text: str, start: int, end: int, after: int) -> bool:
    """Tell whether a line without a full stop ends a sentence: a heading, a list item, the last line of a paragraph."""
    if _is_paragraph(text[end:after]) or text[end - 1] == ":" or _ITEM.match(text, after):
        return True
    if end - start > SHORT_LINE and text.rfind("\n", end - SHORT_LINE, end) < 0:
        return False
    first = text[after]
    return (first.isalnum() and not first.islower()) or first in OPENERS


def _chinese_end(text: str, start: int, match: re.Match[str]) -> int:
    stop, end, after = match.start(), match.end(1), match.end()
    if end < 0:
        return _rstrip(text, stop)
    if stop == start:
        return 0
    if any(mark in LINE_ENDS for mark in text[end:after]):
        return end
    if text[after] in "，、,；：:;。" or not _is_chinese_end(text, start, stop, after):
        return 0
    if _inside(text, start, end, _WIDE_BRACKETS):
        return 0
    return _before_open_quote(text, start, stop, end)


def _is_chinese_end(text: str, start: int, stop: int, after: int) -> bool:
    """Judge a mark in Chinese text; a lone period may also belong to a number, a list or a Latin abbreviation."""
    if text[stop] != "." or text[stop + 1] == ".":
        return True
    before = text[stop - 1]
    if not before.isascii():
        return True
    if text[stop + 1].isspace():
        return _period_end(text, start, stop, after) > 0
    return before.isalpha() and not text[stop + 1].isascii()


def _before_open_quote(text: str, start: int, stop: int, end: int) -> int:
    """Give a straight quote back to the next sentence if it opens there: 他说。"好" has an even number before it.

    Called at real borders only, so that each character is counted once.
    """
    if text[end - 1] == '"' and text.count('"', start, stop) % 2 == 0:
        return end - 1
    return end
