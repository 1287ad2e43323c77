"""The engine of Exports: which folder it opens, what it says of itself, batches of any size, and nothing of torch."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alembert.artifact import hash_file
from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.compress.measure import strip_floats
from alembert.data.windows import Row
from alembert.errors import BadFile, BadSetting, MissingExtra
from alembert.files import checkpoint as checkpoints
from alembert.infer.embedder import Embedder
from alembert.infer.task_model import TaskModel
from alembert.nn.heads import HEAD_KINDS, LANGUAGE_MODEL_KINDS, HeadSpec
from alembert.tasks.example import Coverage, EncodedExample
from alembert.tasks.runtime.export import ExportedGraph, GraphRunner, OnnxGraph, OpenVinoGraph
from alembert.tasks.runtime.export_files import (
    HEAD_IS_PER_TOKEN,
    HeadMetadata,
    is_export,
    read_export_metadata,
)
from small_checkpoints import SHAPE, fine_tuned, fine_tuned_together

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
    export(checkpoints.open(folder / "checkpoint"), place, ExportSettings(format=request.param, precision="fp32"))
    return place


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """An Export to be damaged."""
    export(checkpoints.open(folder / "checkpoint"), tmp_path / "export", FP32)
    return tmp_path / "export"


def encoded(lengths: Sequence[int]) -> list[EncodedExample]:
    random = np.random.default_rng(3)
    rows = [Row(ids=random.integers(5, 60, n), positions=np.arange(1, n)) for n in lengths]
    return [EncodedExample((row,), Coverage()) for row in rows]


def runner(made: Path, **more: int) -> GraphRunner:
    file = made / "model.onnx"
    graph = partial(OnnxGraph, file) if file.is_file() else partial(OpenVinoGraph, made / "model.xml")
    return GraphRunner(ExportedGraph(graph, read_export_metadata(made).heads, SHAPE["hidden_size"], **more), "crf")


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
    assert other.training_facts == one.training_facts == {"examples": 24}


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
        runner(made).decoder()


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
    model = TaskModel.open(several / "export")
    list(model.predict_all(model.examples_from_texts(["aspirin", "no fever"])))
    assert asked == [({"entities", "topics", "similar"}, 2)]


def test_several_tasks_answer_as_in_torch(several: Path) -> None:
    records = []
    for name in ("export", "checkpoint"):
        model = TaskModel.open(several / name)
        examples = model.examples_from_texts(["aspirin against fever"])
        records.append(strip_floats(model.to_record(examples[0], next(model.predict_all(examples)))))
    assert records[0] == records[1]
    assert records[0].keys() == {"entities", "topics", "similar"}


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", GUARDED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_predict_needs_neither_torch_nor_the_network(made: Path) -> None:
    done = run("predict", made, "aspirin and sepsis", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["coverage"]["characters"] == 18


@pytest.mark.parametrize(("options", "key"), [((), "topics"), (("--task", "topics"), "label")], ids=["all", "one"])
def test_several_tasks_need_neither_torch_nor_the_network(options: tuple[str, ...], key: str, several: Path) -> None:
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
    monkeypatch.setattr("alembert.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="checkpoint needs the package `torch`"):
        TaskModel.open(folder / "checkpoint")
    with pytest.raises(MissingExtra, match="checkpoint needs the package `torch`"):
        Embedder.open(folder / "checkpoint", mode="mean")


def test_a_graph_of_another_size_is_refused(copied: Path) -> None:
    (copied / "model.bin").write_bytes(b"short")
    with pytest.raises(BadFile, match=r"damaged.*model\.bin"):
        TaskModel.open(copied)


def test_changed_weights_do_not_change_the_answers_of_another_copy(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "unused"))
    expected = outputs_of(copied)
    monkeypatch.setenv("ALEMBERT_CACHE", str(tmp_path / "cache"))
    shutil.copytree(copied, tmp_path / "changed")
    weights = np.fromfile(copied / "model.bin", np.float32)
    np.where(np.abs(weights) > 0.1, -weights, weights).tofile(tmp_path / "changed" / "model.bin")
    outputs_of(tmp_path / "changed")
    np.testing.assert_array_equal(outputs_of(copied), expected)


def outputs_of(export: Path) -> Any:
    engine = TaskModel.open(export).engine
    ((found,),) = GraphRunner(engine.graph, "crf").outputs(encoded([9]))
    return found


def test_a_graph_that_is_none_is_refused(folder: Path, tmp_path: Path) -> None:
    settings = ExportSettings(format="onnx", precision="fp32")
    export(checkpoints.open(folder / "checkpoint"), tmp_path / "export", settings)
    file = tmp_path / "export" / "model.onnx"
    file.write_bytes(b"x" * file.stat().st_size)
    model = TaskModel.open(tmp_path / "export")
    with pytest.raises(BadFile, match="cannot be opened in ONNX Runtime"):
        model.predict(model.task.examples_from_texts(["aspirin"]))


def test_labels_that_do_not_fit_are_refused(copied: Path) -> None:
    table = json.loads((copied / "task.json").read_text())
    table["tasks"]["tag"]["types"].reverse()
    swapped = json.dumps(table, indent=2, ensure_ascii=False)
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


def rewritten(folder: Path, name: str, content: bytes) -> None:
    """Change a file of an Export, and what the manifest says of it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": hash_file(folder / name), "size": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def answer(folder: Path) -> list[Any]:
    model = TaskModel.open(folder)
    return model.predict(model.task.examples_from_texts(["aspirin"]))


