"""The first request to stop is noted, a second Ctrl-C is obeyed at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from alembert.train.run import StopSignalHandler, TrainingInterrupted

BOTH = [signal.SIGINT, signal.SIGTERM]


@contextmanager
def handlers(handler: object) -> Iterator[None]:
    """Run a block with known handlers, and leave the test runner's as they were."""
    before = {number: signal.signal(number, handler) for number in BOTH}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_only_noted(number: signal.Signals) -> None:
    with StopSignalHandler() as stopping:
        assert stopping.requested is None
        signal.raise_signal(number)
        assert stopping.requested == number


@pytest.mark.parametrize("first", BOTH)
def test_ctrl_c_after_a_request_interrupts(first: signal.Signals) -> None:
    with StopSignalHandler() as stopping:
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stopping.requested == first


@pytest.mark.parametrize("first", BOTH)
def test_a_second_sigterm_changes_nothing(first: signal.Signals) -> None:
    with StopSignalHandler() as stopping:
        signal.raise_signal(first)
        signal.raise_signal(signal.SIGTERM)
        assert stopping.requested == first


def test_old_handlers_are_restored() -> None:
    seen: list[int] = []
    with handlers(lambda number, _: seen.append(number)):
        with pytest.raises(ZeroDivisionError), StopSignalHandler():
            raise ZeroDivisionError
        for number in BOTH:
            signal.raise_signal(number)
    assert seen == BOTH


def test_default_handlers_are_restored() -> None:
    with handlers(signal.SIG_DFL):
        with StopSignalHandler():
            pass
        assert [signal.getsignal(number) for number in BOTH] == [signal.SIG_DFL, signal.SIG_DFL]


def test_ignored_signals_stay_ignored() -> None:
    with handlers(signal.SIG_IGN), StopSignalHandler() as stopping:
        for number in BOTH:
            signal.raise_signal(number)
        assert stopping.requested is None


def test_elsewhere_it_does_nothing() -> None:
    found: list[bool] = []

    def run() -> None:
        before = [signal.getsignal(number) for number in BOTH]
        with StopSignalHandler() as stopping:
            same = [signal.getsignal(number) for number in BOTH] == before
            found.append(same and stopping.requested is None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_says_what_to_do(number: signal.Signals, code: int) -> None:
    stopped = TrainingInterrupted(int(number))
    assert stopped.exit_code == code
    assert str(stopped) == f"Stopped by {number.name}: the state is saved. Run the same command again to continue."
