"""The harness of the benchmarks: fair rounds, honest notes, and a page that nobody edits by hand."""

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from benchmark_modules import BENCHMARKS, load_benchmark

rounds, harness, records = load_benchmark("rounds"), load_benchmark("harness"), load_benchmark("benchmark_records")
goals, every = load_benchmark("goals"), load_benchmark("all")


@pytest.mark.parametrize("name", ["rounds", "harness", "benchmark_records", "goals", "peaks", "all", "labelling"])
def test_examples(name: str) -> None:
    assert doctest.testmod(load_benchmark(name)).failed == 0


# -- rounds


def sides_of(seen: list[str], **costs: list[float]) -> dict[str, Any]:
    """Make sides that note when they were called, and cost what is listed, again and again."""

    def side(name: str, values: Iterator[float]) -> Any:
        def cost() -> float:
            seen.append(name)
            return next(values)

        return cost

    return {name: side(name, cycle(values)) for name, values in costs.items()}


def test_sides_take_turns_in_both_orders() -> None:
    seen: list[str] = []
    rounds.take_rounds(sides_of(seen, ours=[1.0], peer=[2.0]), seconds=0, warm=False)
    assert seen == ["ours", "peer", "peer", "ours", "ours", "peer", "peer", "ours", "ours", "peer"]


def test_there_are_at_least_five_rounds_whatever_the_time() -> None:
    assert rounds.take_rounds(sides_of([], ours=[1.0], peer=[2.0]), seconds=0).count == 5


def test_rounds_go_on_while_the_ratio_is_uncertain() -> None:
    noisy = sides_of([], ours=[1.0], peer=[1.0, 3.0, 2.0])
    assert rounds.take_rounds(noisy, seconds=60).count == rounds.MOST


def test_a_ratio_is_the_median_of_those_inside_rounds() -> None:
    """A machine that slows down for both in one round changes nothing."""
    measured = rounds.Rounds({"ours": [1.0, 10.0, 1.0], "peer": [2.0, 20.0, 2.0]}, other_load=0.0)
    assert measured.ratio("ours", "peer") == rounds.Spread(2.0, 2.0, 2.0)


def test_the_load_of_others_is_what_neither_we_nor_our_children_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "busy_seconds", iter([10.0, 13.0]).__next__)
    monkeypatch.setattr(rounds, "own_seconds", iter([1.0, 2.0]).__next__)
    monkeypatch.setattr(rounds.time, "perf_counter", iter([0.0, 2.0]).__next__)
    monkeypatch.setattr(rounds.os, "cpu_count", lambda: 2)
    load = rounds.OtherLoad()
    with load:
        pass
    assert load.share == 0.5


def test_the_time_of_children_is_our_own() -> None:
    before = rounds.own_seconds()
    work = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    assert rounds.own_seconds() >= before + 0.1


# -- the report


def test_a_busy_machine_is_said_in_the_text_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    measured = rounds.Rounds({"ours": [2.0] * 5, "peer": [4.0] * 5}, other_load=0.3)
    harness.report({"speed": harness.compare(measured, "ours", "peer", unit="tokens/s", work=100)}, [measured])
    *text, line = capsys.readouterr().out.splitlines()
    assert "the machine is busy: figures are too low, and ratios uncertain" in text
    assert json.loads(line) == {
        "ratios": {"speed": 2.0},
        "spread": {"speed": [2.0, 2.0]},
        "figures": {"speed": {"unit": "tokens/s", "ours": 50.0, "peer": 25.0, "against": "peer"}},
        "limits": {},
        "rounds": 5,
        "other_load": 0.3,
    }


def test_a_missing_peer_is_named_with_what_installs_it() -> None:
    with pytest.raises(SystemExit, match=r"not installed: no_such_peer \(python -m pip install -r benchmarks/"):
        harness.need_peers("json", "no_such_peer")


# -- the page


def test_the_page_is_what_the_records_give() -> None:
    text = records.PAGE.read_text(encoding="utf8")
    assert records.page(text, records.Records.read()) == text, "run python benchmarks/benchmark_records.py"


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    stored = records.Records.read()
    stored.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == records.STORE.read_bytes()


