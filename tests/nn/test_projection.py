"""Logits in strips are those of a linear layer, and so are their gradients; the loss over them is torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.vocabulary_output import project_to_vocabulary, vocabulary_loss


def parts(states: int, rows: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(states)
    shapes = ((states, 24), (rows, 24), (rows,))
    return [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("rows", [7, 1024, 2500])
@pytest.mark.parametrize("states", [0, 1, 33])
def test_logits_and_gradients_are_those_of_a_linear_layer(states: int, rows: int) -> None:
    given = parts(states, rows)
    weights = torch.randn(states, rows)
    ours, plain = project_to_vocabulary(*given), functional.linear(*given)
    torch.testing.assert_close(ours, plain)
    found = torch.autograd.grad((ours * weights).sum(), given)
    expected = torch.autograd.grad((plain * weights).sum(), given)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_frozen_embedding_gets_no_gradient() -> None:
    states, embedding, bias = parts(5, 2000)
    embedding.requires_grad_(False)
    project_to_vocabulary(states, embedding, bias).sum().backward()
    assert embedding.grad is None
    assert states.grad is not None


def test_narrow_types_are_left_to_torch() -> None:
    states, embedding, bias = (part.detach().double() for part in parts(3, 2000))
    assert torch.equal(project_to_vocabulary(states, embedding, bias), functional.linear(states, embedding, bias))


@pytest.mark.parametrize(("answers", "rows"), [(0, 5), (3, 2), (40, 30_522), (2, 300_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_loss_and_its_gradient_are_those_of_torch(answers: int, rows: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(answers)
    logits = (5 * torch.randn(answers, rows, generator=draw)).to(dtype).requires_grad_()
    labels = torch.randint(rows, (answers,), generator=draw)
    ours = vocabulary_loss(logits, labels)
    plain = functional.cross_entropy(logits.float(), labels, reduction="sum")
    torch.testing.assert_close(ours, plain)
    found, expected = (torch.autograd.grad(loss / 7, logits)[0] for loss in (ours, plain))
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected)


def test_the_loss_does_not_overflow() -> None:
    logits = torch.tensor([[3e4, 0.0, -3e4], [-3e4, 0.0, 3e4]])
    assert vocabulary_loss(logits, torch.tensor([0, 0])).item() == pytest.approx(6e4)
