"""How a tokenizer cuts a text: word by word, with ids and character offsets.

In: a tokenizer and a text. Out: a `TokenReport` that shows each word with its pieces, which words are split or
unknown, and how much of the text the pieces cover. Words are those of BERT: white space and punctuation separate
them, and a punctuation mark or a Chinese character is a word of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from alembert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenPiece:
    """One piece, and where it stands in the text."""

    text: str
    id: int
    start: int
    end: int


@dataclass(frozen=True)
class TokenizedWord:
    """One word and its pieces; `surface` is `text[start:end]`."""

    surface: str
    start: int
    end: int
    pieces: tuple[TokenPiece, ...]
    unknown: bool

    @property
    def split(self) -> bool:
        """Whether the vocabulary lacks the word as a whole."""
        return len(self.pieces) > 1


@dataclass(frozen=True)
class TokenSummary:
    """Counts over a text."""

    characters: int
    words: int
    pieces: int
    pieces_per_word: float
    split_words: int
    unknown_words: int
    uncovered_characters: int
    """Characters, white space aside, in no known piece: in unknown words, or dropped (control characters, accents)."""
    coverage: float
    """Share of the characters, white space aside, that stand in a known piece; 1 for a text without any."""
    replaced_surrogates: int


@dataclass(frozen=True)
class TokenReport:
    """The words of a text, and their summary."""

    text: str
    words: tuple[TokenizedWord, ...]
    replaced_surrogates: int

    @cached_property
    def summary(self) -> TokenSummary:
        """Count words, pieces, and what was not covered."""
        pieces = sum(len(word.pieces) for word in self.words)
        visible = sum(not char.isspace() for char in self.text)
        uncovered = visible - self._covered()
        return TokenSummary(
            characters=len(self.text),
            words=len(self.words),
            pieces=pieces,
            pieces_per_word=round(pieces / len(self.words), 3) if self.words else 0.0,
            split_words=sum(word.split for word in self.words),
            unknown_words=sum(word.unknown for word in self.words),
            uncovered_characters=uncovered,
            coverage=round(1 - uncovered / visible, 4) if visible else 1.0,
            replaced_surrogates=self.replaced_surrogates,
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        words = [{**asdict(word), "split": word.split} for word in self.words]
        return {"summary": asdict(self.summary), "words": words}

    def _covered(self) -> int:
        covered = reached = 0
        for piece in (piece for word in self.words if not word.unknown for piece in word.pieces):
            # Pieces of one decomposed character share its span; count it once.
            start = max(piece.start, reached)
            covered += sum(not char.isspace() for char in self.text[start : piece.end])
            reached = max(reached, piece.end)
        return covered


def inspect_tokens(tokenizer: Tokenizer, text: str) -> TokenReport:
    """Show how `tokenizer` cuts `text`."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spans = zip(tokenizer.tokens(encoding.ids), encoding.ids, encoding.offsets, strict=True)
    pieces = (TokenPiece(piece, number, *span) for piece, number, span in spans)
    words = tuple(_words(text, zip(encoding.word_ids, pieces, strict=True), tokenizer.unk_id))
    return TokenReport(text, words, encoding.replaced_surrogates)


def _words(text: str, pieces: Iterator[tuple[int | None, TokenPiece]], unknown_id: int) -> Iterator[TokenizedWord]:
    for _, group in groupby(pieces, key=lambda entry: entry[0]):
        members = tuple(piece for _, piece in group)
        start, end = members[0].start, members[-1].end
        unknown = any(piece.id == unknown_id for piece in members)
        yield TokenizedWord(text[start:end], start, end, members, unknown)
