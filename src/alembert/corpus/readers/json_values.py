"""The values of a JSON file one at a time, for files that are one long array or one pretty-printed object.

Goes in: the text in pieces. Comes out: each element of the array that `opening` leads to, or each top-level value when
it is None. The buffer holds one element: it doubles while an element is unfinished, up to the limit. JSON gives no
place to start again after an error, so an error ends the file with `Damaged`; JSON lines are read line by line instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from alembert.corpus.readers.contract import Damaged

ARRAY = re.compile(r"\s*\[")
_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


class TooLong:
    """Stands for an element that is longer than the limit."""


def values(pieces: Iterator[str], limit: int, opening: re.Pattern[str] | None = None) -> Iterator[Any]:
    """Give the elements of every array that `opening` matches the start of, or the top-level values."""
    buffer = _Buffer(pieces, limit)
    if opening is None:
        yield from _run(buffer)
    else:
        while buffer.skip_past(opening):
            yield from _run(buffer)


def _run(buffer: _Buffer) -> Iterator[Any]:
    while buffer.next_character() not in ("", "]"):
        yield buffer.value()


class _Buffer:
    """A window on the text that grows as it has to."""

    def __init__(self, pieces: Iterator[str], limit: int) -> None:
        self.pieces, self.limit = pieces, limit
        self.text, self.at, self.ended = "", 0, False

    def grow(self) -> bool:
        """Add as much text as is held already, dropping what was used; tell whether there was any."""
        self.text, self.at = self.text[self.at :], 0
        if len(self.text) > self.limit:
            raise Damaged(f"a record is longer than max_record ({self.limit})")
        fresh: list[str] = []
        wanted = max(len(self.text), 1 << 16)
        while wanted > 0 and not self.ended:
            piece = next(self.pieces, None)
            self.ended = piece is None
            fresh.append(piece or "")
            wanted -= len(piece or "")
        self.text += "".join(fresh)
        return any(fresh)

    def next_character(self) -> str:
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow():
                return ""

    def skip_past(self, opening: re.Pattern[str]) -> bool:
        """Move behind the next match; text before it is dropped but for a tail that may hold its start."""
        while True:
            found = opening.search(self.text, self.at)
            if found:
                self.at = found.end()
                return True
            self.at = max(self.at, len(self.text) - 200)
            if not self.grow():
                return False

    def value(self) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated") or error.pos >= len(self.text) - 16
                if not unfinished or not self.grow():
                    raise Damaged(f"the JSON breaks here: {error.msg}") from None
            except (RecursionError, ValueError):
                raise Damaged("the JSON is nested too deeply or holds a number that is too long") from None
            else:
                length, self.at = end - self.at, end
                return value if length <= self.limit else TooLong()
