"""Where entities of an example stand for the model: in words, in pieces, and in the windows that it reads."""

# W words
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alembert.data.windows import Row
from alembert.tasks.example import EncodedExample
from alembert.tasks.metrics.spans import EntityTuple
from alembert.tasks.tag.tags import WordOffsets


@dataclass(frozen=True, slots=True)
class _Window:
    """Pieces that are read at once, and the words that are answered for there."""

    start: int
    end: int
    own: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Ground:
    """An encoded example of the task `tag`."""

    words: WordOffsets
    windows: tuple[_Window, ...]

    @classmethod
    def of(cls, encoded: EncodedExample) -> Ground:
        """Find words and windows; a window in which no word begins is of no use here."""
        layout = encoded.layout
        parts = zip(encoded.rows, layout.first_words, layout.own, strict=True)
        found = [_window(row, first, own, layout.words) for row, first, own in parts if len(row.places)]
        return cls(layout.words, tuple(found))

    def words_of(self, entity: EntityTuple) -> tuple[int, int]:
        """Give the words that an entity touches; at least one, if there is any."""
        first = int(np.searchsorted(self.words.ends_W, entity[0], side="right"))
        first = min(first, max(0, len(self.words) - 1))
        return first, max(first + 1, int(np.searchsorted(self.words.starts_W, entity[1], side="left")))

    def pieces_of(self, entity: EntityTuple) -> tuple[int, int]:
        """Give the pieces of those words."""
        first, end = self.words_of(entity)
        return self._piece(first), self._piece(end)

    def to_border(self, entity: EntityTuple) -> int | None:
        """Count the pieces from an entity to where its window was cut; none: the text was read whole."""
        if len(self.windows) < 2:
            return None
        word, _ = self.words_of(entity)
        begin, end = self.pieces_of(entity)
        for number, window in enumerate(self.windows):
            if window.own[0] <= word < window.own[1]:
                before = [begin - window.start] if number else []
                after = [window.end - end] if number + 1 < len(self.windows) else []
                return max(0, min(before + after))
        return None

    def _piece(self, word: int) -> int:
        if word < len(self.words):
            return int(self.words.pieces_W[word])
        return self.windows[-1].end if self.windows else 0


def _window(row: Row, first: int, own: tuple[int, int], words: WordOffsets) -> _Window:
    # The first token of a row is [CLS], the last [SEP].
    start = int(words.pieces_W[first]) - int(row.places[0]) + 1
    return _Window(start, start + row.length - 2, own)
