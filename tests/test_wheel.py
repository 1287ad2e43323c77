"""The wheel, installed without extras: complete, small, and enough to put an Export to work."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.files import checkpoint as checkpoints
from bare_environment import (
    ROOT,
    build_wheel,
    install_wheel,
    make_environment,
    megabytes,
    required,
    runtime_needs,
)
from small_checkpoints import fine_tuned

LARGEST = 250
"""Megabytes that the runtime may take."""
LOADED = """
import alembert
from alembert.infer.task_model import TaskModel
model = TaskModel.open("export")
(found,) = model.predict(["Fever after aspirin."])
print(model.engine.name)
"""


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel and what it requires, and a folder to work in."""

    wheel: Path
    python: Path
    work: Path
    size: float

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; nothing of this repository can be seen from it."""
        hidden = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
        clean = {name: value for name, value in os.environ.items() if name not in hidden}
        program, *arguments = map(str, command)
        return subprocess.run(
            [self.python.with_name(program), *arguments],
            cwd=self.work,
            env={**clean, "ALEMBERT_CACHE": str(self.work / "cache")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("wheel")
    try:
        wheel = build_wheel(place)
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"the wheel cannot be built: hatchling is not installed, and not fetched ({problem})")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(place / "content")
    (info,) = (place / "content").glob("*.dist-info")
    needs = required(runtime_needs(PathDistribution(info)))
    python = make_environment(place / "environment", needs.values())
    install_wheel(python, wheel)
    (site,) = (place / "environment").glob("lib/python*/site-packages")
    own = PathDistribution(site / info.name)
    return Installed(wheel, python, prepared(place / "work"), megabytes([*needs.values(), own]))


def prepared(work: Path) -> Path:
    """Write a tagger as an Export, labelled examples, and a document."""
    work.mkdir()
    fine_tuned("tag, crf", work / "checkpoint", work / "examples.jsonl")
    settings = ExportSettings(format="onnx", precision="fp32")
    export(checkpoints.open(work / "checkpoint"), work / "export", settings)
    (work / "notes.jsonl").write_text(json.dumps({"id": "1", "text": "Fever after aspirin."}) + "\n")
    return work


def test_the_wheel_holds_everything(installed: Installed) -> None:
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(installed.wheel) as content:
        found = {name for name in content.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {"alembert/py.typed", "alembert/sample/english.jsonl"} <= found


def test_the_runtime_is_small(installed: Installed) -> None:
    assert installed.size <= LARGEST


def test_the_environment_has_no_extra(installed: Installed) -> None:
    check = "import sys; from importlib.util import find_spec; sys.exit(any(map(find_spec, sys.argv[1:])))"
    extras = ("torch", "pyarrow", "safetensors", "sklearn", "scipy", "openvino", "onnx", "matplotlib")
    assert installed.run("python", "-c", check, *extras).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("predict", "export", "Fever after aspirin."),
        ("annotate", "export", "notes.jsonl", "--out", "jsonl", "--format", "jsonl"),
        ("annotate", "export", "notes.jsonl", "--out", "pubtator", "--format", "pubtator"),
        ("annotate", "export", "notes.jsonl", "--out", "brat", "--format", "brat"),
        ("evaluate", "export", "examples.jsonl"),
        ("doctor",),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[4:5])),
)
def test_the_command_runs(arguments: tuple[Any, ...], installed: Installed) -> None:
    done = installed.run("alembert", *arguments)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr


def test_a_model_is_loaded_from_python(installed: Installed) -> None:
    done = installed.run("python", "-c", LOADED)
    assert (done.returncode, done.stdout) == (0, "onnxruntime fp32\n"), done.stderr


def test_what_is_missing_is_a_sentence(installed: Installed) -> None:
    done = installed.run("alembert", "predict", "checkpoint", "Fever.")
    assert done.returncode == 2
    assert "pip install 'alembert[train]'" in done.stderr


def test_types_are_found(installed: Installed) -> None:
    """mypy finds the types of the installed package by its `py.typed`."""
    pytest.importorskip("mypy")
    program = installed.work / "typed.py"
    program.write_text("import alembert\nreveal_type(alembert.__version__)\n")
    command = [sys.executable, "-m", "mypy", "--python-executable", str(installed.python), str(program)]
    done = subprocess.run(command, cwd=installed.work, capture_output=True, text=True, check=False)
    assert 'Revealed type is "str"' in done.stdout, done.stdout
