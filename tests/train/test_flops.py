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
from alembert.train.progress import count_multiply_adds, count_training_flops

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
MIXED, EQUAL = (7, 3, 7, 11), (8, 8, 8)
CASES = {
    "all tokens leave": (MIXED, list(range(5)), False),
    "most leave": (MIXED, list(range(15)), True),
    "few leave, two of each document": (EQUAL, [0, 3, 9, 15, 16, 22], True),
}
Case = tuple[tuple[int, ...], list[int], bool]
"""Lengths, predicted tokens, and whether others are left out."""


def counted(config: EncoderConfig, case: Case, *, backward: bool) -> int:
    """Let torch count; its plain attention, which it sees as products."""
    lengths, predicted, only = case
    model = new_model(config, {"lm": HeadSpec(kind="masked_lm")}, pooler=False, seed=0)
    batch = Batch.packed([[1] * length for length in lengths])
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        logits = model(batch, predicted_P=torch.tensor(predicted), only=only)["lm"]
        if backward:
            logits.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_forward_pass_counts_as_in_torch(shape: str, case: Case) -> None:
    config = EncoderConfig(**{**SIZES, **SHAPES[shape]})
    lengths, predicted, only = case
    wanted = len(predicted) if only else None
    assert 2 * count_multiply_adds(config, lengths, len(predicted), wanted) == counted(config, case, backward=False)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_training_step_counts_as_in_torch(shape: str, case: Case) -> None:
    config = EncoderConfig(**{**SIZES, **SHAPES[shape]})
    lengths, predicted, only = case
    wanted = len(predicted) if only else None
    assert count_training_flops(config, lengths, len(predicted), wanted) == counted(config, case, backward=True)
