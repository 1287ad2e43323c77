"""`alembert bench` on the command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run
from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.files import checkpoint as checkpoints
from small_checkpoints import fine_tuned

FAST = ["--seconds", "0.02", "--device", "cpu"]
# An Export runs without torch, and so does measuring it; nothing connects.
GUARDED = """
import socket, sys
def refuse(*arguments, **more):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from alembert.cli import run
code = run(sys.argv[1:])
heavy = {"torch", "transformers", "nncf"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else code)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    fine_tuned("tag", folder / "ner", folder / "examples.jsonl")
    export(
        checkpoints.open(folder / "ner"),
        folder / "export",
        ExportSettings(format="openvino", precision="fp32"),
    )
    lines = [json.dumps({"id": str(n), "text": f"case {n}: no fever"}) for n in range(12)]
    (folder / "texts.jsonl").write_text("\n".join([*lines, "{"]) + "\n")
    (folder / "table.tsv").write_text("note\tid\nno fever\t1\na cough\t2\n")
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(place)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["bench", *arguments, *FAST])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def test_speed_size_start_and_peers_are_printed(command: Any) -> None:
    code, out, err = command("ner", "texts.jsonl", "--limit", "12")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ner, task tag, torch, on texts.jsonl"
    assert " ".join(lines[1].split()) == "documents/s tokens/s p50 ms p90 ms p99 ms this model is"
    assert [line.split("  ")[0] for line in lines[2:5]] == [
        "this model",
        "transformers pipeline",
        "transformers, batches of 32 sorted by length",
    ]
    assert "MB in the folder;" in out
    assert "s from opening it to the first prediction" in out
    assert (
        "Not measured: the same library without settings, batches of 32 as they come, because it is for Exports" in out
    )


def test_long_texts_have_a_line_of_their_own(command: Any) -> None:
    code, out, _ = command("ner", "examples.jsonl", "texts.jsonl", "--limit", "30")
    assert code == 0
    assert "this model, short texts" in out
    assert "24 texts need several windows" in out


def test_json_is_one_object(command: Any) -> None:
    code, out, _ = command("export", "texts.jsonl", "--limit", "12", "--json")
    table = json.loads(out)
    assert code == 0
    assert (table["texts"], table["engine"]) == (12, "openvino fp32")
    assert table["tokens_per_second"] > table["documents_per_second"] > 0


def test_what_is_set_aside_is_named_and_the_exit_code_is_3(command: Any) -> None:
    code, out, err = command("export", "texts.jsonl")
    assert code == 3
    assert out.startswith("export, task tag, openvino fp32, on texts.jsonl\n")
    assert "texts.jsonl, line 13 set aside" in err


def test_the_column_of_the_text_can_be_named(command: Any) -> None:
    code, out, _ = command("export", "table.tsv", "--text", "note", "--json")
    assert (code, json.loads(out)["texts"]) == (0, 2)


def test_a_folder_without_a_model_is_a_sentence(command: Any) -> None:
    code, out, err = command("nowhere", "texts.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "nowhere" in err


def test_an_export_is_measured_without_torch_and_without_connections(place: Path) -> None:
    arguments = ["bench", "export", "texts.jsonl", "--limit", "12", *FAST]
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "openvino fp32" in done.stdout
