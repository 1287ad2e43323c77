"""Find sentences that other files have, such as the development and test files of a task.

In: files of any known format, labelled or not; then sentences. Out: whether a sentence is in one of the files, or holds a
sentence of theirs. Letters and digits in lower case are compared alone: white space, punctuation and the spaces between
the tokens of CoNLL files make no difference. A sentence of up to 60 such characters must be the same as a whole one of the
files; a longer one may begin and end anywhere, since files divide text into sentences in different ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from alembert.corpus.document import Document
from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers import read
from alembert.errors import BadFile
from alembert.text.sentences import split_sentences

_BLOCK: Final = 30
"""Characters of an aligned piece; any run of twice as many holds one whole."""
_NO_LETTER: Final = re.compile(r"[\W_]+")


def normalise_sentence(text: str) -> str:
    """Keep letters and digits, in lower case.

    >>> normalise_sentence("IL-2 ( 5 mg )") == normalise_sentence("IL-2 (5 mg)") == "il25mg"
    True
    """
    return _NO_LETTER.sub("", text.lower())


@dataclass(eq=False)
class ExcludedText:
    """Texts of which no sentence may be used."""

    texts: list[str] = field(default_factory=list)
    """Normalised, one for each document."""
    sentences: set[str] = field(default_factory=set)
    _blocks: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Aligned pieces of the texts -> which text, and where in it."""
    _starts: dict[str, list[str]] = field(default_factory=dict)
    """First characters of long sentences -> these sentences."""

    @classmethod
    def read(cls, paths: Iterable[Path]) -> ExcludedText:
        """Read files; one without any text is an error, since nothing would be excluded."""
        excluded = cls()
        for path in paths:
            before = len(excluded.texts)
            for file in list_input_files([path]).paths:
                for item in read(file):
                    if isinstance(item, Document):
                        excluded.add(item.text)
            if len(excluded.texts) == before:
                raise BadFile(f"{path} has no text that could be excluded. Check the file and its format.")
        return excluded

    def add(self, text: str) -> None:
        """Exclude a text and its sentences."""
        whole = normalise_sentence(text)
        self.texts.append(whole)
        for start in range(0, len(whole) - _BLOCK + 1, _BLOCK):
            self._blocks.setdefault(whole[start : start + _BLOCK], []).append((len(self.texts) - 1, start))
        for sentence in (whole, *(normalise_sentence(text[start:end]) for start, end in split_sentences(text))):
            if sentence not in self.sentences:
                self.sentences.add(sentence)
                if len(sentence) > 2 * _BLOCK:
                    self._starts.setdefault(sentence[:_BLOCK], []).append(sentence)

    def has(self, sentence: str) -> bool:
        """Return whether a normalised sentence is among the texts, or holds a long sentence of theirs."""
        if sentence in self.sentences:
            return True
        if len(sentence) < 2 * _BLOCK:
            return False
        return self._is_part(sentence) or self._holds_one(sentence)

    def _is_part(self, sentence: str) -> bool:
        for shift in range(_BLOCK):
            for number, start in self._blocks.get(sentence[shift : shift + _BLOCK], ()):
                if start >= shift and self.texts[number].startswith(sentence, start - shift):
                    return True
        return False

    def _holds_one(self, sentence: str) -> bool:
        return any(
            sentence.startswith(other, start)
            for start in range(len(sentence) - 2 * _BLOCK)
            for other in self._starts.get(sentence[start : start + _BLOCK], ())
        )
