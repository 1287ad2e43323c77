"""Compiled graphs that are kept: the same numbers, and nothing that depends on the folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.hardware import compiled as keeping
from alembert.hardware.compiled import compiled
from alembert.hardware.openvino_settings import compile_settings, import_openvino, the_core

SETTINGS = compile_settings(threads=1, streams=1)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a graph that doubles numbers, and an empty cache."""
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "cache"))
    ops = import_openvino().opset13
    numbers = ops.parameter([-1], np.float32, name="numbers")
    doubled = import_openvino().Model([ops.multiply(numbers, np.float32(2))], [numbers])
    import_openvino().save_model(doubled, str(tmp_path / "graph.xml"))
    return tmp_path / "graph.xml"


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The graphs that were compiled."""
    found: list[Path] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(the_core(), name)

        def compile_model(self, graph: Path, *more: Any) -> Any:
            found.append(graph)
            return the_core().compile_model(graph, *more)

    monkeypatch.setattr(keeping, "the_core", Counted)
    return found


def doubled(graph: Path, content: str = "content") -> list[float]:
    numbers = np.array([1, 2, 3], np.float32)
    found: list[float] = compiled(graph, content, SETTINGS)([numbers])[0].tolist()
    return found


def kept() -> list[Path]:
    return sorted(keeping.folder().glob("*"))


def test_a_graph_is_compiled_once(graph: Path, compiling: list[Path]) -> None:
    assert [doubled(graph), doubled(graph)] == [[2, 4, 6], [2, 4, 6]]
    assert compiling == [graph]


def test_other_content_and_other_settings_are_compiled_anew(graph: Path, compiling: list[Path]) -> None:
    doubled(graph)
    doubled(graph, "other content")
    compiled(graph, "content", compile_settings(threads=1, streams=2))
    assert len(compiling) == 3


def test_what_is_damaged_is_compiled_anew(graph: Path, compiling: list[Path]) -> None:
    doubled(graph)
    (file,) = kept()
    file.write_bytes(file.read_bytes()[:-1])
    assert doubled(graph) == [2, 4, 6]
    assert len(compiling) == 2


def test_what_openvino_does_not_take_is_compiled_anew(graph: Path, compiling: list[Path]) -> None:
    doubled(graph)
    (file,) = kept()
    key = file.name.partition("-")[0]
    (file.parent / keeping._name(key, b"of another version")).write_bytes(b"of another version")
    file.unlink()
    assert doubled(graph) == [2, 4, 6]
    assert len(compiling) == 2


def test_a_folder_that_cannot_be_written_is_no_error(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "file"))
    assert doubled(graph) == [2, 4, 6]


def test_a_few_are_kept(graph: Path) -> None:
    for number in range(keeping.KEPT + 2):
        doubled(graph, f"content {number}")
    assert len(kept()) == keeping.KEPT


def test_a_large_one_is_not_kept(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LARGEST", 100)
    assert doubled(graph) == [2, 4, 6]
    assert kept() == []
