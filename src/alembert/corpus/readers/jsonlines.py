r"""JSON lines, and JSON files that are an array of records or one pretty-printed record.

One line is one record; a line that is not JSON is set aside and the next is read. `records` maps the fields. Escapes of
lone surrogates (``\ud800``), which are no characters, become U+FFFD and are counted. The layout is detected from the
first lines, not from the name: many `.json` files are JSON lines.

An array or a pretty-printed object is streamed: the buffer holds one element, and doubles while the element is
incomplete, up to the limit. Reading cannot resume after an error in such a file, so an error ends it with `DamagedFile`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from alembert.corpus.readers.contract import DamagedFile, Item, ReadOptions, SetAside
from alembert.corpus.readers.records import build_record_items
from alembert.corpus.readers.source import SourceFile

ARRAY_START = re.compile(r"\s*\[")
_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


class TooLongValue:
    """Replaces an element that is longer than the limit."""


def iter_json_values(pieces: Iterator[str], limit: int, opening: re.Pattern[str] | None = None) -> Iterator[Any]:
    """Yield the elements of every array whose start `opening` matches, or the top-level values if it is None."""
    buffer = _Buffer(pieces, limit)
    if opening is None:
        yield from _read_array(buffer)
    else:
        while buffer.skip_past(opening):
            yield from _read_array(buffer)


def _read_array(buffer: _Buffer) -> Iterator[Any]:
    while buffer.next_character() not in ("", "]"):
        yield buffer.value()


class _Buffer:
    """A window on the text that grows as it has to."""

    def __init__(self, pieces: Iterator[str], limit: int) -> None:
        self.pieces, self.limit = pieces, limit
        self.text, self.at, self.ended = "", 0, False

    def grow(self) -> bool:
        """Drop used text and add as much as is left; return whether there was any to add."""
        self.text, self.at = self.text[self.at :], 0
        if len(self.text) > self.limit:
            raise DamagedFile(f"a record is longer than max_record ({self.limit})")
        pieces: list[str] = []
        missing = max(len(self.text), 1 << 16)
        while missing > 0 and not self.ended:
            piece = next(self.pieces, None)
            self.ended = piece is None
            pieces.append(piece or "")
            missing -= len(piece or "")
        self.text += "".join(pieces)
        return any(pieces)

    def next_character(self) -> str:
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow():
                return ""

    def skip_past(self, opening: re.Pattern[str]) -> bool:
        """Move behind the next match; text before it is dropped except for a tail that may hold its start."""
        while True:
            match = opening.search(self.text, self.at)
            if match:
                self.at = match.end()
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
                    raise DamagedFile(f"the JSON breaks here: {error.msg}") from None
            except (RecursionError, ValueError):
                raise DamagedFile("the JSON is nested too deeply or holds a number that is too long") from None
            else:
                length, self.at = end - self.at, end
                return value if length <= self.limit else TooLongValue()


_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read(source: SourceFile, options: ReadOptions) -> Iterator[Item]:
    """Read the records of a JSON lines file, a JSON array or a single JSON object."""
    for number, record in enumerate(read_json_records(source), start=1):
        if isinstance(record, SetAside):
            yield record
        else:
            yield from build_record_items(record, source, options, number)


def read_json_records(source: SourceFile) -> Iterator[Any]:
    """Yield the records of a file in any of the three layouts; those that are not JSON are set aside."""
    head = source.head().decode(source.encoding(), errors="replace").lstrip("\ufeff \r\n\t")
    if not head.startswith("[") and looks_like_json_lines(head):
        yield from _from_lines(source)
        return
    opening = ARRAY_START if head.startswith("[") else None
    for number, value in enumerate(iter_json_values(source.characters(), source.options.max_record, opening), start=1):
        source.position = f"record {number}"
        yield check_json_value(value, source)


def looks_like_json_lines(head: str) -> bool:
    """Check for a complete JSON object in one of the first lines, or for a single line."""
    lines = [line for line in head.split("\n", 20)[:20] if line.strip()]
    return len(lines) == 1 or any(is_json_object(line) for line in lines)


def is_json_object(line: str) -> bool:
    """Whether a line is a complete JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_lines(source: SourceFile) -> Iterator[Any]:
    for line in source.lines():
        if isinstance(line, SetAside):
            yield line
        elif line.text and not line.text.isspace():
            yield _parse(line.text, source)


def _parse(text: str, source: SourceFile) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return source.set_aside(f"the line is not JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError):
        return source.set_aside("the JSON is nested too deeply or holds a number that is too long")
    return replace_surrogates(value, source) if _ESCAPED_SURROGATE.search(text) else value


def check_json_value(value: Any, source: SourceFile) -> Any:
    """Return a value without lone surrogates, or set aside one that is too long."""
    if isinstance(value, TooLongValue):
        return source.set_aside(f"the record is longer than max_record ({source.options.max_record})")
    return replace_surrogates(value, source)


def replace_surrogates(value: Any, source: SourceFile) -> Any:
    """Replace lone surrogates in all strings of a JSON value, counting them."""
    if isinstance(value, str):
        clean, count = _SURROGATE.subn("�", value)
        source.tally["lone surrogates were replaced by U+FFFD"] += count
        return clean
    if isinstance(value, list):
        return [replace_surrogates(part, source) for part in value]
    if isinstance(value, dict):
        return {replace_surrogates(key, source): replace_surrogates(part, source) for key, part in value.items()}
    return value
