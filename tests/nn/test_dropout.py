"""Masks depend on seed and place alone, have the right share, and are what the gradient is multiplied with."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import Dropout, DropoutSeed, effective_rate
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model

CPU = torch.device("cpu")
MANY = 1_000_000
CONFIG = EncoderConfig(vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, num_hidden_groups=1)  # fmt: skip
BATCH = Batch.packed([[5, 6, 7, 8], [9], [10, 11, 12, 13], [14, 15]])


def model() -> Model:
    heads = {"tag": HeadSpec(kind="tag", outputs=3), "second": HeadSpec(kind="tag", outputs=3)}
    return new_model(CONFIG, heads, seed=1).train()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_rate(rate: float) -> None:
    dropped = 1 - DropoutSeed(3).draw_keep_mask(rate, MANY, CPU).float().mean().item()
    assert abs(dropped - effective_rate(rate)) < 5 * math.sqrt(rate * (1 - rate) / MANY)
    assert abs(effective_rate(rate) - rate) <= 1 / 131_072


@pytest.mark.parametrize(
    "other", [DropoutSeed(4), DropoutSeed(3, (1,)), DropoutSeed(3, (0, 1)), DropoutSeed(3, (0, 0))]
)
def test_other_seeds_and_places_are_independent(other: DropoutSeed) -> None:
    masks = torch.stack([noise.draw_keep_mask(0.5, MANY, CPU).float() for noise in (DropoutSeed(3, (0,)), other)])
    assert abs(torch.corrcoef(masks)[0, 1].item()) < 5 / math.sqrt(MANY)


def test_masks_are_the_words_of_a_generator_cut_in_four() -> None:
    """Written out, because a run that was begun with other masks could not be continued."""
    words = np.random.SFC64(np.random.SeedSequence(3, spawn_key=(1, 2))).random_raw(5)
    expected = words.view(np.uint16)[:17] >= round(0.25 * 65_536)
    assert DropoutSeed(3, (1, 2)).draw_keep_mask(0.25, 17, CPU).tolist() == expected.tolist()


def test_neighbours_in_a_mask_are_independent() -> None:
    mask = DropoutSeed(3).draw_keep_mask(0.5, MANY, CPU).float()
    for distance in (1, 2, 3, 4, 128):
        pairs = torch.stack((mask[:-distance], mask[distance:]))
        assert abs(torch.corrcoef(pairs)[0, 1].item()) < 5 / math.sqrt(MANY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_gradient_is_the_mask_scaled(dtype: torch.dtype) -> None:
    states = torch.ones(7, 30, dtype=dtype, requires_grad=True)
    dropped = Dropout(0.25)(states, DropoutSeed(1))
    (gradient,) = torch.autograd.grad(dropped, states, torch.ones_like(dropped))
    assert torch.equal(gradient, dropped)
    assert set(dropped.flatten().tolist()) == {0.0, torch.tensor(1 / 0.75, dtype=dtype).item()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_transposed_tensor_is_dropped_in_place_order(dtype: torch.dtype) -> None:
    states = torch.randn(8, 5, dtype=dtype)
    drop = Dropout(0.5)
    assert torch.equal(drop(states.T, DropoutSeed(1)), drop(states.T.contiguous(), DropoutSeed(1)))


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero() -> None:
    states = torch.randn(4, 4)
    assert Dropout(0.5).eval()(states, DropoutSeed(1)) is states
    assert Dropout(0.0)(states, DropoutSeed(1)) is states


def test_the_same_noise_gives_the_same_states_whatever_the_thread() -> None:
    made = model()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: made(BATCH, noise=DropoutSeed(5)), range(8)))
    assert all(torch.equal(result[name], results[0][name]) for result in results for name in result)
    assert not torch.equal(made(BATCH, noise=DropoutSeed(6))["hidden"], results[0]["hidden"])


def test_noise_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    model()(BATCH, noise=DropoutSeed(5))
    assert torch.equal(before, torch.get_rng_state())


def test_evaluation_ignores_noise() -> None:
    made = model().eval()
    assert torch.equal(made(BATCH, noise=DropoutSeed(5))["tag"], made(BATCH)["tag"])


def test_each_application_of_a_shared_layer_and_each_head_has_masks_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[tuple[int, ...]] = []
    draw = DropoutSeed.draw_keep_mask
    monkeypatch.setattr(
        DropoutSeed, "draw_keep_mask", lambda noise, *rest: places.append(noise.path) or draw(noise, *rest)
    )
    model()(BATCH, noise=DropoutSeed(5))
    blocks = [(1, layer, place) for layer in range(3) for place in range(3)]
    assert places == [(0,), *blocks, (2, 0), (2, 1)]


def test_recomputed_activations_have_the_same_masks() -> None:
    gradients = []
    for recompute in (False, True):
        made = model()
        made.encoder.recompute = recompute
        made(BATCH, noise=DropoutSeed(5))["tag"].square().sum().backward()
        gradients.append([p.grad for p in made.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
