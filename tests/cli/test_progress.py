"""The progress line: on a terminal only, with share, rate and time left."""

import io

from alembert.cli.progress import Bar, line
from alembert.corpus.jobs import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_share_rate_and_time_left() -> None:
    text = line(Progress("building", 50, 100, 3_000_000), fresh=25, seconds=6.0)
    assert text.endswith(" 50%  0.50 M characters/s, 0:12 left")


def test_what_a_stopped_run_had_done_does_not_count_as_speed() -> None:
    assert "left" not in line(Progress("building", 50, 100), fresh=0, seconds=6.0)


def test_an_unknown_total_shows_the_phase_alone() -> None:
    assert (
        line(Progress("looking for duplicates", 0, 0), fresh=0, seconds=1.0) == "looking for duplicates ..."
    )


def test_the_line_is_gone_at_the_end() -> None:
    stream = Terminal()
    with Bar(stream) as bar:
        bar.show(Progress("writing", 1, 2))
    assert "writing" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_file_gets_nothing() -> None:
    stream = io.StringIO()
    with Bar(stream) as bar:
        bar.show(Progress("writing", 1, 2))
    assert stream.getvalue() == ""
