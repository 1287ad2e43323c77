"""Update rules against torch and plain references; what must not move does not move; a loaded state continues."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from alembert.errors import BadFile, BadSetting
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.train.optim import Optimiser
from alembert.train.parts import (
    MODEL_PARTS,
    get_depth,
    get_model_part,
    has_weight_decay,
    set_trainable_parts,
)
from alembert.train.settings import OptimiserSettings

LAYERS, HEADS, HEAD_SIZE = 3, 4, 2
CONFIG = {
    "vocab_size": 11, "hidden_size": HEADS * HEAD_SIZE, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": 12, "max_position_embeddings": 6,
}  # fmt: skip
HEAD_SPECS = {"lm": HeadSpec(kind="masked_lm"), "next": HeadSpec(kind="next_sentence")}
TOKENS, QKV, OUT, TOP = (
    "encoder.embeddings.token.weight",
    "encoder.blocks.1.attention.qkv.weight",
    "encoder.blocks.1.attention.out.weight",
    "heads.next.linear.weight",
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Waking a second thread for each of these tiny tensors takes far longer than the arithmetic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(**changes: object) -> Model:
    made = new_model(EncoderConfig(**{**CONFIG, **changes}), HEAD_SPECS, seed=1)
    with torch.no_grad():  # zeros would hide decay
        for parameter in made.parameters():
            parameter.add_(0.1)
    return made


def gradient(name: str, parameter: Tensor, number: int, scale: float = 0.01) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * number + len(name))
    return scale * torch.randn(parameter.shape, generator=generator)


def give(module: nn.Module, number: int, scale: float = 0.01) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            parameter.grad = gradient(name, parameter, number, scale)


def copies(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def train(module: Model, optimiser: Optimiser, steps: range, rate: float = 0.01) -> dict[str, Tensor]:
    for number in steps:
        give(module, number)
        optimiser.step(number, rate)
    return copies(module)


def trained(steps: int = 5, rate: float = 0.01, **options: object) -> dict[str, Tensor]:
    module = model()
    return train(module, Optimiser(module, OptimiserSettings(**options)), range(steps), rate)


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


Rule = Callable[[str, Tensor, Tensor, dict[str, Tensor], int], Tensor]


def by_rule(rule: Rule, steps: int = 5) -> dict[str, Tensor]:
    """Train with a plain rule (name, weights, gradient, memory, step from 1) -> weights, in double precision."""
    module = model()
    weights = {name: value.double() for name, value in copies(module).items()}
    memory: dict[str, dict[str, Tensor]] = {name: {} for name in weights}
    for number in range(steps):
        for name, value in weights.items():
            grad = gradient(name, value, number).double()
            weights[name] = rule(name, value, grad, memory[name], number + 1)
    return weights


def direction(grad: Tensor, memory: dict[str, Tensor], step: int, *, correct: bool) -> Tensor:
    memory["m"] = 0.9 * memory.get("m", torch.zeros_like(grad)) + 0.1 * grad
    memory["v"] = 0.999 * memory.get("v", torch.zeros_like(grad)) + 0.001 * grad**2
    first, second = (1 - 0.9**step, 1 - 0.999**step) if correct else (1.0, 1.0)
    return memory["m"] / first / ((memory["v"] / second).sqrt() + 1e-6)


def assert_near(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> None:
    for name, value in ours.items():
        torch.testing.assert_close(value.double(), reference[name], atol=1e-6, rtol=1e-6, msg=name)


def test_adamw_is_torchs() -> None:
    module = model()
    named = list(module.named_parameters())
    groups = [
        {"params": [p for _, p in named if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for _, p in named if p.ndim == 1], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=0.01, eps=1e-6, fused=True)
    for number in range(5):
        give(module, number)
        reference.step()
    assert same(trained(clip=None), copies(module))


def test_clipping_is_torchs() -> None:
    module, other = model(), model()
    give(module, 0, scale=3.0)
    give(other, 0, scale=3.0)
    norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    assert Optimiser(module, OptimiserSettings(clip=0.5)).step(0, 0.01) == pytest.approx(float(norm))
    Optimiser(other, OptimiserSettings(clip=None)).step(0, 0.01)
    torch.testing.assert_close(copies(module), copies(other), atol=1e-6, rtol=0)


def test_a_short_gradient_is_not_clipped() -> None:
    assert same(trained(clip=1e3), trained(clip=None))


def test_berts_adam_equals_a_plain_reference() -> None:
    def rule(name: str, value: Tensor, grad: Tensor, memory: dict[str, Tensor], step: int) -> Tensor:
        update = direction(grad, memory, step, correct=False)
        return value - 0.01 * (update + 0.01 * value if value.ndim > 1 else update)

    assert_near(trained(name="bert_adam", clip=None), by_rule(rule))


@pytest.mark.parametrize("correct", [True, False])
def test_lamb_equals_a_plain_reference(correct: bool) -> None:
    def rule(name: str, value: Tensor, grad: Tensor, memory: dict[str, Tensor], step: int) -> Tensor:
        update = direction(grad, memory, step, correct=correct)
        if value.ndim == 1:
            return value - 0.01 * update
        update = update + 0.01 * value
        return value - 0.01 * value.norm() / update.norm() * update

    assert_near(trained(name="lamb", bias_correction=correct, clip=None), by_rule(rule))


def test_lamb_moves_weights_that_are_zero() -> None:
    module = model()
    nn.init.zeros_(module.get_parameter(TOP))
    give(module, 0)
    Optimiser(module, OptimiserSettings(name="lamb")).step(0, 0.01)
    assert module.get_parameter(TOP).isfinite().all()
    assert module.get_parameter(TOP).abs().min() > 0


def test_the_layout_of_a_gradient_in_memory_does_not_matter() -> None:
    module, other = model(), model()
    give(module, 0)
    give(other, 0)
    parameter = other.get_parameter(TOKENS)
    parameter.grad = parameter.grad.t().contiguous().t()
    for each in (module, other):
        Optimiser(each, OptimiserSettings()).step(0, 0.01)
    assert same(copies(module), copies(other))


def test_each_layer_down_has_a_lower_rate() -> None:
    before = copies(model())
    flat = trained(steps=1, weight_decay=0.0)
    sloped = trained(steps=1, weight_decay=0.0, layer_decay=0.5)
    for name, old in before.items():
        expected = (flat[name] - old) * 0.5 ** (LAYERS + 1 - get_depth(name, LAYERS))
        torch.testing.assert_close(sloped[name] - old, expected, atol=1e-7, rtol=0, msg=name)


def test_only_biases_and_layer_norms_do_not_decay() -> None:
    module = model(layer_norm_position="pre", embedding_size=4)
    spared = {
        f"{place}.{name}"
        for place, part in module.named_modules()
        for name, _ in part.named_parameters(recurse=False)
        if isinstance(part, nn.LayerNorm) or name == "bias"
    }
    assert {name for name, parameter in module.named_parameters() if not has_weight_decay(name, parameter)} == spared


@pytest.mark.parametrize("rule", ["adamw", "bert_adam", "lamb"])
@pytest.mark.parametrize("parts", [("heads",), ("layers",), ("embeddings", "heads")], ids=str)
def test_frozen_parts_do_not_move(rule: str, parts: tuple[str, ...]) -> None:
    module = model()
    set_trainable_parts(module, parts)
    before, optimiser = copies(module), Optimiser(module, OptimiserSettings(name=rule))
    train_names = {name for name in before if get_model_part(name) in parts}
    assert moved(before, train(module, optimiser, range(2))) == train_names
    assert {key.split("/")[1] for key in optimiser.state()} == train_names


def test_a_part_that_is_frozen_later_keeps_its_moments() -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings())
    give(module, 0)
    optimiser.step(0, 0.01)
    before = {key: value.clone() for key, value in optimiser.state().items() if TOKENS in key}
    give(module, 1)
    set_trainable_parts(module, ["heads"])
    optimiser.step(1, 0.01)
    assert all(torch.equal(optimiser.state()[key], value) for key, value in before.items())


@pytest.mark.parametrize("rule", ["adamw", "bert_adam", "lamb"])
def test_only_parameters_with_gradients_move(rule: str) -> None:
    module = model()
    before = copies(module)
    module.get_parameter(TOP).grad = torch.ones_like(module.get_parameter(TOP))
    Optimiser(module, OptimiserSettings(name=rule)).step(0, 0.01)
    assert moved(before, copies(module)) == {TOP}


def test_select_lets_everything_train_again() -> None:
    module = model()
    set_trainable_parts(module, ["heads"])
    set_trainable_parts(module, None)
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("parts", [["head"], []], ids=str)
def test_select_refuses_parts_that_are_none(parts: list[str]) -> None:
    with pytest.raises(BadSetting, match="expected some of embeddings, layers, heads"):
        set_trainable_parts(model(), parts)


def test_every_parameter_has_a_part_and_a_depth() -> None:
    module = model(layer_norm_position="pre", embedding_size=4)
    found = {(get_model_part(name), get_depth(name, LAYERS)) for name, _ in module.named_parameters()}
    assert found == {("embeddings", 0), ("layers", 1), ("layers", 2), ("layers", 3), ("heads", 4)}
    assert {part for part, _ in found} == set(MODEL_PARTS)


def test_gradients_are_cleared() -> None:
    module = model()
    train(module, Optimiser(module, OptimiserSettings(update_every=(2,))), range(1))
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("every", [(), (2, 1)], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_changes_nothing(value: float, every: tuple[int, ...]) -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings(update_every=every))
    before = copies(module)
    give(module, 0)
    module.get_parameter(TOKENS).grad[0, 0] = value
    assert not math.isfinite(optimiser.step(0, 0.01))
    assert (moved(before, copies(module)), optimiser.state()) == (set(), {})


def test_a_layer_that_collects_is_updated_with_the_mean() -> None:
    module, other = model(), model()
    optimiser = Optimiser(module, OptimiserSettings(update_every=(3,), clip=None))
    before = copies(module)
    assert moved(before, train(module, optimiser, range(2))) == set()
    train(module, optimiser, range(2, 3))
    for name, parameter in other.named_parameters():
        parameter.grad = sum(gradient(name, parameter, number) for number in range(3)) / 3
    Optimiser(other, OptimiserSettings(clip=None)).step(0, 0.01)
    torch.testing.assert_close(copies(module), copies(other), atol=1e-6, rtol=0)


def test_layers_are_updated_as_often_as_told() -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings(update_every=(4, 2, 1)))
    updates = dict.fromkeys(range(LAYERS + 2), 0)
    for number in range(8):
        before = copies(module)
        depths = {
            get_depth(name, LAYERS) for name in moved(before, train(module, optimiser, range(number, number + 1)))
        }
        updates = {depth: count + (depth in depths) for depth, count in updates.items()}
    assert updates == {0: 2, 1: 4, 2: 8, 3: 8, 4: 8}


def test_a_lost_step_is_not_part_of_the_mean() -> None:
    module, other = model(), model()
    optimiser = Optimiser(module, OptimiserSettings(update_every=(2,), clip=None))
    give(module, 0, scale=math.inf)
    optimiser.step(0, 0.01)
    train(module, optimiser, range(1, 2))
    train(other, Optimiser(other, OptimiserSettings(clip=None)), range(1, 2))
    assert same(copies(module), copies(other))


def heads_that_moved(before: dict[str, Tensor], after: dict[str, Tensor], name: str) -> set[int]:
    difference = (after[name] != before[name]).movedim(1 if name == OUT else 0, 0)
    groups = difference.flatten(1) if difference.ndim > 1 else difference[:, None]
    by_head = groups.view(-1, HEADS, HEAD_SIZE, groups.shape[1])
    return {head for head in range(HEADS) if by_head[:, head].any()}


@pytest.mark.parametrize("name", [QKV, QKV.replace("weight", "bias"), OUT])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_half_of_the_heads_train_in_turn(name: str, every: int) -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings(half_heads=True, update_every=(every,)))
    turns = []
    for window in range(4):
        before = copies(module)
        after = train(module, optimiser, range(window * every, (window + 1) * every))
        turns.append(heads_that_moved(before, after, name))
    assert turns == [{0, 2}, {1, 3}, {0, 2}, {1, 3}]


@pytest.mark.parametrize("heads", [4, 1 + 2])
def test_half_heads_move_as_the_whole_would(heads: int) -> None:
    size = {"num_attention_heads": heads, "hidden_size": heads * HEAD_SIZE}
    module, other = model(**size), model(**size)
    halves = train(module, Optimiser(module, OptimiserSettings(half_heads=True, clip=None)), range(2))
    whole = Optimiser(other, OptimiserSettings(clip=None))
    first = train(other, whole, range(1))
    even = torch.arange(3 * heads * HEAD_SIZE) // HEAD_SIZE % heads % 2 == 0
    assert torch.equal(halves[QKV][even], first[QKV][even])
    assert torch.equal(
        halves["encoder.blocks.1.inner.weight"],
        train(other, whole, range(1, 2))["encoder.blocks.1.inner.weight"],
    )


def test_the_norm_is_that_of_what_is_updated() -> None:
    module = model()
    norms = []
    for half in (False, True):
        for name, parameter in module.named_parameters():
            parameter.grad = torch.ones_like(parameter) if name == QKV else None
        norms.append(Optimiser(module, OptimiserSettings(half_heads=half)).step(0, 0.01))
    assert norms[1] == pytest.approx(norms[0] / math.sqrt(2))


def test_half_of_one_head_is_refused() -> None:
    with pytest.raises(BadSetting, match="half_heads"):
        Optimiser(model(num_attention_heads=1), OptimiserSettings(half_heads=True))


OPTIONS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["adamw", "bert_adam", "lamb"]),
        "layer_decay": st.sampled_from([1.0, 0.8]),
        "update_every": st.sampled_from([(), (2,), (4, 3, 1)]),
        "half_heads": st.booleans(),
        "clip": st.sampled_from([None, 0.01]),
    }
)


@settings(max_examples=25, deadline=None)
@given(OPTIONS, st.integers(0, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_loaded_state_continues_to_the_bit(options: dict[str, object], before: int, after: int, random) -> None:
    module, other = model(), model()
    straight = Optimiser(module, OptimiserSettings(**options))
    train(module, straight, range(before))
    other.load_state_dict(module.state_dict())
    saved = [(key, value.clone()) for key, value in straight.state().items()]
    random.shuffle(saved)  # files have an order of their own
    resumed = Optimiser(other, OptimiserSettings(**options))
    resumed.load(dict(saved))
    rest = range(before, before + after)
    assert same(train(module, straight, rest), train(other, resumed, rest))
    assert same(straight.state(), {key: resumed.state()[key] for key in straight.state()})


def test_a_loaded_state_is_a_copy() -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings())
    train(module, optimiser, range(1))
    saved = {key: value.clone() for key, value in optimiser.state().items()}
    kept = {key: value.clone() for key, value in saved.items()}
    optimiser.load(saved)
    train(module, optimiser, range(1, 2))
    assert same(saved, kept)


def test_the_state_has_the_names_of_the_model() -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings(update_every=(2, 1)))
    train(module, optimiser, range(1))
    waiting = {key.split("/")[1] for key in optimiser.state() if key.startswith("pending/")}
    updated = {key.split("/")[1] for key in optimiser.state() if key.startswith("exp_avg_sq/")}
    assert waiting == {name for name in module.state_dict() if get_model_part(name) == "embeddings"}
    assert updated == set(module.state_dict()) - waiting


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"exp_avg/{TOP}", torch.zeros(1)),
        (f"step/{TOP}.other", torch.zeros(())),
        (f"step/{QKV}#even", torch.zeros(())),
        (f"pending/{TOP}", torch.zeros(2, HEADS * HEAD_SIZE)),
    ],
    ids=["shape", "name", "half", "incomplete"],
)
def test_a_state_that_does_not_fit_is_refused(key: str, value: Tensor) -> None:
    module = model()
    optimiser = Optimiser(module, OptimiserSettings())
    train(module, optimiser, range(1))
    with pytest.raises(BadFile, match="another model or other settings"):
        optimiser.load({**optimiser.state(), key: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "sgd"}, {"learning_rate": 0.0}, {"learning_rate": math.nan}, {"weight_decay": -1.0}, {"beta1": 1.0}, {"beta2": -0.1},
        {"epsilon": 0.0}, {"clip": 0.0}, {"layer_decay": 0.0}, {"layer_decay": 1.1}, {"update_every": (2, 0)},
        {"name": "bert_adam", "beta2": 0.999999},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSetting, match=list(wrong)[-1]):
        OptimiserSettings(**wrong)
