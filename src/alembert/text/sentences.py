"""Split English biomedical and Chinese text into sentences, with exact offsets.

In: a string. Out: ``(start, end)`` spans: in order, never overlapping, without surrounding white space, and together
holding every character that is not white space. Nothing is normalised, so ``text[start:end]`` is the original sentence.

One compiled expression finds the candidates for the end of a sentence; small functions then examine a few characters on
either side. Both are bounded, so the time grows linearly with any text. The trade-off: rules without training are fast
and can be explained, but know nothing of meaning ("... in group A. Patients ..." is a guess). Where the evidence is
weak, two sentences stay together rather than one being split.

Whether an English period ends a sentence depends on the words around it. The sets below hold lower-case words without
their last period. A word belongs in one only if a period after it is more frequent inside a sentence than at its end:
every further word hides some real border.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from alembert.errors import BadSetting


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

LAST_ONLY_BEFORE_OPENER = _words(
    """
    al inc ltd co corp dept univ jr sr bros proc natl acad sci biol chem genet hum mol med am assoc surv mutat
    biochem biophys physiol pharmacol immunol pathol clin lett rev ann eur int intl inst soc microbiol neurosci
    """
)
"""Followed by a name or a number more often than by a sentence; only a word of `SENTENCE_OPENERS` makes a border."""

SENTENCE_OPENERS = _words(
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

_ABBREVIATIONS = NEVER_LAST | NOT_BEFORE_NUMBER | LAST_ONLY_BEFORE_OPENER
_OPERATORS = "=<>≤≥~≈±×(-–,;:/"
_MUTATION_PREFIXES = "cgmnpr"  # c. 38T>C and p. Arg22Cys, with a space
_AFTER_CHINESE = re.compile(r".*[\u2e80-\uffff](?=[A-Za-z])")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_ROMAN_OR_NUMBER = re.compile(r"\d{1,3}|[IVXivx]{1,5}|\d{1,2}(?:\.\d{1,2})+")
# mRNA, p53, c-Myc, beta-Glucuronidase; p-values, n = 5, p<0.05; (a) Cells
_SMALL_OPENING = re.compile(r"[^\W\d_A-Z]{1,7}-?[A-Z0-9]|[^\W\d_A-Z](?:-\w|\s?[<=>≤≥])|[a-z]{1,4}\)\s")


def period_ends_sentence(words: list[str], following: str, bracketed: bool) -> bool:
    """Decide whether the period after `words`, the last few of a sentence, ends it.

    `following` is the text after the period without white space and opening brackets or quotes; `bracketed` is True if
    there were any.

    >>> period_ends_sentence(["see", "Fig"], "2 and 3", False), period_ends_sentence(["the", "cells"], "The next", False)
    (False, True)
    """
    word = _bare(words[-1])
    if not can_start_sentence(following):
        return False
    first = following[:1]
    key = word.lower()
    if key in _ABBREVIATIONS:
        return _ends_after_abbreviation(key, following, bracketed)
    if len(word) <= 1:
        return word != "" and _ends_after_letter(words, word, following)
    if "." in word and _DOTTED.fullmatch(word):
        return starts_with_sentence_opener(following) or (word.islower() and first.isupper())
    if len(words) == 1 and _ROMAN_OR_NUMBER.fullmatch(word):
        return False
    return not (first.isdigit() and word[-1] in _OPERATORS)


def _bare(word: str) -> str:
    """Strip opening brackets and quotes, and the Chinese that a Latin word may follow without a space."""
    word = word.lstrip("([{\"'“‘")
    return word if word.isascii() else _AFTER_CHINESE.sub("", word)


def can_start_sentence(following: str) -> bool:
    """Whether a text can be the beginning of a sentence."""
    first = following[:1]
    if first.islower():
        return _SMALL_OPENING.match(following) is not None or _opens_with_particle(following)
    return first.isalnum() or first in "~$•"


def starts_with_sentence_opener(following: str) -> bool:
    """Whether a text begins with a word that opens sentences and is seldom a name."""
    words = following.split(maxsplit=1)
    return bool(words) and words[0].rstrip(",:;").lower() in SENTENCE_OPENERS


def is_ordinary_word(word: str) -> bool:
    """Whether a word is ordinary enough to end a sentence even without white space after its period.

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
    return not bracketed and starts_with_sentence_opener(following)


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
    if starts_with_sentence_opener(following):
        return True
    is_name = before.isalpha() and before.islower() and len(before) > 2 and before not in BEFORE_INITIAL
    return is_name and following[1:2] != "."


