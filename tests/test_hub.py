"""Hub models are fetched only when asked for, from a cache laid out by the test (no network)."""

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants

import alembert
from alembert.cli import run
from alembert.errors import BadFile
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer.embedder import Embedder
from alembert.infer.task_model import TaskModel
from alembert.nn.config import EncoderConfig
from alembert.text.tokenizer import Tokenizer
from foreign_models import BIO, save_foreign

TINY = Blueprint(config=EncoderConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4))  # fmt: skip


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    repository = tmp_path / "cache/models--clinic--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("a" * 40)
    Checkpoint.new(TINY).save(repository / "snapshots" / ("a" * 40))
    return tmp_path / "cache"


def test_a_hub_model_opens_from_the_cache_without_network(hub_cache: Path) -> None:
    assert alembert.open("hub:clinic/tiny").blueprint.config == TINY.config


def test_a_hub_model_that_cannot_be_had_is_a_sentence(hub_cache: Path) -> None:
    with pytest.raises(BadFile, match="could not be fetched"):
        alembert.open("hub:clinic/other")


def test_a_bare_name_is_never_looked_up(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("asked the hub"))
    with pytest.raises(BadFile, match="hub:clinic/tiny"):
        alembert.open("clinic/tiny")


def test_a_path_below_a_folder_is_not_taken_for_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(BadFile, match="hub:organisation/name"):
        alembert.open("runs/tagger")


@pytest.fixture
def hub_tagger(hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tagger that transformers saved, in the cache as hub:clinic/tagger; examples beside it."""
    monkeypatch.chdir(tmp_path)
    Path("examples.tsv").write_text("the\tO\ngene\tB-Gene\n.\tO\n\nbreast\tB-Disease\ncancer\tI-Disease\n\n")
    notes = [{"id": str(n), "text": f"gene {n} of the breast cancer"} for n in range(40)]
    Path("notes.jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes))
    return cached(hub_cache, "tagger")


def cached(hub_cache: Path, name: str) -> Path:
    """Save a model into the cache of the hub."""
    repository = hub_cache / f"models--clinic--{name}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("b" * 40)
    folder = repository / "snapshots" / ("b" * 40)
    save_foreign(folder, "BertForTokenClassification", labels=BIO)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "predict {} gene",
        "evaluate {} examples.tsv --set run.bootstrap_samples=5",
        "evaluate {} examples.tsv --against {} --set run.speed=false --set run.bootstrap_samples=5",
        "annotate {} notes.jsonl --out annotated",
        "export {} --fp32 --set run.speed=false --out exported",
        "inspect errors {} examples.tsv",
        "inspect tokens {} gene",
        "inspect masks notes.jsonl --model {}",
        "vocab report {} notes.jsonl",
        "vocab report {} notes.jsonl --against {}",
        "embed encode {} notes.jsonl --pooling mean --out vectors",
        "convert {} --out converted",
    ],
)
def test_every_verb_takes_a_hub_model(command: str, hub_tagger: Path) -> None:
    assert run([part.format("hub:clinic/tagger") for part in command.split()]) == 0


def test_from_python_too(hub_tagger: Path) -> None:
    assert TaskModel.open("hub:clinic/tagger").folder == hub_tagger
    assert Embedder.open("hub:clinic/tagger", mode="mean").embed(["gene"]).vectors_ND.shape == (1, 16)
    assert Tokenizer.open("hub:clinic/tagger").vocab_size > 10


def test_a_hub_model_with_old_weights_alone_is_converted(hub_tagger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_foreign(hub_tagger, "BertForTokenClassification", labels=BIO)
    (hub_tagger / "model.safetensors").unlink()
    torch.save(model.state_dict(), hub_tagger / "pytorch_model.bin")
    assert run(["predict", "hub:clinic/tagger", "gene"]) == 2
    assert "alembert convert hub:clinic/tagger --out NEW_FOLDER" in capsys.readouterr().err
    assert run(["convert", "hub:clinic/tagger", "--out", "converted"]) == 0
    assert run(["predict", "converted", "gene"]) == 0
