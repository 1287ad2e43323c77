"""JSON lines, and JSON files that are an array of records or one pretty-printed record.

One line is one record; a line that is not JSON is set aside and the next is read. Which fields hold what is told in
`records`. Escapes of lone surrogates (``\\ud800``), which are no characters, become U+FFFD and are counted. Whether the
file has lines or is one value is seen from its first lines, not from its name: many `.json` files are JSON lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from alembert.corpus.readers.contract import Item, ReadOptions, SetAside
from alembert.corpus.readers.json_values import ARRAY, TooLong, values
from alembert.corpus.readers.records import items_of
from alembert.corpus.readers.source import Source

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read(source: Source, options: ReadOptions) -> Iterator[Item]:
    """Read the records of a JSON lines file, a JSON array or a single JSON object."""
    for number, record in enumerate(json_records(source), start=1):
        if isinstance(record, SetAside):
            yield record
        else:
            yield from items_of(record, source, options, number)


def json_records(source: Source) -> Iterator[Any]:
    """Give the records of a file in any of the three layouts, those that are not JSON as set aside."""
    head = source.head().decode(source.encoding(), errors="replace").lstrip("\ufeff \r\n\t")
    if not head.startswith("[") and has_lines(head):
        yield from _from_lines(source)
        return
    opening = ARRAY if head.startswith("[") else None
    for number, value in enumerate(values(source.characters(), source.options.max_record, opening), start=1):
        source.position = f"record {number}"
        yield checked(value, source)


def has_lines(head: str) -> bool:
    """Tell whether text looks like JSON lines: one of its first lines is a whole JSON object, or it has one line."""
    lines = [line for line in head.split("\n", 20)[:20] if line.strip()]
    return len(lines) == 1 or any(_is_object(line) for line in lines)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_lines(source: Source) -> Iterator[Any]:
    for line in source.lines():
        if isinstance(line, SetAside):
            yield line
        elif line.text and not line.text.isspace():
            yield _parsed(line.text, source)


def _parsed(text: str, source: Source) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return source.aside(f"the line is not JSON: {error.msg} at character {error.pos + 1}")
    except (ValueError, RecursionError):
        return source.aside("the JSON is nested too deeply or holds a number that is too long")
    return without_surrogates(value, source) if _ESCAPED_SURROGATE.search(text) else value


def checked(value: Any, source: Source) -> Any:
    """Give a value as it can be used, or set aside when it is too long."""
    if isinstance(value, TooLong):
        return source.aside(f"the record is longer than max_record ({source.options.max_record})")
    return without_surrogates(value, source)


def without_surrogates(value: Any, source: Source) -> Any:
    """Replace lone surrogates in all strings of a JSON value, counting them."""
    if isinstance(value, str):
        clean, count = _SURROGATE.subn("�", value)
        source.tally["lone surrogates were replaced by U+FFFD"] += count
        return clean
    if isinstance(value, list):
        return [without_surrogates(part, source) for part in value]
    if isinstance(value, dict):
        return {without_surrogates(key, source): without_surrogates(part, source) for key, part in value.items()}
    return value
