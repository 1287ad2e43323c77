"""BERT's tokenizer in plain Python: the second opinion on the Rust library.

Written from the description of the algorithm: clean the text, set Chinese characters apart, strip accents and
lower-case, split at white space and punctuation, then cut each word greedily into the longest known pieces. Each
character carries the span of the original text that it came from, so offsets need no search.

Comments that begin with DEVIATION mark where the Rust library, which the product follows, is not the original BERT.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CHINESE = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),  # DEVIATION: the original begins at 0x2B820
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
]
MAX_WORD = 100  # DEVIATION: 200 in the original
ASCII_PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


@dataclass(frozen=True)
class Char:
    """A character of the normalised text and where it comes from."""

    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    text: str
    start: int
    end: int


def is_dropped(char: str) -> bool:
    if char in "\t\n\r":
        return False
    # DEVIATION: the original also drops unassigned characters (category Cn).
    # Cs: the product reads an unpaired surrogate as U+FFFD.
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs")


def is_chinese(char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in CHINESE)


def is_punctuation(char: str) -> bool:
    return char in ASCII_PUNCTUATION or unicodedata.category(char).startswith("P")


def clean(chars: Sequence[Char]) -> list[Char]:
    kept = [c for c in chars if not is_dropped(c.value)]
    return [Char(" " if c.value.isspace() else c.value, c.start, c.end) for c in kept]


def set_chinese_apart(chars: Sequence[Char]) -> Iterator[Char]:
    for c in chars:
        space = Char(" ", c.start, c.end)
        yield from (space, c, space) if is_chinese(c.value) else (c,)


def decompose(chars: Sequence[Char]) -> list[Char]:
    """NFD, one starter with its marks at a time, because marks are put in a canonical order."""
    spread = [Char(part, c.start, c.end) for c in chars for part in unicodedata.normalize("NFD", c.value)]
    ordered: list[Char] = []
    run: list[Char] = []
    for c in spread:
        if not unicodedata.combining(c.value):
            ordered += sorted(run, key=lambda mark: unicodedata.combining(mark.value))
            ordered.append(c)
            run = []
        else:
            run.append(c)
    return ordered + sorted(run, key=lambda mark: unicodedata.combining(mark.value))


def strip_accents(chars: Sequence[Char]) -> list[Char]:
    return [c for c in decompose(chars) if unicodedata.category(c.value) != "Mn"]


def lower(chars: Sequence[Char]) -> list[Char]:
    # DEVIATION: one character at a time and after the accents, so a final capital sigma becomes σ, not ς.
    return [Char(part, c.start, c.end) for c in chars for part in c.value.lower()]


def words(chars: Sequence[Char]) -> Iterator[list[Char]]:
    word: list[Char] = []
    for c in chars:
        if c.value.isspace() or is_punctuation(c.value):
            if word:
                yield word
            word = []
            if not c.value.isspace():
                yield [c]
        else:
            word.append(c)
    if word:
        yield word


def cut(word: Sequence[Char], vocabulary: set[str]) -> list[Piece]:
    """Greedy longest match; a word with an unknown rest is unknown as a whole."""
    pieces: list[Piece] = []
    begin = 0
    while begin < len(word) <= MAX_WORD:
        prefix = "##" if begin else ""
        surfaces = ((end, prefix + "".join(c.value for c in word[begin:end])) for end in range(len(word), begin, -1))
        found = next(((end, surface) for end, surface in surfaces if surface in vocabulary), None)
        if found is None:
            break
        end, surface = found
        pieces.append(Piece(surface, word[begin].start, word[end - 1].end))
        begin = end
    return pieces if begin == len(word) else [Piece("[UNK]", word[0].start, word[-1].end)]


@dataclass(frozen=True)
class Reference:
    """A tokenizer of single texts without added special tokens."""

    vocabulary: set[str]
    lowercase: bool

    def tokenize(self, text: str) -> list[Piece]:
        # DEVIATION: special tokens are found anywhere in the text; the original would cut [MASK] at its brackets.
        parts = re.split(r"(\[(?:PAD|UNK|CLS|SEP|MASK)\])", text)
        pieces: list[Piece] = []
        start = 0
        for number, part in enumerate(parts):
            end = start + len(part)
            pieces += [Piece(part, start, end)] if number % 2 else self._plain(part, start)
            start = end
        return pieces

    def _plain(self, text: str, start: int) -> list[Piece]:
        chars: Sequence[Char] = [Char(c, start + i, start + i + 1) for i, c in enumerate(text)]
        chars = list(set_chinese_apart(clean(chars)))
        if self.lowercase:
            chars = lower(strip_accents(chars))
        return [piece for word in words(chars) for piece in cut(word, self.vocabulary)]
