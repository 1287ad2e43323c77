"""Margins: by how much an answer beats the best other one, and which words of the text stand where.

In: an example, its rows and the head's outputs. Out: the answers that can be explained (`MarginQuestion`), and for
one of them its margin with the gradient with respect to the outputs. Margins are made of numpy alone, so the same code
serves Exports, where words are left out one by one, and checkpoints, where torch carries the gradient on to the
embeddings. A task that can be explained has a subclass of `TaskMargins`, which also tells where the words of its rows
stand.

Tasks cut, join and mark their texts in their own ways, and keep of the tokens what they need. So a `TracingTokenizer`
gives each piece a number of its own, beyond all ids, and what a task makes of these numbers says which piece stands at
each token of its rows. Special tokens keep their ids, and are pieces of no text.
"""

# P places, C outputs
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, cast

import numpy as np

from alembert.data.windows import Row
from alembert.errors import BadInput
from alembert.tasks.example import E, EncodedExample, Example, shorten
from alembert.tasks.runtime import Outputs
from alembert.text.sentences import Span
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


EXPLAINED_TASKS: Final = ("tag", "classify", "relate", "answer", "choose")


@dataclass(frozen=True, eq=False)
class MarginQuestion:
    """An answer that is compared with the best other one."""

    sentence: str
    """What is explained: why 8:16 "diabetes" is a Disease."""
    label: str
    answer: Any = None
    """What the task finds the answer by."""
    span: Span | None = None
    score: float | None = None
    """How sure the model is of it; none: it is no answer of the model, or that is not known."""
    is_given: bool = True
    """Whether it is an answer of the model; if not, the question is why not."""


@dataclass(frozen=True, eq=False)
class Margin:
    """The score of an answer less that of the best other one; below 0 the model answers otherwise."""

    value: float
    gradient: tuple[Outputs, ...]
    """How the margin changes with each output of each row."""

    def __neg__(self) -> Margin:
        return Margin(-self.value, tuple(-each for each in self.gradient))


class TextPlace(NamedTuple):
    """Where a token stands in the texts of an example; tokens with equal words are pieces of one."""

    text: int
    start: int
    end: int
    word: Hashable


class TaskMargins(ABC, Generic[E]):
    """What a task knows about the margins of its answers."""

    @abstractmethod
    def questions(
        self, example: E, encoded: EncodedExample, outputs: Sequence[Outputs], span: Span | None, label: str | None
    ) -> list[MarginQuestion]:
        """List the answers at a span and with a label (none: any), the one to explain first; one that fits none is refused."""

    @abstractmethod
    def margin(self, encoded: EncodedExample, outputs: Sequence[Outputs], question: MarginQuestion) -> Margin:
        """Compute the margin of an answer."""

    def readings(self, example: E) -> Iterator[tuple[str, int, int]]:
        """Yield the strings that the model reads, each with the number of its text and the offset in it."""
        for number, text in enumerate(example.texts):
            yield text, number, 0

    def locate(
        self, example: E, encoded: EncodedExample, row: int, pieces: Sequence[ReadPiece | None]
    ) -> list[TextPlace | None]:
        """Return where the tokens of a row stand in the texts of the example; none: special tokens."""
        places = {text: (number, offset) for text, number, offset in self.readings(example)}
        return [None if piece is None else piece_place(piece, *places[piece.text]) for piece in pieces]


def piece_place(piece: ReadPiece, text: int, offset: int) -> TextPlace:
    """Return the place of a piece of a string that stands at an offset of a text."""
    return TextPlace(text, offset + piece.start, offset + piece.end, (text, offset, piece.word))


def compare_class(logits_C: Any, chosen: int) -> tuple[float, Outputs]:
    """Return by how much a class beats the best other one, and the gradient.

    >>> compare_class(np.array([3.0, 1.0, 2.5]), 0)
    (0.5, array([ 1.,  0., -1.], dtype=float32))
    """
    gradient_C = np.zeros(len(logits_C), np.float32)
    gradient_C[chosen] = 1
    if len(logits_C) > 1:
        others_C = np.array(logits_C, np.float64)
        others_C[chosen] = -np.inf
        gradient_C[others_C.argmax()] = -1
    return float(np.dot(logits_C, gradient_C)), gradient_C


def find_class(label: str | None, labels: Sequence[str]) -> str | None:
    """Check a label that was asked about."""
    if label is not None and label not in labels:
        raise BadInput(f"The model does not have the label that was asked about; it has {', '.join(labels)}.")
    return label


def refuse_span(span: Span | None, what: str) -> None:
    """Refuse a span for an answer that has no place in the text."""
    if span is not None:
        raise BadInput(f"The answer of this model is about {what} and not about a span. Leave the span out.")


def quote(text: str, span: Span) -> str:
    """Name a span of a text: 8:16 "diabetes"."""
    return f'{span[0]}:{span[1]} "{shorten(text[slice(*span)])}"'


def without_changes(outputs: Sequence[Outputs]) -> list[Outputs]:
    """Return a gradient of zeros."""
    return [np.zeros(each.shape, np.float32) for each in outputs]
