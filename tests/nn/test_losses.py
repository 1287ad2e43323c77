"""Losses against torch and against plain references; what is the same by definition is the same."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from alembert.nn.losses import (
    binary_cross_entropy,
    cross_entropy,
    partial_cross_entropy,
    soft_binary_cross_entropy,
    soft_cross_entropy,
    squared_difference,
    squared_error,
    symmetric_binary_kl,
    symmetric_kl,
)

P, C = 7, 4
WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 3.0])
OPTIONS = st.fixed_dictionaries(
    {
        "smoothing": st.sampled_from([0.0, 0.1, 0.5]),
        "focal": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "weights": st.sampled_from([None, WEIGHTS]),
    }
)


def drawn(seed: int = 0, *, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(P, C, generator=torch.Generator().manual_seed(seed))


def labels(seed: int = 0) -> Tensor:
    return torch.randint(C, (P,), generator=torch.Generator().manual_seed(seed))


def yes_or_no(seed: int = 0) -> Tensor:
    return (drawn(seed + 100) > 0).float()


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_torchs(smoothing: float, weights: Tensor | None) -> None:
    reference = functional.cross_entropy(drawn(), labels(), weight=weights, label_smoothing=smoothing, reduction="sum")
    ours = cross_entropy(drawn(), labels(), smoothing=smoothing, weights=weights)
    torch.testing.assert_close(ours, reference)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_binary_cross_entropy_is_torchs(smoothing: float) -> None:
    softened = yes_or_no() * (1 - smoothing) + smoothing / 2
    reference = functional.binary_cross_entropy_with_logits(drawn(), softened, pos_weight=WEIGHTS, reduction="sum")
    ours = binary_cross_entropy(drawn(), yes_or_no(), smoothing=smoothing, weights=WEIGHTS)
    torch.testing.assert_close(ours, reference / C)


def test_squared_error_is_torchs() -> None:
    reference = functional.mse_loss(drawn()[:, 0], drawn(1)[:, 0], reduction="sum")
    torch.testing.assert_close(squared_error(drawn()[:, :1], drawn(1)[:, 0]), reference)


def test_focal_cross_entropy_equals_a_plain_reference() -> None:
    p = drawn().double().softmax(-1)[torch.arange(P), labels()]
    reference = -(WEIGHTS[labels()] * (1 - p) ** 2 * p.log()).sum()
    ours = cross_entropy(drawn(), labels(), focal=2.0, weights=WEIGHTS)
    torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=1e-6)


def test_focal_binary_cross_entropy_equals_a_plain_reference() -> None:
    p = drawn().double().sigmoid()
    right = torch.where(yes_or_no() > 0, p, 1 - p)
    reference = -((1 - right) ** 2 * right.log()).sum() / C
    ours = binary_cross_entropy(drawn(), yes_or_no(), focal=2.0)
    torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(OPTIONS, st.integers(0, 99))
def test_one_allowed_label_is_cross_entropy(options: dict[str, object], seed: int) -> None:
    allowed = functional.one_hot(labels(seed), C).bool()
    ours = partial_cross_entropy(drawn(seed), allowed, **options)
    torch.testing.assert_close(ours, cross_entropy(drawn(seed), labels(seed), **options))


@settings(max_examples=30, deadline=None)
@given(OPTIONS, st.integers(0, 99))
def test_if_all_labels_are_allowed_nothing_is_learnt(options: dict[str, object], seed: int) -> None:
    logits = drawn(seed).requires_grad_()
    loss = partial_cross_entropy(logits, torch.ones(P, C, dtype=torch.bool), **options)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (loss.item(), int(gradient.count_nonzero())) == (0.0, 0)


def test_allowed_labels_share_their_probability() -> None:
    allowed = torch.tensor([True, False, True, False]).expand(P, C)
    reference = -drawn().double().softmax(-1)[:, [0, 2]].sum(-1).log().sum()
    torch.testing.assert_close(partial_cross_entropy(drawn(), allowed).double(), reference)


def test_several_labels_weigh_as_much_as_the_likely_one() -> None:
    logits = torch.tensor([[0.0, 40.0, 0.0, 42.0]])
    allowed = torch.tensor([[True, True, False, False]])
    plain = partial_cross_entropy(logits, allowed)
    torch.testing.assert_close(partial_cross_entropy(logits, allowed, weights=WEIGHTS), WEIGHTS[1] * plain)


def test_symmetric_kl_is_torchs() -> None:
    one, other = drawn(0).log_softmax(-1), drawn(1).log_softmax(-1)
    both = [functional.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((one, other), (other, one))]
    torch.testing.assert_close(symmetric_kl(drawn(0), drawn(1)), sum(both) / 2)


def test_symmetric_binary_kl_is_that_of_two_labels() -> None:
    one, other = (torch.stack([logits, torch.zeros_like(logits)], -1) for logits in (drawn(0), drawn(1)))
    torch.testing.assert_close(symmetric_binary_kl(drawn(0), drawn(1)), symmetric_kl(one, other) / C)


@pytest.mark.parametrize("divergence", [symmetric_kl, symmetric_binary_kl, squared_difference])
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99))
def test_divergences_are_distances(divergence: Callable[[Tensor, Tensor], Tensor], first: int, second: int) -> None:
    there, back = divergence(drawn(first), drawn(second)), divergence(drawn(second), drawn(first))
    torch.testing.assert_close(there, back)
    assert float(there) == 0 if first == second else float(there) > 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_soft_cross_entropy_is_torchs_less_the_entropy_of_the_teacher(temperature: float) -> None:
    likely = (drawn(1) / temperature).softmax(-1)
    entropy = -(likely * likely.log()).sum()
    reference = functional.cross_entropy(drawn(0) / temperature, likely, reduction="sum") - entropy
    torch.testing.assert_close(soft_cross_entropy(drawn(0), drawn(1), temperature), reference)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_soft_binary_cross_entropy_is_that_of_two_labels(temperature: float) -> None:
    student, teacher = (torch.stack([each, torch.zeros_like(each)], -1) for each in (drawn(0), drawn(1)))
    ours = soft_binary_cross_entropy(drawn(0), drawn(1), temperature)
    torch.testing.assert_close(ours, soft_cross_entropy(student, teacher, temperature) / C)


SOFT = [soft_cross_entropy, soft_binary_cross_entropy, squared_difference]


@pytest.mark.parametrize("loss", SOFT)
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_student_that_equals_its_teacher_learns_nothing(
    loss: Callable[[Tensor, Tensor], Tensor], scale: float
) -> None:
    student = drawn(scale=scale).requires_grad_()
    found = loss(student, student.detach())
    (gradient,) = torch.autograd.grad(found, student)
    assert found.item() == 0
    assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("loss", SOFT)
def test_sides_of_short_types_are_compared_in_float32(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    student, teacher = drawn(0).bfloat16(), drawn(1).half()
    torch.testing.assert_close(loss(student, teacher), loss(student.float(), teacher.float()))


@pytest.mark.parametrize("loss", SOFT)
def test_what_was_computed_in_inference_mode_can_be_imitated(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    with torch.inference_mode():
        teacher = drawn(1)
    student = drawn(0).requires_grad_()
    assert torch.autograd.grad(loss(student, teacher), student)[0].abs().max() > 0


@pytest.mark.parametrize("loss", [soft_cross_entropy, soft_binary_cross_entropy])
def test_sides_that_are_sure_of_opposites_are_finitely_far_apart(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    student = drawn(0, scale=1e3).requires_grad_()
    found = loss(student, -student.detach())
    assert torch.isfinite(found)
    assert torch.autograd.grad(found, student)[0].isfinite().all()


@pytest.mark.parametrize("focal", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("size", [1e3, 30.0, -1e3])
def test_gradients_of_extreme_outputs_are_finite(focal: float, size: float) -> None:
    logits = (size * functional.one_hot(labels(), C)).requires_grad_()
    allowed = functional.one_hot(labels(), C).bool()
    loss = (
        cross_entropy(logits, labels(), focal=focal, smoothing=0.1)
        + partial_cross_entropy(logits, allowed, focal=focal, smoothing=0.1)
        + binary_cross_entropy(logits, allowed, focal=focal, smoothing=0.1)
    )
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_sums_are_of_float32() -> None:
    narrow = drawn().bfloat16()
    torch.testing.assert_close(cross_entropy(narrow, labels()), cross_entropy(narrow.float(), labels()))
    assert cross_entropy(narrow, labels()).dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"smoothing": 0.1, "focal": 2.0, "weights": WEIGHTS}], ids=str)
def test_no_answers_are_no_loss(options: dict[str, object]) -> None:
    none = drawn()[:0]
    sums = [
        cross_entropy(none, labels()[:0], **options),
        partial_cross_entropy(none, none > 0, **options),
        binary_cross_entropy(none, none > 0, **options),
        symmetric_kl(none, none),
        soft_cross_entropy(none, none),
        soft_binary_cross_entropy(none, none),
    ]
    assert [float(each) for each in sums] == [0.0] * 6
