"""Logits in strips are those of a linear layer, and so are their gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.projection import to_vocabulary


def parts(states: int, rows: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(states)
    shapes = ((states, 24), (rows, 24), (rows,))
    return [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("rows", [7, 1024, 2500])
@pytest.mark.parametrize("states", [0, 1, 33])
def test_logits_and_gradients_are_those_of_a_linear_layer(states: int, rows: int) -> None:
    given = parts(states, rows)
    weights = torch.randn(states, rows)
    ours, plain = to_vocabulary(*given), functional.linear(*given)
    torch.testing.assert_close(ours, plain)
    found = torch.autograd.grad((ours * weights).sum(), given)
    expected = torch.autograd.grad((plain * weights).sum(), given)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_frozen_embedding_gets_no_gradient() -> None:
    states, embedding, bias = parts(5, 2000)
    embedding.requires_grad_(False)
    to_vocabulary(states, embedding, bias).sum().backward()
    assert embedding.grad is None
    assert states.grad is not None


def test_narrow_types_are_left_to_torch() -> None:
    states, embedding, bias = (part.detach().double() for part in parts(3, 2000))
    assert torch.equal(to_vocabulary(states, embedding, bias), functional.linear(states, embedding, bias))