def test_every_benchmark_of_the_catalogue_is_there() -> None:
    assert [each.script for each in goals.CATALOGUE if not (BENCHMARKS / f"{each.script}.py").is_file()] == []


def row_of(**known: Any) -> str:
    """Return the line of the page for a figure of `finetune`."""
    figure = records.Figure(ratio=2.5, spread=(2.4, 2.6), ours=2000.0, peer=800.0, unit="tokens/s", against="Trainer")
    record = records.Record(
        **({"benchmark": "finetune", "machine": "A", "form": "full", "date": "2026-01-02"} | known),
        figures={"trainer": figure},
    )
    lines = list(records.tables(records.Records({"A": "ARM, 4 cores"}, [record])))
    return next(line for line in lines if "tuning" in line)


def test_a_line_of_the_page_has_ratio_goal_figures_machine_and_command() -> None:
    assert row_of(other_load=0.0).split(" | ")[1:] == [
        *("**2.5** (2.4 to 2.6)", "2.8, **missed**", "2,000 tokens/s", "800 (Trainer)", ""),
        *("A, full, 2026-01-02", "`finetune.py` |"),
    ]


def test_the_page_marks_busy_machines_and_figures_from_before_the_harness() -> None:
    assert "2026-01-02; busy, others took 30% |" in row_of(other_load=0.3)
    assert "2026-01-02 † |" in row_of()


# -- all of them


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let all.py write into a folder, with benchmarks that only note their name; `encode` fails."""
    names: list[str] = []

    def run(benchmark: Any, *, quick: bool) -> tuple[dict[str, Any] | None, bool]:
        names.append(benchmark.name)
        line = {"ratios": {"trainer": 2.5}, "other_load": 0.0, "rounds": 5}
        return (None, False) if benchmark.name == "encode" else (line, True)

    (tmp_path / "page.md").write_text(f"{records.BEGIN}{records.END}")
    read, write, write_page = records.Records.read, records.Records.write, records.write_page
    monkeypatch.setattr(every, "run", run)
    monkeypatch.setattr(every, "trains_in_bfloat16", lambda: False)
    monkeypatch.setattr(records.Records, "read", lambda: read(tmp_path / "store.json"))
    monkeypatch.setattr(records.Records, "write", lambda self: write(self, tmp_path / "store.json"))
    monkeypatch.setattr(every, "write_page", lambda found: write_page(found, tmp_path / "page.md"))
    return names


def run_all(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["all.py", *arguments])
    every.main()


def test_what_has_a_result_of_today_is_not_run_again(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for more in ([], [], ["--again"]):
        run_all(monkeypatch, "--quick", "--only", "finetune", "pipe", *more)
    names = ["finetune", "pipe"]
    assert [name for name in runs if name in names] == names * 2


def test_the_page_is_written_after_each_benchmark(
    runs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_all(monkeypatch, "--only", "pipe", "finetune bfloat16")
    assert "both sides in bfloat16 | **2.5** |" in (tmp_path / "page.md").read_text()


def test_benchmarks_that_fail_are_named_at_the_end(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="these benchmarks failed: encode"):
        run_all(monkeypatch, "--only", "encode", "pipe")
    assert runs == ["encode", "pipe"]


@pytest.mark.parametrize("code", [0, 1])
def test_the_line_of_a_benchmark_is_kept_and_its_exit_code_seen(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up.py").write_text(f"print('text'); print('{{\"ratios\": {{\"speed\": 2}}}}'); exit({code})")
    monkeypatch.setattr(every, "HERE", tmp_path)
    line, is_sound = every.run(goals.Benchmark("made_up", ()), quick=True)
    assert line is not None
    assert (line["ratios"], 0 <= line["other_load"] <= 1, is_sound) == ({"speed": 2}, True, code == 0)


def test_an_unknown_benchmark_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="there is no benchmark 'nonsense'"):
        run_all(monkeypatch, "--only", "nonsense")
