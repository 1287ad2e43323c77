"""Multiplications of an encoder: torch's own count, and the ratios that are spoken of."""

from typing import Any

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig, count_multiplications_per_token
from alembert.nn.encoder import Encoder


def sized(layers: int, width: int, inner: int, heads: int) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=30,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )


@pytest.mark.parametrize("changes", [{}, {"embedding_size": 4, "num_hidden_groups": 1}], ids=["bert", "albert"])
def test_the_count_for_a_token_is_torchs(changes: dict[str, Any]) -> None:
    config = EncoderConfig(vocab_size=30, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=20, **changes)  # fmt: skip
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:
        Encoder(config)(Batch.packed([[1] * 16, [2] * 16]))
    # torch counts a multiply-add as two operations.
    assert 2 * 32 * count_multiplications_per_token(config, tokens=16) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("size", "times"),
    [
        ((4, 312, 1200, 12), 4.6),
        ((3, 384, 1536, 12), 4.0),
        ((6, 384, 1536, 12), 2.0),
        ((6, 256, 1024, 8), 4.4),
    ],
)
def test_students_of_a_teacher_of_12_by_384(size: tuple[int, int, int, int], times: float) -> None:
    teacher = count_multiplications_per_token(sized(12, 384, 1536, 12))
    assert round(teacher / count_multiplications_per_token(sized(*size)), 1) == times


def test_a_token_of_a_longer_text_takes_more() -> None:
    config = sized(2, 8, 16, 2)
    assert (
        count_multiplications_per_token(config, 512) - count_multiplications_per_token(config, 128) == 2 * 2 * 8 * 384
    )
