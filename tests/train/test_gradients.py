"""Sums of gradients do not depend on the number of streams, and no job outlives the call."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import DropoutSeed
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.train.gradients import accumulate

CONFIG = EncoderConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)  # fmt: skip


def model() -> Model:
    return new_model(CONFIG, {"masked_lm": HeadSpec(kind="masked_lm")}, seed=1).train()


def jobs(made: Model, count: int = 7) -> list[Callable[[], Tensor]]:
    def job(number: int) -> Tensor:
        batch = Batch.packed([[number + 1] * (number + 2), [5, 6, 7, 8, 9]])
        return made(batch, noise=DropoutSeed(number))["masked_lm"].logsumexp(-1).mean()

    return [lambda number=number: job(number) for number in range(count)]


def gradients(made: Model) -> list[Tensor]:
    return [parameter.grad for parameter in made.parameters()]


@pytest.mark.parametrize("streams", [2, 3, 8])
def test_any_number_of_streams_gives_the_same_bits(streams: int) -> None:
    one, several = model(), model()
    losses = accumulate(jobs(one), list(one.parameters()), 1)
    assert accumulate(jobs(several), list(several.parameters()), streams) == losses
    assert all(torch.equal(a, b) for a, b in zip(gradients(one), gradients(several), strict=True))


def test_the_sum_is_that_of_plain_backward_passes() -> None:
    ours, plain = model(), model()
    accumulate(jobs(ours), list(ours.parameters()), 2)
    for job in jobs(plain):
        job().backward()
    for a, b in zip(gradients(ours), gradients(plain), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_gradients_are_added_to_what_is_there() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.full((3,), 10.0)
    accumulate([lambda: torch.sum(weight), lambda: 2 * torch.sum(weight)], [weight], 2)
    assert weight.grad.tolist() == [13.0] * 3


@pytest.mark.parametrize("of_one_number", [True, False])
def test_two_parameters_never_share_a_gradient(of_one_number: bool) -> None:
    left, right = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    factor = 1 if of_one_number else torch.ones(3)
    accumulate([lambda: torch.sum((left + right) * factor)] * 3, [left, right], 2)
    assert left.grad.tolist() == right.grad.tolist() == [3.0] * 3


def test_frozen_and_unused_parameters_get_no_gradient() -> None:
    weight, frozen, unused = (nn.Parameter(torch.ones(3)) for _ in range(3))
    frozen.requires_grad_(False)
    accumulate([lambda: torch.sum(weight * frozen)] * 3, [frozen, weight, unused], 2)
    assert frozen.grad is None
    assert unused.grad is None
    assert weight.grad.tolist() == [3.0] * 3


def test_losses_are_numbers_without_a_graph_in_the_order_of_the_jobs() -> None:
    weight = nn.Parameter(torch.ones(()))
    losses = accumulate([lambda n=n: weight * n for n in range(9)], [weight], 3)
    assert [loss.item() for loss in losses] == list(range(9))
    assert not any(loss.requires_grad for loss in losses)


def test_no_jobs_is_no_work() -> None:
    assert accumulate([], [nn.Parameter(torch.ones(()))], 2) == []


def test_an_exception_reaches_the_caller_when_no_job_runs_any_more() -> None:
    weight, running = nn.Parameter(torch.ones(())), []

    def job(number: int) -> Tensor:
        running.append(number)
        if number == 1:
            raise KeyError("a job's own")
        result = weight * number
        running.remove(number)
        return result

    with pytest.raises(KeyError, match="a job's own"):
        accumulate([lambda n=n: job(n) for n in range(20)], [weight], 2)
    assert running == [1]
    assert [loss.item() for loss in accumulate([lambda: weight * 5], [weight], 2)] == [5]


def test_threads_are_reused_and_settings_restored() -> None:
    weight, before = nn.Parameter(torch.ones(())), torch.get_num_threads()
    accumulate([lambda: weight * 1] * 4, [weight], 2)
    threads = threading.active_count()
    for _ in range(5):
        accumulate([lambda: weight * 1] * 4, [weight], 2)
    assert threading.active_count() <= threads
    assert torch.get_num_threads() == before


def test_denormals_are_flushed_in_every_stream() -> None:
    weight = nn.Parameter(torch.ones(()))
    # Written as bits: 1e-40 would already be flushed by a thread that does so.
    tiny = torch.tensor(71_362, dtype=torch.int32).view(torch.float32)
    losses = accumulate([lambda: weight * tiny] * 4, [weight], 2)
    assert [loss.view(torch.int32).item() for loss in losses] == [0] * 4
