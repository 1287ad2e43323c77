"""A progress line on stderr: share, rate and time left.

On a terminal it is one line that is written over, with a bar as long as there is room for. Elsewhere there is nothing,
or, for the logs of long jobs, a plain line once in a while. It is drawn by whoever reports progress, without a thread
of its own, so that processes can be forked meanwhile.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

    from alembert.corpus.jobs import Progress
    from alembert.train.runlog import TrainingProgress

_CELLS = 24


class Bar:
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
        fresh, seconds = progress.done - self._first, time.monotonic() - self._began
        self._draw(lambda cells: line(progress, fresh, seconds, cells))

    def show_training(self, progress: TrainingProgress) -> None:
        """Draw how far a training run has come; on a narrow terminal without the share of the peak."""
        if self._shown and len(training_line(progress, 0)) > self._columns():
            progress = replace(progress, peak_share=None)
        self._draw(lambda cells: training_line(progress, cells))

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


def line(progress: Progress, fresh: int, seconds: float, cells: int = _CELLS) -> str:
    """Write progress as a line; `fresh` is what was done in these seconds, without what a stopped run had done.

    >>> from alembert.corpus.jobs import Progress
    >>> line(Progress("building", 50, 100, 3_000_000), 50, 6.0)
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


def training_line(progress: TrainingProgress, cells: int = 12) -> str:
    """Write how far a run has come as a line.

    >>> from alembert.train.runlog import TrainingProgress
    >>> training_line(TrainingProgress(0.42, 3.2149, 3150.4, 0.64, 2467.0, 1200))
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
