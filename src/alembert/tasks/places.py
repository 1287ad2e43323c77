"""Where the tokens of rows come from: the same rows once more, with numbers of pieces in place of their ids.

Tasks cut, join and mark their texts in their own ways, and keep of the tokens what they need. So a `TracingTokenizer`
gives each piece a number of its own, beyond all ids, and what a task makes of these numbers says which piece stands at
each token of its rows. Special tokens keep their ids, and are pieces of no text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from alembert.data.windows import Row
from alembert.tasks.example import EncodedExample, Example
from alembert.text.tokenizer import Encoding, Tokenizer


class ReadPiece(NamedTuple):
    """A piece of a string that was tokenized."""

    text: str
    start: int
    end: int
    word: int
    """The number of its word in the string."""


@dataclass(frozen=True)
class _TracedPieces:
    """Stands for an encoding of the Rust library."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    word_ids: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class TracingTokenizer:
    """A tokenizer whose ids are numbers of pieces; only texts without special tokens can be traced."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._first = tokenizer.vocab_size
        self._pieces: list[ReadPiece] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        return self.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch(self, texts: Iterable[str], *, add_special_tokens: bool, offsets: bool = True) -> list[Encoding]:
        listed = list(texts)
        encoded = self._tokenizer.encode_batch(listed, add_special_tokens=add_special_tokens)
        return [self._trace(text, encoding) for text, encoding in zip(listed, encoded, strict=True)]

    def _trace(self, text: str, encoding: Encoding) -> Encoding:
        first = self._first + len(self._pieces)
        words = [-1 if word is None else word for word in encoding.word_ids]
        self._pieces += [ReadPiece(text, *span, word) for span, word in zip(encoding.offsets, words, strict=True)]
        numbers = list(range(first, first + len(words)))
        return Encoding(cast(Any, _TracedPieces(numbers, list(encoding.offsets), words)))

    def pieces_of(self, row: Row) -> list[ReadPiece | None]:
        """Return the piece at each token of a row; none: a special token."""
        numbers = (row.ids - self._first).tolist()
        return [self._pieces[number] if number >= 0 else None for number in numbers]


def trace_pieces(task: Any, example: Example, tokenizer: Tokenizer, longest: int) -> list[list[ReadPiece | None]]:
    """Return which piece stands at each token of the rows of an example."""
    tracing = TracingTokenizer(tokenizer)
    (encoded,) = cast(Sequence[EncodedExample], task.encode([example], tracing, longest))
    return [tracing.pieces_of(row) for row in encoded.rows]
