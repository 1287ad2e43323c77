"""Copying from the source: the mixture of two distributions, and its gradient."""

import math

import numpy as np
import pytest
import torch

from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.nn.vocabulary_output import START_SHARE

CONFIG = EncoderConfig(
    vocab_size=23,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=16,
    initializer_range=0.4,
)
DOCUMENTS = [[2, 5, 6, 5, 3, 7, 8], [2, 3, 9], [2, 4, 3, 4, 4, 6, 5], [2, 0, 3, 1]]
"""Sources with a piece that occurs twice, without a piece, with one, and with that of padding."""
PREFIXES = [5, 2, 3, 3]
PADDED = torch.tensor([ids + [0] * (7 - len(ids)) for ids in DOCUMENTS])


def model_of(kind: str = "copy_lm") -> Model:
    return new_model(CONFIG, {"lm": HeadSpec(kind=kind, dropout=0.0)}, seed=3).eval()


def packed() -> Batch:
    return Batch.packed(DOCUMENTS, prefixes=PREFIXES)


def logs_of(model: Model, batch: Batch, **asked: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(batch, ["lm"], attention="prefix", **asked)["lm"]
    return found


@torch.inference_mode()
def expected(model: Model, states_TD: torch.Tensor, logits_TV: torch.Tensor, ids: list[int], prefix: int) -> np.ndarray:
    """The formula, piece by piece, in double precision."""
    copy = model.head("lm").copy.double()
    states_TD, likely = states_TD.double(), logits_TV.double().softmax(-1)
    if prefix <= 2:
        return likely.numpy()
    source = slice(1, prefix - 1)
    gate = torch.sigmoid(copy.gate(states_TD) + copy.bias)
    shares = (copy.query(states_TD) @ copy.key(states_TD[source]).T / math.sqrt(16)).softmax(-1)
    mixed = (1 - gate) * likely
    for column, piece in enumerate(ids[source]):
        mixed[:, piece] += gate[:, 0] * shares[:, column]
    return mixed.numpy()


def test_the_mixture_is_that_of_the_paper() -> None:
    model, plain, batch = model_of(), model_of("masked_lm"), packed()
    plain.load_state_dict({name: w for name, w in model.state_dict().items() if ".copy." not in name})
    with torch.inference_mode():
        logs, hidden = batch.split(logs_of(model, batch)), batch.split(model(batch, [], attention="prefix")["hidden"])
        logits = batch.split(logs_of(plain, batch))
    for number, (ids, prefix) in enumerate(zip(DOCUMENTS, PREFIXES, strict=True)):
        right = expected(model, hidden[number], logits[number], ids, prefix)
        np.testing.assert_allclose(logs[number].exp().numpy(), right, atol=1e-6)
        np.testing.assert_allclose(right.sum(-1), 1)


@torch.inference_mode()
def test_padded_equals_packed() -> None:
    lengths = torch.tensor([[len(ids)] for ids in DOCUMENTS])
    padded = Batch.padded(PADDED, torch.arange(7) < lengths, prefixes=PREFIXES)
    one, other = packed(), padded
    for left, right in zip(one.split(logs_of(model_of(), one)), other.split(logs_of(model_of(), other)), strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_places_are_answered_as_if_all_were_asked() -> None:
    model, batch, places = model_of(), packed(), torch.tensor([14, 3, 6, 1])
    found = model(batch, ["lm"], attention="prefix", positions_P=places, only=True)["lm"]
    torch.testing.assert_close(found, logs_of(model, batch)[places])


@torch.inference_mode()
def test_a_closed_gate_leaves_the_plain_head() -> None:
    model, plain = model_of(), model_of("masked_lm")
    plain.load_state_dict({name: w for name, w in model.state_dict().items() if ".copy." not in name})
    model.head("lm").copy.bias.fill_(-1e4)
    torch.testing.assert_close(logs_of(model, packed()), logs_of(plain, packed()).log_softmax(-1))


def test_a_fresh_gate_lets_little_through() -> None:
    assert torch.sigmoid(model_of().head("lm").copy.bias).item() == pytest.approx(START_SHARE)


@pytest.mark.parametrize("gate", [-200.0, 0.0, 200.0])
def test_every_weight_has_a_gradient_that_is_a_number(gate: float) -> None:
    model = model_of()
    with torch.no_grad():
        model.head("lm").copy.bias.fill_(gate)
    (-logs_of(model, packed())[:, 6].sum()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


def test_the_gradient_is_that_of_small_steps() -> None:
    model = model_of()

    def loss() -> torch.Tensor:
        return -logs_of(model, packed())[[5, 6, 8, 12], [5, 6, 4, 9]].sum()

    loss().backward()
    for name in ("bias", "gate.weight", "query.weight", "key.weight"):
        weight = model.head("lm").copy.get_parameter(name)
        assert weight.grad is not None
        flat, place, step = weight.data.view(-1), int(weight.grad.abs().argmax()), 1e-2
        around = []
        for change in (step, -2 * step):
            flat[place] += change
            around.append(loss().item())
        flat[place] += step
        slope = (around[0] - around[1]) / (2 * step)
        assert slope == pytest.approx(weight.grad.view(-1)[place].item(), rel=0.03, abs=1e-3), name
