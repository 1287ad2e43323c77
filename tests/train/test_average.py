"""The moving average: its numbers, and that the model gets back exactly what it had."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from alembert.errors import BadFile, BadSetting
from alembert.train.gradients import ExponentialMovingAverage


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))


def move(module: nn.Module, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def averaged(average: ExponentialMovingAverage, module: nn.Module) -> dict[str, Tensor]:
    with average.applied():
        return copies(module)


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.99])
def test_equals_the_formula(decay: float) -> None:
    module = model()
    average = ExponentialMovingAverage(module, decay)
    expected = copies(module)
    for n in range(20):
        move(module, n)
        kept = min(decay, (1 + n) / (10 + n))
        expected = {name: kept * expected[name] + (1 - kept) * value for name, value in module.state_dict().items()}
        average.update()
    torch.testing.assert_close(averaged(average, module), expected)


def test_before_any_update_it_is_the_model() -> None:
    module = model()
    assert same(averaged(ExponentialMovingAverage(module, 0.9), module), copies(module))


def test_the_model_gets_its_own_parameters_back() -> None:
    module = model()
    average = ExponentialMovingAverage(module, 0.9)
    move(module, 1)
    average.update()
    before, places = copies(module), [parameter.data_ptr() for parameter in module.parameters()]
    inside = averaged(average, module)
    assert not same(inside, before)
    assert same(copies(module), before)
    assert [parameter.data_ptr() for parameter in module.parameters()] == places


def test_the_model_gets_its_own_parameters_back_after_an_error() -> None:
    module = model()
    average = ExponentialMovingAverage(module, 0.9)
    move(module, 1)
    before = copies(module)
    with pytest.raises(RuntimeError, match="out of memory"), average.applied():
        raise RuntimeError("out of memory")
    assert same(copies(module), before)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 6), st.integers(1, 6))
def test_a_loaded_average_continues_to_the_bit(before: int, after: int) -> None:
    one = model()
    straight = ExponentialMovingAverage(one, 0.8)
    for n in range(before):
        move(one, n)
        straight.update()
    other = model(seed=1)
    other.load_state_dict(one.state_dict())
    resumed = ExponentialMovingAverage(other, 0.8)
    resumed.load({name: value.clone() for name, value in straight.state().items()})
    for n in range(before, before + after):
        for module, average in ((one, straight), (other, resumed)):
            move(module, n)
            average.update()
    assert same(averaged(straight, one), averaged(resumed, other))


def test_a_state_of_another_model_is_refused() -> None:
    with pytest.raises(BadFile, match="other parameters"):
        ExponentialMovingAverage(model(), 0.9).load(ExponentialMovingAverage(nn.Linear(2, 2), 0.9).state())


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_a_decay_that_cannot_work_is_refused(decay: float) -> None:
    with pytest.raises(BadSetting, match="decay"):
        ExponentialMovingAverage(model(), decay)