Span = tuple[int, int]

MIN_CHINESE_SHARE = 0.15
"""A Chinese character stands for two or three letters: far less than half of them makes a text Chinese."""
SHORT_LINE = 40
"""No paragraph is wrapped this narrow: the end of a shorter line is intended."""
LONGEST_BRACKET = 300
"""A bracket that is open for longer was never closed."""
NEARBY = 32
"""Characters on either side of a possible border that are examined."""

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

# Every repeat is possessive and a run of ends is entered at its first character only, so nothing is matched twice.
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


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the spans of the sentences of `text`; without a language, its share of Chinese characters decides.

    >>> text = "E. coli grew (Fig. 2). No growth at 3.5 mM."
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['E. coli grew (Fig. 2).', 'No growth at 3.5 mM.']
    """
    if language not in (None, "en", "zh"):
        raise BadSetting(f"There are no sentence rules for the language {language!r}. Use 'en', 'zh' or None.")
    if (language or guess_language(text)) == "zh":
        return _split(text, _CHINESE, _chinese_end)
    return _split(text, _ENGLISH, _english_end)


def guess_language(text: str) -> str:
    """Return ``"zh"`` if Chinese characters make up enough of a text, else ``"en"``."""
    if text.isascii() or not _PERHAPS_CJK.search(text):
        return "en"
    chinese = sum(map(len, _CJK.findall(text)))
    return "zh" if chinese > MIN_CHINESE_SHARE * len(text) else "en"


def _split(text: str, candidates: re.Pattern[str], end_at: Callable[[str, int, re.Match[str]], int]) -> list[Span]:
    """Split at the candidates for which `end_at` returns an end; 0 means none."""
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
    """Return the end of the sentence at a plain period followed by white space; 0 if it does not end."""
    words = text[max(start, stop - NEARBY) : stop].split()
    following = text[after : after + NEARBY]
    bare = following.lstrip(_BEFORE_SENTENCE)
    if not words or not period_ends_sentence(words, bare, len(bare) < len(following)):
        return 0
    return _before_item(text, start, words[-1], stop) or stop + 1


def _before_item(text: str, start: int, word: str, stop: int) -> int:
    """Return the end of item 1 in "1. Aspirin 2. Insulin" if the period at `stop` is that of item 2."""
    if len(word) > 2 or not word.isdecimal() or not text.startswith(f"{int(word) - 1}. ", start):
        return 0
    return _rstrip(text, text.rindex(word, start, stop))


def _opens_after_mark(text: str, start: int, match: re.Match[str]) -> bool:
    """Decide on other candidates: question marks, ellipses, closed quotes, glued numbers and glued sentences."""
    following = text[match.end() : match.end() + NEARBY].lstrip(_BEFORE_SENTENCE)
    if match.lastindex == _SPACED:
        return can_start_sentence(following)
    words = text[max(start, match.start() - NEARBY) : match.start()].split()
    plain = bool(words) and is_ordinary_word(words[-1])
    if match.lastindex == _REFERENCE:
        return plain
    if _WORD_AND_GAP.match(following) is None:
        return False
    return plain or (
        starts_with_sentence_opener(following) and not following[:2].isupper()
    )  # ABSTRACT.METHODS: is one heading


def _inside(text: str, start: int, end: int, brackets: tuple[tuple[str, str], ...]) -> bool:
    """Whether `end` is inside a bracket that is closed soon after."""
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
    """Whether a line without a full stop ends a sentence: a heading, a list item, the last line of a paragraph."""
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
    """Decide on a mark in Chinese text; a single period may belong to a number, a list or a Latin abbreviation."""
    if text[stop] != "." or text[stop + 1] == ".":
        return True
    before = text[stop - 1]
    if not before.isascii():
        return True
    if text[stop + 1].isspace():
        return _period_end(text, start, stop, after) > 0
    return before.isalpha() and not text[stop + 1].isascii()


def _before_open_quote(text: str, start: int, stop: int, end: int) -> int:
    """Leave a straight quote to the next sentence if it opens there: 他说。"好" has an even number before it.

    Called at real borders only, so that each character is counted once.
    """
    if text[end - 1] == '"' and text.count('"', start, stop) % 2 == 0:
        return end - 1
    return end
