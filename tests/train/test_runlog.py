"""The run log: every row at once on the disk, none twice after a resume, numbers that any JSON reader takes."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alembert.errors import BadFile
from alembert.train.runlog import LOG_FILE, RunLog

floats = st.floats(allow_subnormal=False)  # training flushes them in this process
values = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name not in ("kind", "self", "step")),
    st.none() | st.integers() | floats | st.dictionaries(st.text(), floats),
    max_size=4,
)


def quiet(folder: Path) -> RunLog:
    return RunLog(folder, tensorboard=False)


def steps(log: RunLog) -> list[int]:
    return [row["step"] for row in log.rows()]


def tear(folder: Path) -> None:
    """Leave half a row at the end, as a kill does."""
    with (folder / LOG_FILE).open("ab") as file:
        file.write(b'{"kind": "step", "st')


def test_a_row_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    quiet(tmp_path / "run").write("step", step=1, loss=6.1, losses={"masked_lm": 6.1})
    [row] = quiet(tmp_path / "run").rows()
    assert row == {"kind": "step", "step": 1, "loss": 6.1, "losses": {"masked_lm": 6.1}}


def test_rows_are_found_by_kind(tmp_path: Path) -> None:
    log = quiet(tmp_path)
    log.write("step", step=1)
    log.write("held_out", step=1, scores={})
    assert [row["kind"] for row in log.rows("held_out")] == ["held_out"]


def test_a_log_that_is_only_read_makes_no_file(tmp_path: Path) -> None:
    log = quiet(tmp_path / "run")
    assert (list(log.rows()), log.position) == ([], 0)
    log.sync()
    assert not (tmp_path / "run").exists()


def test_floats_keep_six_digits(tmp_path: Path) -> None:
    quiet(tmp_path).write("step", step=1, rate=9.123456789e-05, tokens=123456789)
    assert '"rate": 9.12346e-05, "tokens": 123456789' in (tmp_path / LOG_FILE).read_text()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_null(number: float, tmp_path: Path) -> None:
    quiet(tmp_path).write("step", step=1, losses={"masked_lm": number})
    assert next(quiet(tmp_path).rows())["losses"] == {"masked_lm": None}


@given(rows=st.lists(values, max_size=5))
def test_every_line_is_strict_json(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    log = quiet(folder)
    for number, row in enumerate(rows):
        log.write("step", step=number, **row)
    assert steps(log) == list(range(len(rows)))
    for line in (folder / LOG_FILE).read_bytes().splitlines() if rows else ():
        json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


@given(before=st.integers(0, 4), after=st.integers(0, 4), torn=st.booleans())
def test_a_resumed_log_equals_an_uninterrupted_one(
    before: int, after: int, torn: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    first = quiet(folder)
    for number in range(before):
        first.write("step", step=number)
    first.sync()
    position = first.position
    for number in range(before, before + after):
        first.write("step", step=number)
    if torn:
        tear(folder)
    resumed = quiet(folder)
    resumed.rewind(position)
    for number in range(before, before + after + 1):
        resumed.write("step", step=number)
    assert steps(resumed) == list(range(before + after + 1))
    assert resumed.position == (folder / LOG_FILE).stat().st_size


def test_half_a_row_is_no_row_and_is_written_over(tmp_path: Path) -> None:
    quiet(tmp_path).write("step", step=1)
    tear(tmp_path)
    assert steps(quiet(tmp_path)) == [1]
    quiet(tmp_path).write("step", step=2)
    assert steps(quiet(tmp_path)) == [1, 2]


def test_a_log_shorter_than_the_state_knew_is_told(tmp_path: Path) -> None:
    log = quiet(tmp_path)
    log.write("step", step=1)
    with pytest.warns(UserWarning, match="rows are lost"):
        log.rewind(10_000)
    log.write("step", step=3)
    assert steps(log) == [1, 3]


@pytest.mark.parametrize("damage", [b"nonsense\n", b"[1]\n", b"{}\n", b"\xff\n"])
def test_a_damaged_row_is_named(damage: bytes, tmp_path: Path) -> None:
    log = quiet(tmp_path)
    log.write("step", step=1)
    with (tmp_path / LOG_FILE).open("ab") as file:
        file.write(damage)
    with pytest.raises(BadFile, match="Line 2 of"):
        list(log.rows())


class Writer:
    """Stands for TensorBoard's writer, which is no dependency."""

    made: list["Writer"]

    def __init__(self, folder: Path, purge_step: int) -> None:
        self.folder, self.purge_step = folder, purge_step
        self.scalars: list[tuple[str, float, int]] = []
        self.calls: list[str] = []
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module: Any = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    Writer.made = []
    return Writer.made


def test_tensorboard_gets_the_numbers(tmp_path: Path, writers: list[Writer]) -> None:
    log = RunLog(tmp_path)
    log.write("step", step=7, loss=6.5, losses={"masked_lm": 6.0}, norm=float("nan"))
    log.write("held_out", step=7, scores={"masked_lm, entities": {"accuracy": 0.25}})
    log.write("event", what="resumed", step=7)
    [writer] = writers
    assert writer.folder == tmp_path / "tensorboard"
    assert writer.scalars == [
        ("step/loss", 6.5, 7),
        ("step/losses/masked_lm", 6.0, 7),
        ("held_out/scores/masked_lm, entities/accuracy", 0.25, 7),
    ]


def test_tensorboard_forgets_what_the_log_forgets(tmp_path: Path, writers: list[Writer]) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2, 3):
        log.write("step", step=step, loss=1.0)
    log.rewind(0)
    log.write("step", step=1, loss=2.0)
    assert writers[0].calls == ["close"]
    assert writers[1].purge_step == 1


def test_a_synced_log_is_in_tensorboard(tmp_path: Path, writers: list[Writer]) -> None:
    log = RunLog(tmp_path)
    log.write("step", step=1, loss=1.0)
    log.sync()
    assert writers[0].calls == ["flush"]


def test_tensorboard_can_be_switched_off(tmp_path: Path, writers: list[Writer]) -> None:
    quiet(tmp_path).write("step", step=1, loss=1.0)
    assert writers == []


def test_without_tensorboard_the_log_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = ModuleType("nothing")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", nothing)
    RunLog(tmp_path).write("step", step=1, loss=1.0)
    assert steps(RunLog(tmp_path)) == [1]
