"""Compiled graphs that are kept: the same numbers, and nothing that depends on the folder."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.errors import BadFile
from alembert.hardware import runtimes as keeping
from alembert.hardware.runtimes import get_core, import_openvino, load_or_compile, make_compile_settings

SETTINGS = make_compile_settings(threads=1, streams=1)


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a graph that doubles numbers, and an empty cache."""
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "cache"))
    return multiplying(2, tmp_path / "graph.xml")


def multiplying(factor: float, file: Path) -> Path:
    ops = import_openvino().opset13
    numbers = ops.parameter([-1], np.float32, name="numbers")
    made = import_openvino().Model([ops.multiply(numbers, np.float32(factor))], [numbers])
    import_openvino().save_model(made, str(file), compress_to_fp16=False)
    return file


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled."""
    found: list[Any] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(get_core(), name)

        def compile_model(self, graph: Any, *more: Any) -> Any:
            found.append(graph)
            return get_core().compile_model(graph, *more)

    monkeypatch.setattr(keeping, "get_core", Counted)
    return found


def doubled(graph: Path) -> list[float]:
    numbers = np.array([1, 2, 3], np.float32)
    found: list[float] = load_or_compile(graph, SETTINGS)([numbers])[0].tolist()
    return found


def kept() -> list[Path]:
    return sorted(keeping.get_compiled_folder().glob("*"))


def test_a_graph_is_compiled_once(graph: Path, compiling: list[Any]) -> None:
    assert [doubled(graph), doubled(graph)] == [[2, 4, 6], [2, 4, 6]]
    assert len(compiling) == 1


def test_other_settings_are_compiled_anew(graph: Path, compiling: list[Any]) -> None:
    doubled(graph)
    load_or_compile(graph, make_compile_settings(threads=1, streams=2))
    assert len(compiling) == 2


def test_weights_that_were_changed_are_compiled_anew(graph: Path) -> None:
    doubled(graph)
    weights = graph.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes().replace(np.float32(2).tobytes(), np.float32(3).tobytes()))
    assert doubled(graph) == [3, 6, 9]


def test_the_same_graph_elsewhere_is_not_compiled_again(graph: Path, compiling: list[Any]) -> None:
    doubled(graph)
    doubled(shutil.copytree(graph.parent, graph.parent / "copy") / graph.name)
    assert len(compiling) == 1


def test_a_graph_of_another_format_is_refused(graph: Path) -> None:
    graph.write_bytes(b"\x08\x07\x12\x07")
    with pytest.raises(BadFile, match=r"graph\.xml is damaged: it is not an OpenVINO graph"):
        doubled(graph)


def test_what_is_damaged_is_compiled_anew(graph: Path, compiling: list[Any]) -> None:
    doubled(graph)
    (file,) = kept()
    file.write_bytes(file.read_bytes()[:-1])
    assert doubled(graph) == [2, 4, 6]
    assert len(compiling) == 2


def test_what_openvino_does_not_take_is_compiled_anew(graph: Path, compiling: list[Any]) -> None:
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
    for number in range(keeping.MAX_KEPT_GRAPHS + 2):
        doubled(multiplying(number, graph))
    assert len(kept()) == keeping.MAX_KEPT_GRAPHS


def test_a_large_one_is_not_kept(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_GRAPH_BYTES", 100)
    assert doubled(graph) == [2, 4, 6]
    assert kept() == []
