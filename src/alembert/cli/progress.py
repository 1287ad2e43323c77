"""A progress line on stderr: share, rate and time left; nothing at all where stderr is not a terminal.

It is drawn by whoever reports progress, without a thread of its own, so that processes can be forked meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from alembert.corpus.jobs import Progress

_WIDTH = 24


class Bar:
    """One line that is written over; gone at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._phase = ""
        self._began = time.monotonic()
        self._first = 0

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("")

    def show(self, progress: Progress) -> None:
        """Draw how far the work has come."""
        if progress.phase != self._phase:
            self._phase, self._began, self._first = progress.phase, time.monotonic(), progress.done
        self._write(line(progress, progress.done - self._first, time.monotonic() - self._began))

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()


def line(progress: Progress, fresh: int, seconds: float) -> str:
    """Write progress as a line; `fresh` is what was done in these seconds, without what a stopped run had done.

    >>> from alembert.corpus.jobs import Progress
    >>> line(Progress("building", 50, 100, 3_000_000), 50, 6.0)
    'building ████████████░░░░░░░░░░░░  50%  0.50 M characters/s, 0:06 left'
    """
    if not progress.total:
        return f"{progress.phase} ..."
    share = min(1.0, progress.done / progress.total)
    full = round(share * _WIDTH)
    text = f"{progress.phase} {'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}"
    if progress.characters and seconds > 0:
        text += f"  {progress.characters / seconds / 1e6:.2f} M characters/s"
    if fresh > 0:
        left = int((progress.total - progress.done) * seconds / fresh)
        text += f", {left // 60}:{left % 60:02} left"
    return text
