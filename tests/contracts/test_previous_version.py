"""Checkpoints and Exports that version 0.1 wrote open today and give the same answers."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from alembert.cli import run

FOLDERS = sorted((Path(__file__).parent / "version_0_1").glob("*.zip"))
TOLERANCE = 2e-3
"""Of int8 Exports on another processor; Checkpoints agree within 1e-4."""


def assert_equal(actual: Any, expected: Any, tolerance: float, where: str = "") -> None:
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_equal(actual[key], value, tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for number, value in enumerate(expected):
            assert_equal(actual[number], value, tolerance, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=tolerance), where
    else:
        assert actual == expected, where


def test_there_is_a_folder_of_each_kind() -> None:
    names = [path.stem for path in FOLDERS]
    assert len(names) == 21
    assert sum(name.startswith("checkpoint") for name in names) == 14


@pytest.mark.parametrize("packed", FOLDERS, ids=lambda path: path.stem)
def test_it_opens_and_predicts_the_same(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    texts = tmp_path / "texts.json"
    inputs = json.loads(texts.read_text()) if texts.exists() else ["--file", str(tmp_path / "input.jsonl")]
    capsys.readouterr()
    assert run(["predict", str(tmp_path / "model"), *inputs, "--json"]) == 0
    actual = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = [json.loads(line) for line in (tmp_path / "expected.jsonl").read_text().splitlines()]
    assert_equal(actual, expected, TOLERANCE if packed.stem.startswith("export") else 1e-4)
