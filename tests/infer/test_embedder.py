"""Vectors of texts equal a plain computation with transformers, and the wrong pooling is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from alembert.artifact import MANIFEST
from alembert.compress import ExportSettings
from alembert.compress.export import ExportData, export
from alembert.errors import BadFile, BadSetting
from alembert.files import checkpoint as checkpoints
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.embedder import Embedder, model_fingerprint
from alembert.infer.task_model import TaskModel
from alembert.nn.heads import HeadSpec
from alembert.tasks.compare.columns import CompareSettings
from alembert.tasks.compare.pooling import Pooling, PoolingName, build_sentence_transformers_files
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.files import write_tasks
from alembert.text.tokenizer import Tokenizer
from alembert.text.vocabulary import Vocabulary
from small_checkpoints import fine_tuned

WORDS = ("aspirin", "helps", "against", "fever", ".", "the", "patient", "has")
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
TEXTS = ["aspirin helps", "the patient has fever .", "", "fever", "unheard of", "the the the the the the"]
LONGEST, WIDTH = 16, 24


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT as transformers saves it, which states no pooling."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(PIECES), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32, max_position_embeddings=LONGEST)  # fmt: skip
    BertModel(config).eval().save_pretrained(folder)
    Tokenizer.from_vocabulary(Vocabulary(PIECES), lowercase=True).save(folder)
    return folder


def stating(plain: Path, folder: Path, pooling: Pooling) -> Path:
    """A copy of the model that states a pooling."""
    shutil.copytree(plain, folder)
    for name, content in build_sentence_transformers_files(pooling).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(params=["cls", "cls_layer", "cls_train_layer", "mean"])
def compared(request: pytest.FixtureRequest, plain: Path, tmp_path: Path) -> Path:
    """A model with the head of the task `compare`, as a fine-tuned folder has it."""
    head = HeadSpec(kind="embed", pooling=request.param, dropout=0.0)
    config = checkpoints.open(plain).blueprint.config
    made = Checkpoint.new(Blueprint(config=config, heads={"embed": head}), Tokenizer.open(plain))
    made.save(tmp_path / "compare")
    write_tasks(tmp_path / "compare", {"compare": (compare_task(request.param), {})})
    return tmp_path / "compare"


def compare_task(pooling: PoolingName) -> CompareTask:
    settings = CompareSettings(pooling=pooling)
    return CompareTask(settings, "pairs", pooling, dimension=WIDTH, window=LONGEST, normalise=True)


def states_of(folder: Path, text: str) -> torch.Tensor:
    """Last states (T, D) of one text, without padding."""
    tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.inference_mode():
        return AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state[0]


@pytest.mark.parametrize("mode", ["mean", "cls"])
@pytest.mark.parametrize("normalise", [False, True])
def test_vectors_equal_those_of_transformers(plain: Path, tmp_path: Path, mode: str, normalise: bool) -> None:
    pooling = Pooling(mode=mode, dimension=WIDTH, normalise=normalise, length=LONGEST)
    folder = stating(plain, tmp_path / "model", pooling)
    states = [states_of(plain, text) for text in TEXTS]
    expected = torch.stack([each.mean(0) if mode == "mean" else each[0] for each in states])
    if normalise:
        expected = torch.nn.functional.normalize(expected)
    found = Embedder.open(folder).embed(TEXTS)
    np.testing.assert_allclose(found.vectors_ND, expected.numpy(), atol=1e-5)


def test_vectors_equal_those_of_the_task_compare(compared: Path) -> None:
    texts = [text for text in TEXTS if text] + ["aspirin helps against fever . the patient has " * 9]
    model = TaskModel.open(compared)
    expected = [prediction.vectors[0] for prediction in model.predict(model.task.examples_from_texts(texts))]
    np.testing.assert_allclose(Embedder.open(compared).embed(texts).vectors_ND, expected, atol=1e-5)


def test_the_layer_of_a_model_of_several_tasks_is_that_of_its_head(plain: Path, tmp_path: Path) -> None:
    head = HeadSpec(kind="embed", pooling="cls_layer", dropout=0.0)
    config = checkpoints.open(plain).blueprint.config
    made = Checkpoint.new(Blueprint(config=config, heads={"similar": head}), Tokenizer.open(plain))
    made.save(tmp_path / "several")
    write_tasks(tmp_path / "several", {"similar": (compare_task("cls_layer"), {})}, {"similar": "similar"})
    model = TaskModel.open(tmp_path / "several", task="similar")
    (expected,) = model.predict(model.task.examples_from_texts(["aspirin helps"]))
    found = Embedder.open(tmp_path / "several").embed(["aspirin helps"])
    np.testing.assert_allclose(found.vectors_ND, expected.vectors, atol=1e-5)


def test_vectors_of_an_export_equal_those_of_torch(compared: Path, tmp_path: Path) -> None:
    texts = [*TEXTS, "aspirin helps against fever . the patient has " * 9]
    export(checkpoints.open(compared), tmp_path / "export", ExportSettings(precision="fp32"))
    one, other = Embedder.open(tmp_path / "export"), Embedder.open(compared)
    assert (one.pooling, one.length) == (other.pooling, other.length)
    np.testing.assert_allclose(one.embed(texts).vectors_ND, other.embed(texts).vectors_ND, atol=1e-4)


def test_vectors_of_an_int8_export_are_near(compared: Path, tmp_path: Path) -> None:
    opened = TaskModel.open(compared)
    texts = [f"{one} {other}" for one in WORDS for other in WORDS]
    material = ExportData(calibration=opened.task.examples_from_texts(texts))
    found = export(checkpoints.open(compared), tmp_path / "export", ExportSettings(calibration_rows=32), material)
    assert found.facts.precision == "int8"
    vectors = [Embedder.open(folder).embed(texts).vectors_ND for folder in (tmp_path / "export", compared)]
    assert np.sum(vectors[0] * vectors[1], axis=1).min() > 0.97


def test_an_export_that_gives_no_vectors_is_refused(tmp_path: Path) -> None:
    fine_tuned("tag", tmp_path / "tagger", tmp_path / "examples.jsonl")
    export(checkpoints.open(tmp_path / "tagger"), tmp_path / "export", ExportSettings(precision="fp32"))
    with pytest.raises(BadSetting, match="not fine-tuned to give vectors"):
        Embedder.open(tmp_path / "export", mode="mean")


def test_the_fingerprint_of_an_export_follows_its_graph(compared: Path, tmp_path: Path) -> None:
    export(checkpoints.open(compared), tmp_path / "export", ExportSettings(precision="fp32"))
    (tmp_path / "export" / MANIFEST).unlink()
    before = model_fingerprint(tmp_path / "export")
    (tmp_path / "export/model.bin").write_bytes(b"other numbers")
    assert model_fingerprint(tmp_path / "export") != before


def test_real_vectors_equal_those_of_transformers(minilm: Path) -> None:
    texts = ["Statin-induced muscle pain.", "Aspirin.", "BRAF V600E mutations occur in melanoma " * 5]
    expected = torch.nn.functional.normalize(torch.stack([states_of(minilm, t).mean(0) for t in texts]))
    found = Embedder.open(minilm)
    assert found.pooling == Pooling(mode="mean", dimension=384, normalise=True, length=256)
    np.testing.assert_allclose(found.embed(texts).vectors_ND, expected.numpy(), atol=1e-5)


def test_a_long_text_is_the_mean_of_its_windows_weighted_by_tokens(plain: Path) -> None:
    embedder = Embedder.open(plain, mode="mean", length=6)
    found = embedder.embed(["aspirin helps . the patient has fever"])
    parts = [states_of(plain, part) for part in ("aspirin helps . the", "patient has fever")]
    np.testing.assert_allclose(found.vectors_ND[0], torch.cat(parts).mean(0).numpy(), atol=1e-5)
    assert (found.coverage.windows, found.coverage.split_examples, found.coverage.tokens) == (2, 1, 11)


def test_a_text_beyond_the_model_is_read_whole(plain: Path) -> None:
    embedder = Embedder.open(plain, mode="mean")
    found = embedder.embed(["fever " * 1000])
    assert found.coverage.tokens - 2 * found.coverage.windows == 1000
    assert np.isfinite(found.vectors_ND).all()


def test_vectors_do_not_depend_on_what_else_is_there(plain: Path) -> None:
    embedder = Embedder.open(plain, mode="cls")
    together = embedder.embed(TEXTS * 50).vectors_ND
    alone = [embedder.embed([text]).vectors_ND[0] for text in TEXTS]
    np.testing.assert_allclose(together, np.tile(alone, (50, 1)), atol=1e-5)


def test_a_pooling_that_is_not_stated_must_be_named(plain: Path) -> None:
    with pytest.raises(BadSetting, match="choose with --pooling mean or --pooling cls"):
        Embedder.open(plain)


def test_a_pooling_that_is_stated_is_not_overruled(plain: Path, tmp_path: Path) -> None:
    folder = stating(plain, tmp_path / "model", Pooling(mode="cls", dimension=WIDTH))
    with pytest.raises(BadSetting, match="says that its vectors are the first token, 24 numbers; --pooling mean"):
        Embedder.open(folder, mode="mean")


def test_a_width_that_the_model_has_not_is_refused(plain: Path, tmp_path: Path) -> None:
    folder = stating(plain, tmp_path / "model", Pooling(mode="cls", dimension=WIDTH + 1))
    with pytest.raises(BadFile, match="25 wide, and the model is 24 wide"):
        Embedder.open(folder)


@pytest.mark.parametrize("length", [2, LONGEST + 1])
def test_a_length_that_cannot_be_read_is_refused(plain: Path, length: int) -> None:
    with pytest.raises(BadSetting, match="from 3"):
        Embedder.open(plain, mode="cls", length=length)


def test_the_fingerprint_is_that_of_what_decides(plain: Path, tmp_path: Path) -> None:
    checkpoints.open(plain).save(tmp_path / "ours")
    whole = model_fingerprint(tmp_path / "ours")
    (tmp_path / "ours" / MANIFEST).unlink()
    (tmp_path / "ours/README.md").write_text("other words")
    assert model_fingerprint(tmp_path / "ours") == whole
    settings = json.loads((tmp_path / "ours/config.json").read_text())
    (tmp_path / "ours/config.json").write_text(json.dumps(settings | {"layer_norm_eps": 1e-9}))
    assert model_fingerprint(tmp_path / "ours") != whole


def test_the_fingerprint_follows_the_weights(plain: Path, tmp_path: Path) -> None:
    before = model_fingerprint(shutil.copytree(plain, tmp_path / "model"))
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "model/model.safetensors")
    assert model_fingerprint(tmp_path / "model") != before
