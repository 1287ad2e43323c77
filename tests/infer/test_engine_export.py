"""The engine of Exports: which folder it opens, what it says of itself, batches of any size, and nothing of torch."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.compress.candidate import bare
from alembert.compress.export import export
from alembert.compress.settings import ExportSettings
from alembert.data.rows import Row
from alembert.errors import BadFile, BadSetting, MissingExtra
from alembert.files import checkpoint as checkpoints
from alembert.infer.embed_model import Embedder
from alembert.infer.several import SeveralModel
from alembert.infer.task_model import TaskModel
from alembert.tasks.example import Coverage, Encoded
from alembert.tasks.export_files import is_export
from alembert.tasks.running_export import ExportedGraph, GraphRunner
from alembert.tasks.running_onnx import OnnxGraph
from alembert.tasks.running_openvino import OpenVinoGraph
from small_checkpoints import fine_tuned, fine_tuned_together

FP32 = ExportSettings(format="openvino", precision="fp32")
# Fails on any attempt to connect, and on torch: the command must do without either.
GUARDED = """
import socket, sys
def refuse(*arguments, **more):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
from alembert.cli import run
code = run(sys.argv[1:])
heavy = {"torch", "transformers", "nncf", "pyarrow", "lxml"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CRF tagger, its Export, and examples."""
    place = tmp_path_factory.mktemp("exports")
    fine_tuned("tag, crf", place / "checkpoint", place / "examples.jsonl")
    export(checkpoints.open(place / "checkpoint"), place / "export", FP32)
    return place


@pytest.fixture(params=["openvino", "onnx"], scope="module")
def made(request: pytest.FixtureRequest, folder: Path) -> Path:
    """An Export of the tagger in each format."""
    place = folder / request.param
    export(
        checkpoints.open(folder / "checkpoint"), place, ExportSettings(format=request.param, precision="fp32")
    )
    return place


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """An Export to be damaged."""
    export(checkpoints.open(folder / "checkpoint"), tmp_path / "export", FP32)
    return tmp_path / "export"


def encoded(lengths: Sequence[int]) -> list[Encoded]:
    random = np.random.default_rng(3)
    rows = [Row(ids=random.integers(5, 60, n), places=np.arange(1, n)) for n in lengths]
    return [Encoded((row,), Coverage()) for row in rows]


def runner(made: Path, **more: int) -> GraphRunner:
    file = made / "model.onnx"
    graph = partial(OnnxGraph, file) if file.is_file() else partial(OpenVinoGraph, made / "model.xml")
    return GraphRunner(ExportedGraph(graph, {"crf": True}, **more), "crf")


def test_the_folder_decides_about_the_engine(folder: Path) -> None:
    names = {name: TaskModel.open(folder / name).engine.name for name in ("checkpoint", "export")}
    assert names == {"checkpoint": "torch", "export": "openvino fp32"}
    assert [is_export(folder / name) for name in ("checkpoint", "export", "nowhere")] == [False, True, False]


def test_a_manifest_of_another_program_makes_no_export(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert not is_export(tmp_path)


def test_the_size_is_that_of_the_checkpoint_but_for_the_bytes(folder: Path) -> None:
    one, other = (TaskModel.open(folder / name).engine.size for name in ("checkpoint", "export"))
    assert (other.parameters, other.layers, other.width) == (one.parameters, one.layers, one.width)
    assert other.multiplications == one.multiplications
    assert other.bytes == (folder / "export" / "model.bin").stat().st_size


def test_what_is_known_of_the_training_goes_along(folder: Path) -> None:
    one, other = (TaskModel.open(folder / name) for name in ("checkpoint", "export"))
    assert other.training() == one.training() == {"examples": 24}
    assert other.train_keys() == one.train_keys() != set()


@pytest.mark.parametrize(("threads", "budget"), [(1, 1), (1, 64), (2, 16), (3, 64), (2, 10_000)])
def test_results_do_not_depend_on_batches_and_streams(made: Path, threads: int, budget: int) -> None:
    texts = encoded([3, 40, 7, 64, 2, 7, 7, 30])
    expected = runner(made, threads=1, budget=1).outputs(texts)
    found = runner(made, threads=threads, budget=budget).outputs(texts)
    for each, (one,), (other,) in zip(texts, found, expected, strict=True):
        assert one.shape == (each.rows[0].length - 1, other.shape[1])
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_nothing_to_compute_is_no_error(made: Path) -> None:
    assert runner(made).outputs([]) == []


def test_an_export_cannot_write(made: Path) -> None:
    with pytest.raises(BadSetting, match="cannot write texts"):
        runner(made).writer()


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of three tasks and its Export."""
    place = tmp_path_factory.mktemp("several")
    cases = {"entities": "tag, bioes", "topics": "classify", "similar": "compare"}
    fine_tuned_together(cases, place / "checkpoint", place)
    export(checkpoints.open(place / "checkpoint"), place / "export", FP32)
    return place


def test_the_encoder_runs_once_for_all_tasks(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[set[str], int]] = []
    compute = ExportedGraph.head_outputs

    def counted(graph: ExportedGraph, heads: Sequence[str], rows: Sequence[Row]) -> Any:
        asked.append((set(heads), len(rows)))
        return compute(graph, heads, rows)

    monkeypatch.setattr(ExportedGraph, "head_outputs", counted)
    model = SeveralModel.open(several / "export")
    list(model.predictions(model.task.of_texts(["aspirin", "no fever"])))
    assert asked == [({"entities", "topics", "similar"}, 2)]


def test_several_tasks_answer_as_in_torch(several: Path) -> None:
    records = []
    for name in ("export", "checkpoint"):
        model = SeveralModel.open(several / name)
        examples = model.task.of_texts(["aspirin against fever"])
        records.append(bare(model.task.record(examples[0], next(model.predictions(examples)))))
    assert records[0] == records[1]
    assert records[0].keys() == {"entities", "topics", "similar"}


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", GUARDED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_predict_needs_neither_torch_nor_the_network(made: Path) -> None:
    done = run("predict", made, "aspirin and sepsis", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["coverage"]["characters"] == 18


@pytest.mark.parametrize(
    ("options", "key"), [((), "topics"), (("--task", "topics"), "label")], ids=["all", "one"]
)
def test_several_tasks_need_neither_torch_nor_the_network(
    options: tuple[str, ...], key: str, several: Path
) -> None:
    done = run("predict", several / "export", "aspirin and sepsis", "--json", *options)
    assert done.returncode == 0, done.stderr
    assert key in json.loads(done.stdout)


def test_vectors_need_neither_torch_nor_the_network(several: Path, tmp_path: Path) -> None:
    done = run(
        "embed",
        "encode",
        several / "export",
        several / "similar.jsonl",
        "--out",
        tmp_path / "vectors",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units"] == 24
    done = run("embed", "search", tmp_path / "vectors", "aspirin", "-k", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["hits"]) == 2


@pytest.mark.parametrize("verb", [("evaluate",), ("inspect", "errors")])
def test_other_verbs_need_neither_torch_nor_the_network(verb: tuple[str, ...], made: Path) -> None:
    done = run(*verb, made, made.parent / "examples.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_checkpoint_without_torch_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alembert.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="checkpoint needs the package `torch`"):
        TaskModel.open(folder / "checkpoint")
    with pytest.raises(MissingExtra, match="checkpoint needs the package `torch`"):
        Embedder.open(folder / "checkpoint", mode="mean")


def test_a_graph_of_another_size_is_refused(copied: Path) -> None:
    (copied / "model.bin").write_bytes(b"short")
    with pytest.raises(BadFile, match=r"damaged.*model\.bin"):
        TaskModel.open(copied)


def test_a_graph_that_is_none_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = ExportSettings(format="onnx", precision="fp32")
    export(checkpoints.open(folder / "checkpoint"), tmp_path / "export", settings)
    file = tmp_path / "export" / "model.onnx"
    file.write_bytes(b"x" * file.stat().st_size)
    model = TaskModel.open(tmp_path / "export")
    with pytest.raises(BadFile, match="cannot be opened in ONNX Runtime"):
        model.predict(model.task.of_texts(["aspirin"]))


def test_labels_that_do_not_fit_are_refused(copied: Path) -> None:
    table = json.loads((copied / "task.json").read_text())
    swapped = json.dumps({**table, "types": table["types"][::-1]}, indent=2, ensure_ascii=False)
    (copied / "task.json").write_text(f"{swapped}\n")
    with pytest.raises(BadFile, match="do not fit"):
        TaskModel.open(copied)


def test_facts_of_another_version_are_refused(copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["config"]["graph"]["precision"] = "int2"
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadFile, match="Export the checkpoint again"):
        TaskModel.open(copied)


def test_decoding_weights_that_are_no_numbers_are_refused(copied: Path) -> None:
    size = (copied / "decoding.npz").stat().st_size
    (copied / "decoding.npz").write_bytes(b"x" * size)
    with pytest.raises(BadFile, match=r"decoding\.npz is missing or damaged"):
        TaskModel.open(copied)
