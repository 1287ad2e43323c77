"""Hub models are fetched only when asked for, from a cache laid out by the test (no network)."""

from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

import alembert
from alembert.errors import BadFile
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.nn.config import EncoderConfig

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
    with pytest.raises(BadFile, match="hub:organisation/name"):
        alembert.open("clinic/tiny")
