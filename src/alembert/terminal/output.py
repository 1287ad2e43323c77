"""How alembert reads and writes streams: UTF-8 in, data to stdout whatever its encoding, nothing a terminal would obey."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.errors import BadInput, UserError

if TYPE_CHECKING:
    from rich.console import Console


_LINES_READ: Final = 10_000
"""Of what was set aside: enough to meet each usual reason, few enough to be read at once."""


def read_stdin() -> str:
    """Read all of stdin as UTF-8, without the mark that some editors put before it."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        raise BadInput(
            f"The text on stdin is not UTF-8 (byte 0x{data[problem.start]:02x} at {problem.start}). Convert it first."
        ) from None


def print_json(record: Any, indent: int | None = None) -> None:
    """Print a JSON value, readable where stdout is UTF-8, escaped elsewhere."""
    try:
        text = json.dumps(record, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        raise UserError(
            "The result has numbers that are NaN or infinite, which JSON does not have, so it was not printed. The model "
            "or its data are damaged; check both."
        ) from None
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(record, indent=indent)
    print(text, flush=True)


def visible(text: str) -> str:
    """Escape what a terminal would obey or hide, and what stdout cannot show.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    encoding = sys.stdout.encoding or "ascii"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def say(sentence: str) -> None:
    """Print one line on stderr; a path or a value in it cannot move the cursor, nor begin a line of its own."""
    print(visible(sentence), file=sys.stderr, flush=True)


def say_all(lines: Iterable[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        say(line)


def note(sentence: str) -> None:
    """Say something on stderr that is not data."""
    say(f"note: {sentence}")


def note_set_aside(path: Path, counts: Mapping[str, int], most: int = 3) -> None:
    """Say on stderr where the first items of a few reasons were set aside, and how many have the same reason."""
    from alembert.corpus.chunks import generalise_reason

    first: dict[str, dict[str, Any]] = {}
    with path.open(encoding="utf8") as lines:
        for record in map(json.loads, islice(lines, _LINES_READ)):
            first.setdefault(generalise_reason(record["reason"]), record)
    for kind, record in islice(first.items(), most):
        many = sum(count for name, count in counts.items() if name.endswith(f"set aside: {kind}"))
        # Details may be names of columns, which may be a row of text.
        reason = record["reason"].partition(" (")[0]
        note(
            f"{record['file']}, {record['position']} is set aside: {reason}"
            + (f" ({many:,} such cases)" if many > 1 else "")
        )
    if first:
        note(f"all that is set aside is listed in {path}")


def console() -> Console:
    """Make a console for stdout that prints texts as they are: no markup, no colours on numbers and paths."""
    from rich.console import Console  # slow to load, and most commands print plain lines

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process with code 1, which is our code for a bug.
            raise BrokenPipeError

    return Ours(highlight=False, markup=False)
