"""The count of multiply-adds, against what torch counts while a model runs."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import new_model
from alembert.train.work import multiply_adds, training_flop

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 40,
}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "albert": {"embedding_size": 6, "num_hidden_groups": 2},
    "several layers in a group": {"num_hidden_groups": 1, "inner_group_num": 2},
    "rotary": {"position_embedding_type": "rotary"},
}
LENGTHS = (7, 3, 7, 11)


def counted(config: EncoderConfig, predictions: int, *, only: bool, backward: bool) -> int:
    """Let torch count; its plain attention, which it sees as products."""
    model = new_model(config, {"lm": HeadSpec(kind="masked_lm")}, pooler=False, seed=0)
    batch = Batch.packed([[1] * length for length in LENGTHS])
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        logits = model(batch, predicted_P=torch.arange(predictions), only=only)["lm"]
        if backward:
            logits.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("wanted", [None, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_forward_pass_counts_as_in_torch(shape: str, wanted: int | None) -> None:
    config = EncoderConfig(**{**SIZES, **SHAPES[shape]})
    found = counted(config, 5, only=wanted is not None, backward=False)
    assert 2 * multiply_adds(config, LENGTHS, 5, wanted) == found


@pytest.mark.parametrize("wanted", [None, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_training_step_counts_as_in_torch(shape: str, wanted: int | None) -> None:
    config = EncoderConfig(**{**SIZES, **SHAPES[shape]})
    found = counted(config, 5, only=wanted is not None, backward=True)
    assert training_flop(config, LENGTHS, 5, wanted) == found
