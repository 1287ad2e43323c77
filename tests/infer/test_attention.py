"""Attention that is shown is the one that the model computed with, whatever the model and the task."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alembert
from alembert.errors import BadInput, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.family import Blueprint
from alembert.infer import attention as module
from alembert.infer.attention import AttentionMaps
from alembert.nn.config import EncoderConfig
from attention_checks import assert_equals_fused
from small_checkpoints import CHARACTERS, SHAPE, fine_tuned, opinionated

SHAPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "shared layers": {"embedding_size": 8, "num_hidden_groups": 1},
    "rotary": {"position_embedding_type": "rotary"},
    "sinusoidal": {"position_embedding_type": "sinusoidal"},
    "pre-norm": {"layer_norm_position": "pre"},
    "causal": {"attention": "causal"},
}
TEXT = "床前明月光"


def save_model(folder: Path, **changes: Any) -> Path:
    config = EncoderConfig(vocab_size=CHARACTERS.vocab_size, **{**SHAPE, **changes})
    made = Checkpoint.new(Blueprint(config=config, heads={}), CHARACTERS)
    opinionated(made.model)
    made.save(folder / "model")
    return folder / "model"


@pytest.mark.parametrize("shape", SHAPES)
def test_probabilities_are_those_of_the_fused_path(shape: str, tmp_path: Path) -> None:
    model = alembert.load(save_model(tmp_path, **SHAPES[shape]))
    maps = model.attention(TEXT)
    assert_equals_fused(model.language_model.model, list(CHARACTERS.encode(TEXT).ids), maps)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_sum_to_one(shape: str, tmp_path: Path) -> None:
    maps = alembert.load(save_model(tmp_path, **SHAPES[shape])).attention(TEXT)
    assert maps.weights_LHTT.shape == (2, 2, 7, 7)
    np.testing.assert_allclose(maps.weights_LHTT.sum(-1), 1, atol=1e-6)


def test_a_causal_model_looks_back_alone(tmp_path: Path) -> None:
    maps = alembert.load(save_model(tmp_path, attention="causal")).attention(TEXT)
    assert not np.triu(maps.weights_LHTT, 1).any()


def test_a_pair_has_two_segments(tmp_path: Path) -> None:
    maps = alembert.load(save_model(tmp_path)).attention(("床前", "月光"))
    assert maps.tokens == ("[CLS]", "床", "前", "[SEP]", "月", "光", "[SEP]")
    assert maps.segments == (0, 0, 0, 0, 1, 1, 1)
    assert maps.special == (True, False, False, True, False, False, True)


@pytest.mark.parametrize("case", ["tag", "classify"])
def test_a_fine_tuned_model_reads_the_rows_of_its_task(case: str, tmp_path: Path) -> None:
    fine_tuned(case, tmp_path / "model", tmp_path / "examples.jsonl")
    model = alembert.load(tmp_path / "model")
    text = "aspirin " * 40
    maps = model.attention(text, window=2)
    assert maps.windows > 1
    assert maps.window == 2
    assert len(maps.tokens) <= SHAPE["max_position_embeddings"]


def test_summaries_share_out_all_attention(tmp_path: Path) -> None:
    maps = alembert.load(save_model(tmp_path)).attention(TEXT)
    assert [(each.layer, each.head) for each in maps.summaries] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [sum(each.shares.values()) for each in maps.summaries] == pytest.approx([1] * 4)


def test_what_a_head_looks_at_is_named() -> None:
    weights_TT = np.array([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0.8, 0, 0.2, 0], [0, 0, 0, 0, 1]])
    special = (True, False, False, False, True)
    maps = AttentionMaps(tuple("[abc]"), (0,) * 5, special, weights_TT[None, None].astype(np.float32))
    (found,) = maps.summaries
    assert found.shares == pytest.approx({"special": 0.6, "itself": 0.04, "previous": 0.2, "next": 0, "other": 0.16})
    assert [(link.source, link.target) for link in found.links] == [(3, 1), (1, 3)]
    assert found.spread == pytest.approx((4 + np.exp(-0.8 * np.log(0.8) - 0.2 * np.log(0.2))) / 5, rel=1e-5)


@pytest.mark.parametrize(("layer", "head", "word"), [(0, 1, "layer"), (3, 1, "layer"), (1, 3, "head")])
def test_a_layer_or_head_out_of_range_is_refused(layer: int, head: int, word: str, tmp_path: Path) -> None:
    maps = alembert.load(save_model(tmp_path)).attention(TEXT)
    with pytest.raises(BadSetting, match=f"The {word} is .; expected 1 to 2"):
        maps.weights(layer, head)


def test_a_text_that_is_too_long_or_empty_is_refused(tmp_path: Path) -> None:
    model = alembert.load(save_model(tmp_path))
    with pytest.raises(BadInput, match="tokens, and the model reads"):
        model.attention(TEXT * 100)
    with pytest.raises(BadInput, match="empty or blank"):
        model.attention(" ")
    with pytest.raises(BadSetting, match="The window is 2; the model reads this input in 1"):
        model.attention(TEXT, window=2)


def test_more_memory_than_is_sensible_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100)
    with pytest.raises(BadInput, match="Give a shorter passage"):
        alembert.load(save_model(tmp_path)).attention(TEXT)