@pytest.mark.parametrize("content", [b"", b"<net/>", b'<net name="x" version="11"><layers/></net>'])
def test_a_description_of_a_graph_that_is_none_is_refused(content: bytes, copied: Path) -> None:
    rewritten(copied, "model.xml", content)
    with pytest.raises(BadFile, match=r"model\.xml (cannot be (opened|run) in OpenVINO|is damaged)"):
        answer(copied)


def test_weights_that_the_graph_does_not_fit_are_refused(copied: Path) -> None:
    rewritten(copied, "model.bin", b"short")
    with pytest.raises(BadFile, match=r"model\.xml cannot be opened in OpenVINO"):
        answer(copied)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "onnx"},
        {"format": ["openvino"]},
        {"width": -16},
        {"layers": True},
        {"longest": 0},
        {"longest": 64.5},
        {"heads": ["crf"]},
        {"heads": {"crf": {"kind": "crystal", "per_token": True, "labels": []}}},
        {"heads": {"crf": {"kind": "crf", "per_token": False, "labels": []}}},
        {"heads": {"crf": {"kind": "crf", "per_token": True, "labels": "OB"}}},
    ],
    ids=str,
)
def test_facts_that_no_export_has_are_refused(change: dict[str, Any], copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["config"]["graph"] |= change
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadFile, match=r"Export the checkpoint again|not listed in manifest\.json"):
        TaskModel.open(copied)


@pytest.mark.parametrize("name", ["model.bin", "task.json", "tokenizer.json", "decoding.npz"])
def test_a_file_that_the_manifest_does_not_list_is_refused(name: str, copied: Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    del manifest["files"][name]
    (copied / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadFile, match=rf"not listed in manifest\.json: {name}"):
        TaskModel.open(copied)


def test_the_kinds_of_heads_answer_as_in_torch() -> None:
    outputs = {kind: 3 for kind, each in HEAD_KINDS.items() if each.outputs is None}
    pooling = {kind: each.poolings[-1] for kind, each in HEAD_KINDS.items()}
    specs = [HeadSpec(kind=kind, outputs=outputs.get(kind), pooling=pooling[kind]) for kind in HEAD_KINDS]
    exported = [spec for spec in specs if spec.kind not in (*LANGUAGE_MODEL_KINDS, "generator")]
    assert {spec.kind: spec.per_token for spec in exported} == HEAD_IS_PER_TOKEN


class Scripted:
    """A graph that gives whatever a test wants."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.outputs = outputs

    def infer(self, rows: Sequence[Row]) -> dict[str, Any]:
        return self.outputs


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((2, 5, 3), "tag"),
        ((2, 9), "tag"),
        ((2, 9, 4), "tag"),
        ((1, 9, 3), "tag"),
        ((), "tag"),
        ((2, 9, 3), "classify"),
        ((2, 2), "classify"),
        ((2, 9, 5), "pointer"),
        ((2, 9, 3), "relation"),
        ((2, 9), "embed"),
    ],
)
def test_outputs_of_another_shape_are_refused(shape: tuple[int, ...], kind: str) -> None:
    facts = HeadMetadata(kind=kind, per_token=HEAD_IS_PER_TOKEN[kind], labels=("a", "b", "c"))
    graph = ExportedGraph(lambda *_: Scripted({"head": np.zeros(shape, np.float32)}), {"head": facts}, 16)
    with pytest.raises(BadFile, match=f"not what a head of kind {kind} gives"):
        GraphRunner(graph, "head").outputs(encoded([7, 9]))


def test_an_output_that_is_missing_is_refused() -> None:
    facts = HeadMetadata(kind="tag", per_token=True, labels=("a",))
    graph = ExportedGraph(lambda *_: Scripted({}), {"head": facts}, 16)
    with pytest.raises(BadFile, match="gives for 2 texts of up to 9 tokens nothing"):
        GraphRunner(graph, "head").outputs(encoded([7, 9]))
