"""One vector a document: by the definition, padding excluded, the same packed and padded."""

import pytest
import torch

from alembert.errors import BadSetting
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import NORMS, preset
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model

DOCUMENTS = [[2, 7, 9, 3], [2, 5, 3], [2, 17, 3, 8, 9, 3], [2, 6, 6, 3]]


def model(pooling: str, **changes: object) -> Model:
    heads = {
        "topic": HeadSpec(kind="classify", outputs=3, pooling=pooling),
        "tag": HeadSpec(kind="tag", outputs=2),
    }
    return new_model(preset("tiny", vocab_size=50, num_hidden_layers=3, **changes), heads).eval()


def padded() -> Batch:
    longest = max(map(len, DOCUMENTS))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in DOCUMENTS])
    return Batch.padded(ids, ids != 0)


def topics(made: Model, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return made(batch, ["topic"])["topic"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pooling", ["first", "mean", "layers"])
def test_packed_equals_padded_equals_alone(pooling: str, norm: str) -> None:
    made = model(pooling, layer_norm_position=norm)
    packed = topics(made, Batch.packed(DOCUMENTS))
    alone = torch.cat([topics(made, Batch.packed([row])) for row in DOCUMENTS])
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed, topics(made, padded()), atol=1e-5, rtol=0)


def test_mean_is_the_mean_of_the_last_states() -> None:
    made, batch = model("mean"), Batch.packed(DOCUMENTS)
    with torch.no_grad():
        states = made(batch, ["topic"])["hidden"]
        expected = made.head("topic").linear(torch.stack([rows.mean(0) for rows in batch.split(states)]))
    torch.testing.assert_close(topics(made, batch), expected)


def test_layers_is_the_mean_of_all_layers_without_the_embeddings() -> None:
    made, batch, trace = model("layers"), Batch.packed(DOCUMENTS), ForwardTrace()
    with torch.no_grad():
        made(batch, trace=trace)
        states = torch.stack(trace.hidden[1:]).mean(0)
        expected = made.head("topic").linear(torch.stack([rows.mean(0) for rows in batch.split(states)]))
    torch.testing.assert_close(topics(made, batch), expected)


def test_one_layer_has_one_mean() -> None:
    both = [model(name, layer_norm_position="pre") for name in ("mean", "layers")]
    for made in both:
        made.encoder.order = (0,)
    torch.testing.assert_close(*(topics(made, padded()) for made in both))


def test_every_layer_learns_through_the_mean_of_layers_while_recomputing() -> None:
    made = model("layers").train()
    made.encoder.recompute = True
    made(Batch.packed(DOCUMENTS))["topic"].square().sum().backward()
    assert all(block.outer.weight.grad.abs().sum() > 0 for block in made.encoder.blocks)


@pytest.mark.parametrize(("pooling", "has"), [("first", True), ("mean", False), ("layers", False)])
def test_only_the_first_token_needs_a_pooler(pooling: str, has: bool) -> None:
    assert (model(pooling).pooler is not None) is has


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "classify", "outputs": 2, "pooling": "last"}, "expected one of first, mean, layers"),
        ({"kind": "tag", "outputs": 2, "pooling": "mean"}, "has no pooling to choose"),
    ],
)
def test_a_pooling_that_makes_no_sense_is_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        HeadSpec(**spec)
