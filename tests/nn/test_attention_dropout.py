"""Attention with dropout equals fused attention without it, and its gradient is the derivative."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from alembert.nn.batch import Batch, DocumentGroup
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import (
    AttentionRectangle,
    DropoutSeed,
    attention_with_dropout,
    build_rectangles,
    query_attention_with_dropout,
)
from alembert.nn.model import new_model


def test_the_mean_over_masks_is_the_probability_weighted_state() -> None:
    group = DocumentGroup(0, 1, 6, (0,))
    qkv = torch.randn(6, 3, 2, 4, generator=torch.Generator().manual_seed(0))
    draws = torch.stack(
        [attention_with_dropout(qkv, lay_out([group], [None]), 0.1, DropoutSeed(seed)) for seed in range(4000)]
    )
    torch.testing.assert_close(draws.mean(0), reference(qkv, group, None), atol=0.05, rtol=0)


GROUPS = [DocumentGroup(0, 2, 3, (0, 1)), DocumentGroup(6, 1, 5, (2,))]
ALLOWED = {
    "everywhere": [None, None],
    "causal": [torch.ones(1, 1, group.length, group.length, dtype=torch.bool).tril() for group in GROUPS],
    "padded": [torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)[:, None, None], None],
}


@pytest.fixture(params=[1, 20, 1_000], ids=["heads apart", "a document at a time", "all at once"])
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in pieces of so many probabilities; a group has 2 x 2 x 9, or 2 x 25, and both together 3 x 2 x 36."""
    monkeypatch.setattr("alembert.nn.dropout._CACHE_ELEMENTS", request.param)


@pytest.fixture(autouse=True, params=[1, 6], ids=["each length", "rounded lengths"])
def _rounding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each length alone, or both groups in one rectangle with padding."""
    monkeypatch.setattr("alembert.nn.dropout._ROUNDING", request.param)


def lay_out(groups: list[DocumentGroup], allowed: list[torch.Tensor | None]) -> tuple[AttentionRectangle, ...]:
    return build_rectangles(groups, allowed, torch.device("cpu"))


def reference(qkv: torch.Tensor, group: DocumentGroup, allowed: torch.Tensor | None) -> torch.Tensor:
    rows = qkv[group.start : group.stop].view(group.rows, group.length, *qkv.shape[1:])
    mixed = scaled_dot_product_attention(*rows.permute(2, 0, 3, 1, 4).unbind(0), attn_mask=allowed)
    return mixed.transpose(1, 2).reshape(group.rows * group.length, -1)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED)
def test_without_dropout_states_and_gradients_are_those_of_fused_attention(allowed: list) -> None:
    qkv = torch.randn(11, 3, 2, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours = attention_with_dropout(qkv, lay_out(GROUPS, allowed), 0.0, DropoutSeed(0))
    theirs = torch.cat([reference(qkv, group, mask) for group, mask in zip(GROUPS, allowed, strict=True)])
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad(states, qkv, direction)[0] for states in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED)
def test_the_gradient_with_dropout_is_the_derivative(allowed: list) -> None:
    qkv = torch.randn(11, 3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(
        lambda x: attention_with_dropout(x, lay_out(GROUPS, allowed), 0.3, DropoutSeed(7)), qkv.requires_grad_()
    )


def test_groups_that_see_everything_are_joined_by_their_rounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alembert.nn.dropout._ROUNDING", 4)
    lengths = [3, 4, 4, 5, 8, 16]
    batch = Batch.packed([[7] * length for length in lengths])
    rectangles = lay_out(list(batch.groups), [None] * len(batch.groups))
    assert [(each.rows, each.length) for each in rectangles] == [(3, 4), (2, 8), (1, 16)]
    assert [(each.start, each.stop) for each in rectangles] == [(0, 11), (11, 24), (24, 40)]
    assert [each.cells_P is None for each in rectangles] == [False, False, True]
    assert rectangles[0].cells_P is not None
    assert rectangles[0].cells_P.tolist() == [0, 1, 2, *range(4, 12)]


@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("masks", [None, (2, 1, 1, 5), (1, 1, 3, 5), (2, 1, 3, 5)])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_some_queries_see_what_they_would_see_among_all(masks: tuple[int, ...] | None, rate: float) -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, 2, length, 4, dtype=torch.float64, generator=draw).requires_grad_() for length in (3, 5, 5)
    )
    allowed = None if masks is None else torch.rand(masks, generator=draw) < 0.7
    if allowed is not None:
        allowed[..., 0] = True  # who may look nowhere sees nothing that could be compared
    if not rate:
        fused = scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        torch.testing.assert_close(query_attention_with_dropout(q, (k, v), allowed, rate, DropoutSeed(0)), fused)
    assert torch.autograd.gradcheck(
        lambda *qkv: query_attention_with_dropout(qkv[0], qkv[1:], allowed, rate, DropoutSeed(7)), (q, k, v)
    )


LENGTHS = [3, 9, 9, 17, 30]


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("selected", [None, [1, 20], list(range(2, 60))], ids=["all", "few", "most"])
def test_rows_that_are_added_change_nothing(
    attention: str, rate: float, selected: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EncoderConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, attention=attention, hidden_dropout_prob=0.0, attention_probs_dropout_prob=rate)  # fmt: skip
    batch = Batch.packed([range(5, 5 + length) for length in LENGTHS])
    chosen = None if selected is None else torch.tensor(selected)
    results = []
    for rounding in (1, 32):
        monkeypatch.setattr("alembert.nn.attention._ROW_ROUNDING", rounding)
        encoder = new_model(config, {}, seed=1).train().encoder
        states = encoder(batch, noise=DropoutSeed(5), selected_P=chosen)
        states.square().sum().backward()
        results.append([states, *(p.grad for p in encoder.parameters() if p.grad is not None)])
    assert len(results[0][0]) == (sum(LENGTHS) if selected is None else len(selected))
    for plain, rounded in zip(*results, strict=True):
        torch.testing.assert_close(plain, rounded, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("selected", [None, [1, 20]], ids=["all", "few"])
def test_training_without_dropout_does_not_use_fused_attention(
    selected: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backward pass in bfloat16 is several times as slow on CPUs."""
    config = EncoderConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    batch = Batch.packed([range(5, 5 + length) for length in LENGTHS])
    chosen = None if selected is None else torch.tensor(selected)
    encoder = new_model(config, {}, seed=1).encoder
    expected = encoder.eval()(batch, selected_P=chosen)

    def refuse(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("fused attention was called")

    monkeypatch.setattr("alembert.nn.attention.scaled_dot_product_attention", refuse)
    states = encoder.train()(batch, noise=DropoutSeed(5), selected_P=chosen)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)
