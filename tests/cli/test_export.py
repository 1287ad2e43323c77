"""`alembert export` on the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.hardware.capabilities import Capabilities, ReasonedChoice
from small_checkpoints import fine_tuned, fine_tuned_together

INT8 = ["export", "ner", "--calibrate", "examples.jsonl", "--set", "calibration_rows=6", "--set", "run.speed=false"]
GUARDED = """
import socket, sys
def refuse(*arguments, **more):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from alembert.cli import run
code = max(run([*sys.argv[1:], "--format", form, "--out", form]) for form in ("onnx", "openvino"))
sys.exit("telemetry was loaded" if sys.modules.get("openvino_telemetry") is not None else code)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fine_tuned("tag", Path("ner"), Path("examples.jsonl"))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_int8_is_written_and_told(command: Any) -> None:
    code, out, err = command(*INT8, "--set", "max_score_loss=100", "--out", "int8")
    assert code == 0
    assert out.startswith("int8: runs without torch\n")
    assert "int8, calibrated on 6 rows of text" in out
    assert "f1 on 24 examples" in out
    assert "note: calibrating int8 on 6 rows of text" in err


def test_fp32_needs_no_text(command: Any) -> None:
    code, out, _ = command("export", "ner", "--fp32", "--out", "fp32", "--json")
    assert code == 0
    assert json.loads(out)["facts"]["precision"] == "fp32"
    assert json.loads(out)["measured"]["judged"] == 0


def test_the_export_predicts(command: Any) -> None:
    command("export", "ner", "--fp32", "--out", "fp32")
    code, out, _ = command("predict", "fp32", "aspirin", "--json")
    assert code == 0
    assert json.loads(out)["text"] == "aspirin"


def test_a_labelled_file_is_what_the_loss_is_measured_on(command: Any) -> None:
    lines = Path("examples.jsonl").read_text().splitlines()
    Path("dev.jsonl").write_text("\n".join(lines[:5]) + "\n")
    _, out, _ = command(*INT8, "--set", "max_score_loss=100", "--dev", "dev.jsonl", "--out", "int8", "--json")
    assert json.loads(out)["measured"]["judged"] == 5


def test_plain_text_calibrates_and_answers_are_compared(command: Any) -> None:
    Path("texts.txt").write_text("aspirin and sepsis\n\nno fever\n")
    code, out, _ = command(
        "export", "ner", "--calibrate", "texts.txt", "--set", "run.speed=false", "--out", "int8", "--json"
    )
    measured = json.loads(out)["measured"]
    assert code == 0
    assert (measured["judged"], measured["fp32"]) == (2, None)
    assert measured["same_answers"] is not None


def test_lines_that_cannot_be_used_are_told(command: Any) -> None:
    with Path("examples.jsonl").open("a") as file:
        file.write("nonsense\n")
    code, _, err = command(*INT8, "--set", "max_score_loss=100", "--out", "int8")
    assert code == 3
    assert "line 25 set aside" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export", "ner", "--out", "new"], "int8 is calibrated on text of the task, and none was given"),
        (
            ["export", "ner", "--fp32", "--calibrate", "examples.jsonl", "--out", "new"],
            "--calibrate belongs to int8",
        ),
        (["export", "nowhere", "--fp32", "--out", "new"], "nowhere"),
        (["export", "ner", "--calibrate", "nowhere.tsv", "--out", "new"], "The input nowhere.tsv"),
        (["export", "ner", "--fp32", "--dev", "nowhere.tsv", "--out", "new"], "The input nowhere.tsv"),
        (["export", "ner", "--format", "tf", "--fp32", "--out", "new"], "which is not one of 'openvino', 'onnx' or"),
        (["export", "ner", "--fp32", "--out", "ner"], "is a Checkpoint; an Export will not replace it"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: list[str], sentence: str, command: Any) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not Path("new").exists()


def test_an_export_that_is_there_is_replaced_on_request_alone(command: Any) -> None:
    again = ("export", "ner", "--fp32", "--out", "fp32")
    assert command(*again)[0] == 0
    code, _, err = command(*again)
    assert code == 2
    assert "--overwrite" in err
    assert command(*again, "--overwrite")[0] == 0


def test_without_openvino_it_says_how_to_install_it(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    code, _, err = command("export", "ner", "--format", "openvino", "--fp32", "--out", "fp32")
    assert code == 2
    assert "pip install 'alembert[openvino]'" in err


def test_without_onnx_it_says_how_to_install_it(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, err = command("export", "ner", "--format", "onnx", "--fp32", "--out", "fp32")
    assert code == 2
    assert "pip install 'alembert[train]'" in err


def test_the_format_is_that_of_the_faster_library_and_said(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = ReasonedChoice("onnxruntime", "It is the fastest.")
    monkeypatch.setattr(Capabilities, "library_for", lambda found, dtype: verdict)
    code, out, err = command("export", "ner", "--fp32", "--out", "fp32")
    assert code == 0
    assert "note: format onnx: It is the fastest." in err
    assert "onnxruntime" in out
    assert Path("fp32/model.onnx").is_file()


def test_onnx_has_int8_numbers_too(command: Any) -> None:
    code, out, _ = command(*INT8, "--set", "max_score_loss=100", "--format", "onnx", "--out", "onnx")
    assert code == 0
    assert "int8, calibrated on 6 rows of text" in out
    assert command("predict", "onnx", "aspirin", "--json")[0] == 0


@pytest.fixture
def _several(tmp_path: Path) -> None:
    fine_tuned_together({"ner": "tag", "topic": "classify"}, Path("both"), tmp_path)


@pytest.mark.usefixtures("_several")
def test_several_tasks_have_files_of_their_names(command: Any) -> None:
    files = ["--calibrate", "ner=ner.jsonl", "--calibrate", "topic=topic.jsonl", "--dev", "topic=topic.jsonl"]
    options = ["--set", "calibration_rows=6", "--set", "max_score_loss=100", "--set", "run.speed=false", "--json"]
    code, out, _ = command("export", "both", *files, *options, "--out", "int8")
    assert code == 0
    assert {name: each["judged"] for name, each in json.loads(out)["tasks"].items()} == {
        "ner": 24,
        "topic": 24,
    }
    assert json.loads(command("predict", "int8", "aspirin", "--json")[1]).keys() == {"ner", "topic"}


@pytest.mark.usefixtures("_several")
@pytest.mark.parametrize("word", ["ner.jsonl", "other=ner.jsonl"])
def test_a_file_of_several_tasks_says_whose_it_is(word: str, command: Any) -> None:
    code, _, err = command("export", "both", "--calibrate", word, "--out", "new")
    assert code == 2
    assert "name the task of each file, as in --calibrate ner=FILE" in err


def test_no_connection_is_attempted() -> None:
    arguments = [*INT8, "--set", "max_score_loss=100"]
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path("openvino/model.xml").is_file()
    assert Path("onnx/model.onnx").is_file()
