"""The progress line: drawn on a terminal, told now and then elsewhere, with share, rate and time left."""

import fcntl
import io
import os
import re
import struct
import termios
from collections.abc import Callable
from dataclasses import replace

import pytest

from alembert import terminal as module
from alembert.corpus.jobs import Progress
from alembert.terminal import ProgressBar, format_progress, format_training_progress
from alembert.train.runlog import TrainingProgress

TRAINING = TrainingProgress(
    share=0.42, loss=3.2149, tokens_per_second=3150.4, peak_share=0.64, seconds_left=2467.0, step=1200
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_share_rate_and_time_left() -> None:
    text = format_progress(Progress("building", 50, 100, 3_000_000), fresh=25, seconds=6.0)
    assert text.endswith(" 50%  0.50 M characters/s, 0:12 left")


def test_what_a_stopped_run_had_done_does_not_count_as_speed() -> None:
    assert "left" not in format_progress(Progress("building", 50, 100), fresh=0, seconds=6.0)


def test_an_unknown_total_shows_the_phase_alone() -> None:
    assert (
        format_progress(Progress("looking for duplicates", 0, 0), fresh=0, seconds=1.0) == "looking for duplicates ..."
    )


def test_the_line_is_gone_at_the_end() -> None:
    stream = Terminal()
    with ProgressBar(stream) as bar:
        bar.show(Progress("writing", 1, 2))
    assert "writing" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_file_gets_nothing() -> None:
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar.show(Progress("writing", 1, 2))
    assert stream.getvalue() == ""


def on_a_terminal(columns: int, draw: Callable[[ProgressBar], None]) -> str:
    """Return what a real terminal of this width is sent, without the codes that clear the line."""
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(inner, "w", encoding="utf8") as stream, ProgressBar(stream) as bar:
        draw(bar)
        sent = os.read(outer, 10_000).decode()
    os.close(outer)
    return re.sub(r"\r|\x1b\[K", "", sent)


def test_a_training_line_says_all() -> None:
    assert format_training_progress(TRAINING, cells=0) == (
        "pre-training  42%  step 1,200  loss 3.21  3,150 tokens/s (64% of peak)  0:41:07 left"
    )


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"loss": None}, "loss"),
        ({"peak_share": None}, "peak"),
        ({"seconds_left": float("inf")}, "left"),
        ({"seconds_left": float("nan")}, "left"),
    ],
)
def test_what_is_not_known_is_not_told(change: dict[str, float | None], missing: str) -> None:
    assert missing not in format_training_progress(replace(TRAINING, **change))


def test_long_runs_are_told_in_days() -> None:
    assert format_training_progress(replace(TRAINING, seconds_left=200_000.0)).endswith("  2 days, 7:33:20 left")


@pytest.mark.parametrize("columns", [20, 60, 80, 100, 132, 300])
def test_a_training_line_never_wraps(columns: int) -> None:
    assert len(on_a_terminal(columns, lambda bar: bar.show_training(TRAINING))) < columns


def test_a_usual_terminal_shows_bar_and_time_left() -> None:
    text = on_a_terminal(80, lambda bar: bar.show_training(TRAINING))
    assert re.fullmatch("pre-training █+░+  42%  step 1,200  loss 3.21  3,150 tokens/s  0:41:07 left", text)


def test_a_wide_terminal_shows_the_share_of_the_peak_too() -> None:
    text = on_a_terminal(132, lambda bar: bar.show_training(TRAINING))
    assert text == format_training_progress(TRAINING, cells=24)


def test_other_lines_do_not_wrap_either() -> None:
    text = on_a_terminal(40, lambda bar: bar.show(Progress("building the corpus", 50, 100)))
    assert re.fullmatch("building the corpus █+░+  50%", text)
    assert len(text) == 39


def test_a_file_gets_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with ProgressBar(stream, plain_every=60) as bar:
        for step, now in enumerate((1000.0, 1030.0, 1059.0, 1060.0, 1119.0, 1121.0)):  # noqa: B007
            bar.show_training(replace(TRAINING, step=step))
    told = [re.findall(r"step \d+", text) for text in stream.getvalue().splitlines()]
    assert told == [["step 0"], ["step 3"], ["step 5"]]


def test_a_plain_line_is_plain() -> None:
    stream = io.StringIO()
    with ProgressBar(stream, plain_every=60) as bar:
        bar.show_training(TRAINING)
    assert stream.getvalue() == format_training_progress(TRAINING, cells=0) + "\n"
    assert stream.getvalue().isascii()
