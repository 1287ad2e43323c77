"""`alembert doctor` shows the same facts as a table and as JSON, and says plainly when AMX cannot be used."""

import io
import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from alembert import hardware
from alembert.cli import run
from alembert.cli.doctor import build_doctor_report, print_report, torch_build
from alembert.hardware.environment import ISA_VARIABLE, OWN_VARIABLES, Cpu
from alembert.hardware.trials import Prober

XEON = Cpu("Intel Xeon", frozenset({"avx2", "avx512f", "amx_tile", "amx_bf16", "amx_int8"}))
CHILD = """
import json, os, signal, sys
for t in sys.argv[3:]:
    print(json.dumps({"begin": t}), flush=True)
    if t == "bfloat16" and "ONEDNN_MAX_CPU_ISA" not in os.environ:
        os.kill(os.getpid(), signal.SIGILL)
    speed = 3.0 if t == "float16" else 140.0
    print(json.dumps({"type": t, "one_thread": speed, "all_threads": speed, "training": speed}), flush=True)
"""


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path) -> Iterator[None]:
    clean = {
        name: value for name, value in os.environ.items() if name not in {ISA_VARIABLE, OWN_VARIABLES, "GOMP_SPINCOUNT"}
    }
    with mock.patch.dict(os.environ, {**clean, "ALEMBERT_CACHE": str(tmp_path / "cache")}, clear=True):
        yield


@pytest.fixture
def prober(tmp_path: Path) -> Prober:
    (tmp_path / "child.py").write_text(CHILD)
    return Prober(command=(sys.executable, "-S", str(tmp_path / "child.py")))


@pytest.fixture
def known(prober: Prober) -> None:
    """Put an answer for this very machine into the cache."""
    hardware.detect_capabilities(prober=prober)


def table(report: dict[str, object], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    print_report(report, console)
    return console.file.getvalue()


def test_says_that_amx_is_unusable(prober: Prober) -> None:
    report = build_doctor_report(hardware.detect_capabilities(cpu=XEON, prober=prober))
    text = " ".join(table(report).split())
    assert "The CPU advertises AMX, but it is unusable here: bfloat16 in torch was killed by SIGILL." in text


def test_verdicts_are_told(prober: Prober) -> None:
    report = build_doctor_report(hardware.detect_capabilities(cpu=XEON, prober=prober))
    unlimited = {t["dtype"]: t["verdict"] for t in report["types"] if t["library"] == "torch" and not t["limit"]}
    assert unlimited == {
        "float32": "works",
        "bfloat16": "killed by SIGILL",
        "float16": "too slow",
        "int8": "works",
    }


def test_table_fits_80_columns(prober: Prober) -> None:
    report = build_doctor_report(hardware.detect_capabilities(cpu=XEON, prober=prober))
    lines = [line for line in table(report).splitlines() if not line.startswith("Stored in")]
    assert max(map(len, lines)) <= 80


def test_json_is_one_object_with_all_parts(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    parts = {"machine", "libraries", "types", "instruction_sets", "choices", "environment", "cache"}
    assert set(json.loads(capsys.readouterr().out)) == parts


@pytest.mark.parametrize(
    ("facts", "build"),
    [("cuda = None", "CPU"), ("cuda = '12.8'\nhip = None", "CUDA 12.8"), ("hip = '6.4'", "ROCm 6.4")],
)
def test_the_build_of_torch_is_told(facts: str, build: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version.py").write_text(facts)
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("alembert.cli.doctor.find_spec", lambda _: spec)
    assert torch_build() == build


def test_what_is_not_installed_has_a_purpose_and_an_extra(prober: Prober) -> None:
    report = build_doctor_report(hardware.detect_capabilities(cpu=XEON, prober=prober))
    report["libraries"]["torch"] |= {"version": None, "build": None}
    text = " ".join(table(report).split())
    assert "torch not installed runs and trains Checkpoints (pip install 'alembert[train]')" in text


def test_every_choice_has_a_reason(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--json"])
    assert all(choice["reason"] for choice in json.loads(capsys.readouterr().out)["choices"].values())


def test_a_remembered_answer_needs_no_note(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor"])
    assert capsys.readouterr().err == ""


def test_a_variable_of_the_user_is_shown_as_kept(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ["GOMP_SPINCOUNT"] = "77"
    run(["doctor", "--json"])
    shown = {v["name"]: v for v in json.loads(capsys.readouterr().out)["environment"]}
    assert (shown["GOMP_SPINCOUNT"]["value"], shown["GOMP_SPINCOUNT"]["origin"]) == ("77", "user")


def test_no_color_is_honoured(known: None, capsys: pytest.CaptureFixture[str]) -> None:
    os.environ.update(NO_COLOR="1", FORCE_COLOR="1")
    run(["doctor"])
    assert "\x1b[3" not in capsys.readouterr().out


def test_probing_is_announced_on_stderr(
    monkeypatch: pytest.MonkeyPatch, prober: Prober, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("alembert.hardware.capabilities.Prober", lambda: prober)
    run(["doctor", "--json", "--refresh"])
    shown = capsys.readouterr()
    assert "testing numeric types" in shown.err
    assert json.loads(shown.out)
