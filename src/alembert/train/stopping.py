"""Ending a run on request, without losing a step.

The first SIGINT (Ctrl-C) or SIGTERM (a cluster that wants its machine back) is only noted: the loop looks at
`Stopping.requested` between two steps, saves, and raises `Stopped`. Whoever cannot wait presses Ctrl-C again. The
trade-off: a stop takes as long as the step under way and one save.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from alembert.errors import Interrupted


class Stopped(Interrupted):
    """A run was asked to end, and has saved its state."""

    def __init__(self, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"Stopped by {name}: the state is saved. Run the same command again to continue.", number)


class Stopping:
    """Note requests to stop while the block runs; outside of the main thread, where Python allows no handlers, do nothing.

    A process forked inside the block inherits this deafness to SIGTERM.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        """Number of the first signal that came; none: go on."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # SIGINT first, and last to be restored: it raises, and a SIGTERM handler must not stay behind.
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, or in a script's background
                    self._before[number] = signal.signal(number, self._note) or signal.SIG_DFL
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
