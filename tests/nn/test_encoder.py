"""Padded equals packed, attention goes where it may, and nothing in the way of compiling or recomputing."""

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.errors import BadInput, BadSetting
from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import ATTENTIONS, NORMS, POSITIONS, EncoderConfig
from alembert.nn.encoder import Encoder
from alembert.nn.model import initialise

SMALL = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 32}  # fmt: skip
DOCUMENTS = [[5, 6, 7, 8], [9], [10, 11, 12, 13], [14, 15], list(range(16, 48))]


def encoder(**changes: object) -> Encoder:
    made = Encoder(EncoderConfig(**{**SMALL, **changes}))
    initialise(made, 0.2, torch.Generator().manual_seed(1))
    return made.eval()


def padded(ids: list[list[int]], prefixes: list[int] | None = None) -> Batch:
    longest = max(map(len, ids))
    ids_BT = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
    return Batch.padded(ids_BT, ids_BT != 0, prefixes=prefixes)


def states_of(model: Encoder, batch: Batch, **options: object) -> list[torch.Tensor]:
    with torch.no_grad():
        return batch.split(model(batch, **options))


def assert_same(left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", POSITIONS)
def test_padded_equals_packed_equals_alone(positions: str, norm: str, attention: str) -> None:
    model = encoder(position_embedding_type=positions, layer_norm_position=norm, attention=attention)
    prefixes = [len(row) // 2 for row in DOCUMENTS]
    packed = states_of(model, Batch.packed(DOCUMENTS, prefixes=prefixes))
    alone = [states_of(model, Batch.packed([row], prefixes=[p]))[0] for row, p in zip(DOCUMENTS, prefixes, strict=True)]
    assert_same(packed, alone)
    assert_same(packed, states_of(model, padded(DOCUMENTS, prefixes)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(1, 49), min_size=1, max_size=32), min_size=2, max_size=6), st.data())
def test_a_document_never_sees_its_neighbours(ids: list[list[int]], data: st.DataObject) -> None:
    model = encoder()
    changed = data.draw(st.integers(0, len(ids) - 1))
    others = [row if i != changed else [(token + 1) % 50 for token in row] for i, row in enumerate(ids)]
    before, after = states_of(model, Batch.packed(ids)), states_of(model, Batch.packed(others))
    assert all(torch.equal(before[i], after[i]) for i in range(len(ids)) if i != changed)


def test_causal_attention_does_not_see_the_future() -> None:
    model = encoder(attention="causal")
    before, after = (
        states_of(model, Batch.packed([[1, 2, 3, 4]])),
        states_of(model, Batch.packed([[1, 2, 3, 9]])),
    )
    torch.testing.assert_close(before[0][:3], after[0][:3])
    assert not torch.allclose(before[0][3], after[0][3])


def test_prefix_attention_sees_the_prefix_both_ways_and_the_rest_backwards() -> None:
    trace = ForwardTrace(documents=[0])
    encoder(attention="prefix")(Batch.packed([[1, 2, 3, 4]], prefixes=[2]), trace=trace)
    allowed = trace.scores[0][0][0].isfinite()
    assert allowed.tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_one_model_can_attend_in_another_way_for_a_batch() -> None:
    model, causal = encoder(), encoder(attention="causal")
    causal.load_state_dict(model.state_dict())
    batch = Batch.packed(DOCUMENTS)
    assert_same(states_of(model, batch, attention="causal"), states_of(causal, batch))


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("make", [Batch.packed, padded])
def test_traced_probabilities_reproduce_the_fused_attention(make: object, attention: str) -> None:
    model = encoder(num_hidden_layers=1, attention=attention)
    batch = make(DOCUMENTS)
    trace = ForwardTrace(documents=[0, 3])
    with torch.no_grad():
        final = batch.split(model(batch, trace=trace))
    block = model.blocks[0]
    for document in (0, 3):
        hidden = batch.split(trace.hidden[0])[document]
        v_THK = block.attention.qkv(hidden).view(len(hidden), 3, 4, -1)[:, 2]
        mixed = torch.einsum("hts,shk->thk", trace.probabilities(0, document), v_THK).flatten(1)
        middle = block.attention_norm(hidden + block.attention.out(mixed))
        inner = torch.nn.functional.gelu(block.inner(middle))
        expected = block.output_norm(middle + block.outer(inner))
        torch.testing.assert_close(final[document], expected, atol=1e-5, rtol=0)
    assert set(trace.scores[0]) == {0, 3}
    assert len(trace.hidden) == 2


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    model = encoder(position_embedding_type="rotary", num_hidden_layers=1)
    trace = ForwardTrace(documents=[0])
    model(Batch.packed([[7] * 6]), trace=trace)
    scores = trace.scores[0][0]
    for distance in range(-5, 6):
        diagonal = scores.diagonal(distance, dim1=1, dim2=2)
        torch.testing.assert_close(diagonal, diagonal[:, :1].expand_as(diagonal), atol=1e-4, rtol=0)


def test_shared_layers_store_one_block() -> None:
    model = encoder(num_hidden_groups=1, embedding_size=8)
    assert len(model.blocks) == 1
    trace = ForwardTrace()
    model(Batch.packed(DOCUMENTS), trace=trace)
    assert len(trace.hidden) == 1 + 3


def test_recomputing_activations_changes_no_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        model = encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        model.recompute = recompute
        model(Batch.packed(DOCUMENTS)).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert_same(*gradients)


def test_dropout_is_active_in_training_only() -> None:
    model, batch = encoder(), Batch.packed(DOCUMENTS)
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, from inside its compiler
def test_the_encoder_compiles_to_the_same_numbers() -> None:
    model = encoder()
    compiled = torch.compile(model)
    with torch.no_grad():
        for batch in (padded(DOCUMENTS), Batch.packed(DOCUMENTS)):
            torch.testing.assert_close(compiled(batch), model(batch), atol=1e-5, rtol=0)


def test_new_weights_are_a_truncated_normal() -> None:
    model = Encoder(EncoderConfig(**{**SMALL, "vocab_size": 5000}))
    initialise(model, 0.02, torch.Generator().manual_seed(0))
    weights = model.embeddings.token.weight
    assert weights.abs().max() <= 0.04
    # The deviation of a normal cut off at two deviations is 0.88 of the uncut one.
    assert math.isclose(weights.std().item(), 0.88 * 0.02, rel_tol=0.02)
    assert all((p == 0).all() for n, p in model.named_parameters() if n.endswith("bias"))


def test_a_document_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(BadInput, match="33 tokens is longer than the model's limit of 32"):
        encoder()(Batch.packed([[1] * 33]))


@pytest.mark.parametrize("ids", [[50], [-1]])
def test_ids_outside_the_vocabulary_are_refused(ids: list[int]) -> None:
    with pytest.raises(BadInput, match="the model has 0 to 49"):
        encoder()(Batch.packed([ids]))


def test_segments_outside_the_table_are_refused() -> None:
    with pytest.raises(BadInput, match="segments of the batch go from 0 to 2; the model has 0 to 1"):
        encoder()(Batch.packed([[1, 2]], [[0, 2]]))


def test_a_trace_while_recomputing_is_refused() -> None:
    model = encoder().train()
    model.recompute = True
    with pytest.raises(BadSetting, match="twice"):
        model(Batch.packed(DOCUMENTS), trace=ForwardTrace())


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_an_encoder_can_be_pickled_for_workers(activation: str) -> None:
    model = encoder(hidden_act=activation)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(model(Batch.packed(DOCUMENTS)), again(Batch.packed(DOCUMENTS)))


def test_gradients_of_packed_and_padded_batches_agree() -> None:
    gradients = []
    for batch in (Batch.packed(DOCUMENTS), padded(DOCUMENTS)):
        model = encoder().double()
        torch.cat(batch.split(model(batch))).square().mean().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert_same(*gradients)


def test_positions_without_a_table_have_no_limit() -> None:
    assert encoder(position_embedding_type="rotary")(Batch.packed([[1] * 100])).shape == (100, 24)


def test_prefix_attention_without_prefixes_is_refused() -> None:
    with pytest.raises(BadSetting, match="prefix length"):
        encoder(attention="prefix")(Batch.packed([[1]]))
