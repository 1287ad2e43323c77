"""What people see while alembert works: results on stdout, notes and progress on stderr.

The command line and the public functions print through this module; nothing below them prints. Input is UTF-8, output
suits the encoding of stdout, and control characters in it are escaped.

Progress is one line with share, rate and time left, which is written over on a terminal, with a bar as long as there is
room for. Elsewhere there is nothing, or, for the logs of long jobs, a plain line once in a while. Whoever reports
progress draws it, without a thread of its own, so that processes can be forked meanwhile.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from alembert.errors import BadInput, UserError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from alembert.corpus.jobs import Progress
    from alembert.train.runlog import TrainingProgress


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


def escape_controls(text: str) -> str:
    """Escape what a terminal would obey or hide, and what stdout cannot show.

    >>> escape_controls("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    encoding = sys.stdout.encoding or "ascii"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def say(sentence: str) -> None:
    """Print one line on stderr; a path or a value in it cannot move the cursor, nor begin a line of its own."""
    print(escape_controls(sentence), file=sys.stderr, flush=True)


def say_all(lines: Iterable[str]) -> None:
    """Print lines on stderr."""
    for line in lines:
        say(line)


def note(sentence: str) -> None:
    """Print a remark on stderr."""
    say(f"note: {sentence}")


def note_set_aside(path: Path, counts: Mapping[str, int], most: int = 3) -> None:
    """Print on stderr where the first items of a few reasons were set aside, and how many have the same reason."""
    from alembert.corpus.readers.contract import generalise_reason

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


def stdout_console() -> Console:
    """Make a console for stdout that prints texts as they are: no markup, no colours on numbers and paths."""
    from rich.console import Console  # slow to load, and most commands print plain lines

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process with code 1, which is our code for a bug.
            raise BrokenPipeError

    return Ours(highlight=False, markup=False)


_CELLS = 24


class ProgressBar:
    """One line that is written over; gone at the end."""

    def __init__(self, stream: TextIO, *, plain_every: float | None = None, shown: bool | None = None) -> None:
        """Take where to write, and how many seconds pass between plain lines where that is no terminal.

        The line is drawn on terminals and in notebooks, unless `shown` says otherwise.
        """
        self._stream = stream
        self._shown = stream.isatty() or "ipykernel" in sys.modules if shown is None else shown
        self._plain_every = plain_every
        self._next_plain = -math.inf
        self._phase = ""
        self._began = time.monotonic()
        self._first = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("")

    def show(self, progress: Progress) -> None:
        """Draw how far the work has come."""
        if progress.phase != self._phase:
            self._phase, self._began, self._first = progress.phase, time.monotonic(), progress.done
        fresh, seconds = progress.done - self._first, time.monotonic() - self._began
        self._draw(lambda cells: format_progress(progress, fresh, seconds, cells))

    def show_training(self, progress: TrainingProgress) -> None:
        """Draw how far a training run has come; on a narrow terminal without the share of the peak."""
        if self._shown and len(format_training_progress(progress, 0)) > self._columns():
            progress = replace(progress, peak_share=None)
        self._draw(lambda cells: format_training_progress(progress, cells))

    def _draw(self, text: Callable[[int], str]) -> None:
        """Write a line that is given the length of its bar."""
        if self._shown:
            room = self._columns()
            # A line that wraps could not be written over.
            self._write(text(max(0, min(_CELLS, room - 1 - len(text(0)))))[:room])
        elif self._plain_every is not None and time.monotonic() >= self._next_plain:
            self._next_plain = time.monotonic() + self._plain_every
            self._stream.write(f"{text(0)}\n")
            self._stream.flush()

    def _columns(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        # Some terminals say 0 for unknown; the last column makes some of them wrap.
        return columns - 1 if columns > 1 else 200

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()


def format_progress(progress: Progress, fresh: int, seconds: float, cells: int = _CELLS) -> str:
    """Write progress as a line; `fresh` is what was done in these seconds, without what a stopped run had done.

    >>> from alembert.corpus.jobs import Progress
    >>> format_progress(Progress("building", 50, 100, 3_000_000), 50, 6.0)
    'building ████████████░░░░░░░░░░░░  50%  0.50 M characters/s, 0:06 left'
    """
    if not progress.total:
        return f"{progress.phase} ..."
    text = f"{progress.phase} {_bar(progress.done / progress.total, cells)}"
    if progress.documents and seconds > 0:
        text += f"  {progress.documents / seconds:,.1f} documents/s, {progress.tokens / seconds:,.0f} tokens/s"
    elif progress.characters and seconds > 0:
        text += f"  {progress.characters / seconds / 1e6:.2f} M characters/s"
    if fresh > 0:
        left = int((progress.total - progress.done) * seconds / fresh)
        text += f", {left // 60}:{left % 60:02} left"
    return text


def format_training_progress(progress: TrainingProgress, cells: int = 12) -> str:
    """Write how far a run has come as a line.

    >>> from alembert.train.runlog import TrainingProgress
    >>> format_training_progress(TrainingProgress(0.42, 3.2149, 3150.4, 0.64, 2467.0, 1200))
    'pre-training █████░░░░░░░  42%  step 1,200  loss 3.21  3,150 tokens/s (64% of peak)  0:41:07 left'
    """
    parts = [f"{progress.phase} {_bar(progress.share, cells)}", f"step {progress.step:,}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.2f}")
    peak = "" if progress.peak_share is None else f" ({progress.peak_share:.0%} of peak)"
    parts.append(f"{progress.tokens_per_second:,.0f} tokens/s{peak}")
    if math.isfinite(progress.seconds_left):
        parts.append(f"{timedelta(seconds=max(0, int(progress.seconds_left)))} left")
    return "  ".join(parts)


def _bar(share: float, cells: int) -> str:
    share = min(1.0, share)
    full = round(share * cells)
    drawn = f"{'█' * full}{'░' * (cells - full)} " if cells else ""
    return f"{drawn}{share:4.0%}"
