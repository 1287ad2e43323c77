"""What trains when: parts, frozen layers and gradual unfreezing, alone and together."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.train.optim import Optimiser
from alembert.train.parts import get_depth, get_model_part, has_weight_decay, set_trainable_parts
from alembert.train.settings import MODEL_PARTS, ModelSettings, OptimiserSettings

LAYERS, STEPS = 3, 8
TOP = LAYERS + 1
CONFIG = {
    "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 6,
}  # fmt: skip
FROZEN = st.sets(st.sampled_from(["embeddings", "layers", "heads", "layers:1", "layers:2", "layers:3"]))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Waking a second thread for each of these tiny tensors takes far longer than the arithmetic."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model(**changes: object) -> Model:
    heads = {"crf": HeadSpec(kind="crf", outputs=3), "classify": HeadSpec(kind="classify", outputs=2)}
    return new_model(EncoderConfig(**{**CONFIG, **changes}), heads, seed=1)


MODEL = model(layer_norm_position="pre")


def depths(made: Model, *, trained: bool = True) -> set[int]:
    """The depths of all parameters that train, or of all that do not."""
    blocks = len(made.encoder.blocks)
    return {get_depth(name, blocks) for name, p in made.named_parameters() if p.requires_grad == trained}


def chosen(**options: Any) -> set[int]:
    """The depths that `set_trainable_parts` lets train; none of them holds both kinds of parameters."""
    set_trainable_parts(MODEL, **options)
    assert not depths(MODEL) & depths(MODEL, trained=False)
    return depths(MODEL)


# -- frozen parts


@pytest.mark.parametrize(
    ("frozen", "left"),
    [
        ((), {0, 1, 2, 3, 4}),
        (("embeddings",), {1, 2, 3, 4}),
        (("layers",), {0, 4}),
        (("layers:2",), {0, 3, 4}),
        (("embeddings", "layers:2"), {3, 4}),
        (("layers:1", "layers:2"), {0, 3, 4}),
        (("layers:3",), {0, 4}),
        (("heads",), {0, 1, 2, 3}),
    ],
    ids=str,
)
def test_what_is_frozen_does_not_train(frozen: tuple[str, ...], left: set[int]) -> None:
    assert chosen(frozen=frozen) == left


def test_what_is_frozen_is_not_among_the_first_either() -> None:
    assert chosen(parts=["layers", "heads"], frozen=["layers:2"]) == {3, 4}


def test_shared_layers_are_frozen_together() -> None:
    shared = model(num_hidden_groups=1)
    set_trainable_parts(shared, frozen=["layers"])
    assert depths(shared) == {0, 2}


def test_some_of_shared_layers_are_refused() -> None:
    with pytest.raises(BadSetting, match="the 3 layers of this model share their weights"):
        set_trainable_parts(model(num_hidden_groups=1), frozen=["layers:2"])


def test_more_layers_than_there_are_are_refused() -> None:
    with pytest.raises(BadSetting, match="the lowest 4 layers, and the model has 3"):
        set_trainable_parts(MODEL, frozen=["layers:4"])


@pytest.mark.parametrize(
    "options",
    [
        {"frozen": MODEL_PARTS},
        {"parts": ["heads"], "frozen": ["heads"]},
        {"parts": ["layers"], "frozen": ["layers:3"]},
        {"parts": ["layers"], "thawed": 0.0},
    ],
    ids=str,
)
def test_nothing_left_to_train_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="Nothing is left to train"):
        set_trainable_parts(MODEL, **options)


# -- gradual unfreezing


def test_layers_thaw_one_by_one_from_the_top() -> None:
    found = [chosen(thawed=step / STEPS) for step in range(STEPS + 1)]
    assert found == [
        {4}, {4}, {3, 4}, {3, 4}, {2, 3, 4}, {2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, {0, 1, 2, 3, 4},
    ]  # fmt: skip


def test_what_is_frozen_never_thaws() -> None:
    assert chosen(frozen=["layers:2"], thawed=1.0) == {0, 3, 4}


def test_shared_layers_thaw_together() -> None:
    shared, found = model(num_hidden_groups=1), []
    for thawed in (0.0, 0.5, 1.0):
        set_trainable_parts(shared, thawed=thawed)
        found.append(depths(shared))
    assert found == [{2}, {1, 2}, {0, 1, 2}]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(MODEL_PARTS), min_size=1),
    FROZEN,
    st.tuples(st.floats(0, 1, allow_subnormal=False), st.floats(0, 2, allow_subnormal=False)).map(sorted),
)
def test_what_trains_goes_on_training(parts: set[str], frozen: set[str], shares: list[float]) -> None:
    try:
        before = chosen(parts=parts, frozen=frozen, thawed=shares[0])
    except BadSetting:
        return
    assert before <= chosen(parts=parts, frozen=frozen, thawed=shares[1])


# -- the optimiser beside it


def train(made: Model, optimiser: Optimiser, steps: range) -> dict[str, Tensor]:
    """Train as a run of `STEPS` steps does that thaws in all but the last of them, with one frozen layer."""
    for number in steps:
        set_trainable_parts(made, frozen=["layers:1"], thawed=number / (STEPS - 1))
        for name, parameter in made.named_parameters():
            generator = torch.Generator().manual_seed(1000 * number + len(name))
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = gradient if parameter.requires_grad else None
        optimiser.step(number, 0.01)
    return {name: parameter.detach().clone() for name, parameter in made.named_parameters()}


@pytest.mark.parametrize("update_every", [(), (3, 2, 1)], ids=str)
@pytest.mark.parametrize("cut", [1, 4, STEPS - 1])
def test_a_run_that_thaws_continues_to_the_bit(cut: int, update_every: tuple[int, ...]) -> None:
    options = OptimiserSettings(update_every=update_every)
    whole, begun, resumed = model(), model(), model()
    expected = train(whole, Optimiser(whole, options), range(STEPS))
    first = Optimiser(begun, options)
    train(begun, first, range(cut))
    resumed.load_state_dict(begun.state_dict())
    second = Optimiser(resumed, options)
    second.load(first.state())
    found = train(resumed, second, range(cut, STEPS))
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())


def test_what_has_never_trained_is_as_it_was() -> None:
    made = model()
    before = {name: parameter.detach().clone() for name, parameter in made.named_parameters()}
    optimiser = Optimiser(made, OptimiserSettings(weight_decay=0.5))
    after = train(made, optimiser, range(STEPS))
    still = {get_depth(name, LAYERS) for name in before if torch.equal(before[name], after[name])}
    assert still == {1}
    assert not any("blocks.0." in key for key in optimiser.state())


def test_the_moves_of_a_crf_do_not_decay() -> None:
    found = {name: has_weight_decay(name, parameter) for name, parameter in MODEL.named_parameters()}
    assert {name.removeprefix("heads.crf."): found[name] for name in found if name.startswith("heads.crf.")} == {
        "linear.weight": True, "linear.bias": False, "crf.transitions": False, "crf.start": False, "crf.end": False,
    }  # fmt: skip


def test_everything_in_a_head_is_part_of_the_heads() -> None:
    assert {get_model_part(name) for name, _ in MODEL.named_parameters() if get_depth(name, LAYERS) == TOP} == {"heads"}


# -- settings


@pytest.mark.parametrize("name", ["layer", "layers:", "layers:0", "layers:-1", "layers:x", "heads:1"])
def test_parts_that_are_none_cannot_be_frozen(name: str) -> None:
    with pytest.raises(BadSetting, match="or the lowest layers, such as layers:4"):
        ModelSettings(frozen=(name,))


def test_a_share_that_is_none_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"`unfreeze_share` is 1\.5; expected a share from 0 to 1"):
        ModelSettings(unfreeze_share=1.5)
