"""The ONNX graph of every encoder and all heads gives what torch gives, in OpenVINO and in ONNX Runtime."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alembert.compress import ExportSettings, onnx
from alembert.compress.export import ExportData, export
from alembert.compress.onnx import build_onnx, check_onnx
from alembert.data.windows import Row
from alembert.errors import BadSetting, MissingExtra
from alembert.files import checkpoint as checkpoints
from alembert.hardware.runtimes import get_core, make_compile_settings
from alembert.infer.task_model import TaskModel
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.runtime.export import OnnxGraph, build_bert_inputs
from small_checkpoints import fine_tuned, small_model

ONNX = ExportSettings(format="onnx", precision="fp32")
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "tanh": {"hidden_act": "gelu_new"},
    "albert": {"embedding_size": 8, "num_hidden_groups": 1},
    "pre-norm": {"layer_norm_position": "pre", "hidden_act": "relu"},
    "rotary": {"position_embedding_type": "rotary"},
    "sinusoidal": {"position_embedding_type": "sinusoidal"},
}
HEADS = {
    "tag": HeadSpec(kind="tag", outputs=5),
    "pointer": HeadSpec(kind="pointer", outputs=3),
    "first": HeadSpec(kind="classify", outputs=3),
    "second": HeadSpec(kind="classify", outputs=2),
    "mean": HeadSpec(kind="classify", outputs=3, pooling="mean"),
    "layers": HeadSpec(kind="classify", outputs=3, pooling="layers"),
    "cls": HeadSpec(kind="embed", pooling="cls"),
    "cls_too": HeadSpec(kind="embed", pooling="cls"),
    "cls_layer": HeadSpec(kind="embed", pooling="cls_layer"),
    "cls_train_layer": HeadSpec(kind="embed", pooling="cls_train_layer"),
}
LENGTHS = [5, 32, 1, 5]
Outputs = Mapping[str, Any]


def model_of(**changes: Any) -> Model:
    return small_model(HEADS, **changes)


@pytest.fixture(params=SHAPES, scope="module")
def model(request: pytest.FixtureRequest) -> Model:
    pytest.importorskip("onnx")
    return model_of(**SHAPES[request.param])


def rows_of() -> list[Row]:
    random = np.random.default_rng(3)
    halves = [(np.arange(length) > length // 2).astype(np.int64) for length in LENGTHS]
    return [
        Row(ids=random.integers(0, 50, len(half)), positions=np.arange(len(half)), segments=half) for half in halves
    ]


def in_openvino(content: bytes, rows: list[Row]) -> Outputs:
    """Read the file in a program that is not made for it alone."""
    # By itself it would compute in bfloat16 on processors that have it.
    graph = get_core().compile_model(get_core().read_model(content, b""), "CPU", make_compile_settings(1, 1))
    found = graph(build_bert_inputs(rows))
    return {head: found[head] for head in HEADS}


def in_onnxruntime(content: bytes, rows: list[Row]) -> Outputs:
    return OnnxGraph(content, threads=1, streams=1).infer(rows)


@torch.inference_mode()
def expected(model: Model, rows: list[Row]) -> dict[str, list[Any]]:
    batch = Batch.packed([row.ids for row in rows], [row.segments for row in rows])  # type: ignore[misc]
    outputs = model(batch, list(HEADS), only=True)
    return {head: list(batch.split(outputs[head]) if model.spec(head).per_token else outputs[head]) for head in HEADS}


@pytest.mark.parametrize("run", [in_openvino, in_onnxruntime])
def test_every_runtime_gives_what_torch_gives(run: Callable[[bytes, list[Row]], Outputs], model: Model) -> None:
    rows = rows_of()
    found = run(build_onnx(model, *HEADS), rows)
    for head, wanted in expected(model, rows).items():
        for own, other, length in zip(found[head], wanted, LENGTHS, strict=True):
            real = own[:length] if model.spec(head).per_token else own
            np.testing.assert_allclose(real, other.numpy(), atol=1e-4)


def test_the_file_is_what_the_format_asks_for(model: Model) -> None:
    onnx = pytest.importorskip("onnx")
    made = onnx.load_from_string(build_onnx(model, *HEADS))
    onnx.checker.check_model(made, full_check=True)
    assert [each.name for each in made.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [each.name for each in made.graph.output] == list(HEADS)
    axes = {axis.dim_param for each in made.graph.input for axis in each.type.tensor_type.shape.dim}
    assert axes == {"batch", "tokens"}


def test_the_same_model_gives_the_same_bytes(model: Model) -> None:
    assert build_onnx(model, "tag") == build_onnx(model, "tag")


def test_a_head_may_be_called_as_a_part_of_the_graph() -> None:
    pytest.importorskip("onnx")
    model = new_model(
        EncoderConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1),
        {"head": HEADS["tag"], "pooler": HEADS["first"]},
    )
    graph = OnnxGraph(build_onnx(model.eval(), "head", "pooler"), threads=1, streams=1)
    found = graph.infer([Row(ids=np.arange(4), positions=np.arange(4))])
    assert (found["head"].shape, found["pooler"].shape) == ((1, 4, 5), (1, 3))


def test_without_onnx_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"pip install 'alembert\[train\]'"):
        check_onnx(model_of())


def test_a_model_that_no_file_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "import_onnx", lambda: None)
    monkeypatch.setattr(onnx, "MAX_FILE_BYTES", 1000)
    with pytest.raises(BadSetting, match="Export without --format onnx"):
        check_onnx(model_of())


# -- the folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tagger and its Export in the ONNX format."""
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("onnx")
    examples = fine_tuned("tag, crf", folder / "checkpoint", folder / "examples.jsonl")
    export(checkpoints.open(folder / "checkpoint"), folder / "export", ONNX, ExportData(judged=examples[:6]))
    return folder


def test_the_folder_predicts_as_torch_does(exported: Path) -> None:
    one, other = (TaskModel.open(exported / name) for name in ("export", "checkpoint"))
    examples = other.task.examples_from_texts(["aspirin against fever", "no sepsis"])
    assert one.engine.name == "onnxruntime fp32"
    assert [each.spans for each in one.predict(examples)] == [each.spans for each in other.predict(examples)]


def test_the_folder_has_one_graph(exported: Path) -> None:
    names = {path.name for path in (exported / "export").iterdir()}
    assert {"model.onnx", "tokenizer.json", "task.json", "README.md", "manifest.json"} <= names
    assert not names & {"model.xml", "model.bin"}


def test_the_code_on_the_card_runs(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(exported / "export")
    code = Path("README.md").read_text(encoding="utf8").split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), found)
    labels = TaskModel.open(".").task.labels
    assert found["outputs"]["crf"].shape == (1, len(found["encoding"].ids), len(labels))


def test_the_card_tells_the_score(exported: Path) -> None:
    assert "f1 on 6 examples" in (exported / "export/README.md").read_text(encoding="utf8")
