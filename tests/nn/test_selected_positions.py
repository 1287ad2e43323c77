"""What no head reads is not computed, and what is computed is the same."""

import pytest
import torch
from torch import Tensor

from alembert.nn.attention import ForwardTrace
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.dropout import DropoutSeed
from alembert.nn.encoder import LayerMean
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, initialise

DOCUMENTS = [[5, 6, 7, 8], [9, 4], [10, 11, 12, 13], [14, 15], list(range(16, 28))]
SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 32}  # fmt: skip
SHAPES: dict[str, dict[str, object]] = {
    "bert": {},
    "pre-norm": {"layer_norm_position": "pre"},
    "albert": {"embedding_size": 8, "num_hidden_groups": 1},
    "rotary, causal": {"position_embedding_type": "rotary", "attention": "causal"},
}
HEADS = {
    "masked_lm": HeadSpec(kind="masked_lm"),
    "next_sentence": HeadSpec(kind="next_sentence"),
    "classify": HeadSpec(kind="classify", outputs=3),
    "mean": HeadSpec(kind="classify", outputs=3, pooling="mean"),
    "layers": HeadSpec(kind="classify", outputs=3, pooling="layers"),
    "choice": HeadSpec(kind="choice"),
    "tag": HeadSpec(kind="tag", outputs=3),
    "crf": HeadSpec(kind="crf", outputs=3),
    "pointer": HeadSpec(kind="pointer", outputs=2),
    "span": HeadSpec(kind="span"),
    "boundary": HeadSpec(kind="boundary"),
    "embed": HeadSpec(kind="embed", pooling="cls_train_layer"),
    "embed_mean": HeadSpec(kind="embed", pooling="mean"),
}
TOKENS = [name for name, spec in HEADS.items() if spec.per_token]


def model(shape: str = "bert", dropout: float = 0.0) -> Model:
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    made = Model(EncoderConfig(**{**SIZES, **rates, **SHAPES[shape]}), HEADS)
    initialise(made, 0.2, torch.Generator().manual_seed(1))
    return made.double().eval()


def packed() -> Batch:
    return Batch.packed(DOCUMENTS)


def padded() -> Batch:
    longest = max(map(len, DOCUMENTS))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in DOCUMENTS])
    return Batch.padded(ids, ids != 0)


def places(batch: Batch) -> Tensor:
    """Some tokens, in no order."""
    return batch.starts_B[torch.tensor([4, 0, 2, 4, 1])] + torch.tensor([9, 1, 3, 0, 1])


def other_places(batch: Batch) -> Tensor:
    return batch.starts_B[torch.tensor([4, 3, 2])] + torch.tensor([9, 1, 2])


def rows_seen(module: torch.nn.Module) -> list[int]:
    """Note how many rows a module is given, each time."""
    seen: list[int] = []
    module.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    return seen


def gradients(made: Model, outputs: Tensor) -> list[Tensor]:
    direction = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(2))
    weights = list(made.parameters())
    found = torch.autograd.grad(outputs, weights, direction, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


@pytest.mark.parametrize("make", [packed, padded])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("head", HEADS)
def test_answers_and_gradients_are_those_of_all_tokens(head: str, shape: str, make: object) -> None:
    made, batch = model(shape), make()
    at = places(batch)
    whole = made(batch, [head])[head]
    whole = whole[at] if head in TOKENS else whole
    some = made(batch, [head], predicted_P=at, positions_P=at, only=True)[head]
    torch.testing.assert_close(some, whole)
    for one, other in zip(gradients(made, some), gradients(made, whole), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("company", [["masked_lm", "next_sentence", "pointer"], list(HEADS)])
def test_answers_do_not_depend_on_company(company: list[str]) -> None:
    made, batch = model(), packed()
    asked = {"predicted_P": places(batch), "positions_P": other_places(batch), "only": True}
    together = made(batch, company, **asked)
    assert list(together) == company
    for head in company:
        torch.testing.assert_close(together[head], made(batch, [head], **asked)[head])


@pytest.mark.parametrize("head", TOKENS)
def test_places_need_not_be_all_that_is_computed(head: str) -> None:
    made, batch = model(), packed()
    at = places(batch)
    torch.testing.assert_close(made(batch, [head], predicted_P=at, positions_P=at)[head], made(batch, [head])[head][at])


@pytest.mark.parametrize(
    ("heads", "rows"),
    [
        (["masked_lm"], 5),
        (["tag"], 3),
        (["classify"], 5),
        (["masked_lm", "tag"], 7),  # one token is read by both
        (["masked_lm", "next_sentence"], 9),  # one predicted token is the first of its document
        (["masked_lm", "mean"], 24),
        (["tag", "layers"], 24),
    ],
)
def test_the_last_feed_forward_sees_what_is_read(heads: list[str], rows: int) -> None:
    made, batch = model(), packed()
    seen = [rows_seen(block.inner) for block in made.encoder.blocks]
    projected = rows_seen(made.encoder.blocks[-1].attention.out)
    made(batch, heads, predicted_P=places(batch), positions_P=other_places(batch), only=True)
    assert seen == [[24], [24], [rows]]
    assert projected == [rows]


def test_of_shared_layers_the_last_application_is_cut() -> None:
    made, batch = model("albert"), packed()
    seen = rows_seen(made.encoder.blocks[0].inner)
    made(batch, ["tag"], positions_P=other_places(batch), only=True)
    assert seen == [24, 24, 3]


def test_the_final_norm_sees_what_is_read() -> None:
    made, batch = model("pre-norm"), packed()
    seen = rows_seen(made.encoder.final_norm)
    made(batch, ["tag"], positions_P=other_places(batch), only=True)
    assert seen == [3]


def test_the_pooler_rests_when_no_head_reads_it() -> None:
    made, batch = model(), packed()
    seen = rows_seen(made.pooler)
    made(batch, ["tag", "mean"], only=True)
    assert not seen


def test_hidden_states_are_in_the_result_unless_only_heads_are_wanted() -> None:
    made, batch = model(), packed()
    assert list(made(batch, ["tag"])) == ["tag", "hidden", "pooled"]
    assert list(made(batch, ["tag"], only=True)) == ["tag"]


def test_nothing_predicted_is_no_answer_and_no_gradient() -> None:
    made, batch = model(dropout=0.1).train(), packed()
    outputs = made(
        batch, ["masked_lm"], predicted_P=torch.empty(0, dtype=torch.int64), only=True, noise=DropoutSeed(3)
    )["masked_lm"]
    assert outputs.shape == (0, 50)
    assert not any(gradient.any() for gradient in gradients(made, outputs))


def tags(made: Model, seed: int) -> Tensor:
    batch = packed()
    return made(batch, ["tag"], positions_P=places(batch), only=True, noise=DropoutSeed(seed))["tag"]


def test_dropout_is_determined_by_the_noise() -> None:
    made = model(dropout=0.1).train()
    assert torch.equal(tags(made, 5), tags(made, 5))
    assert not torch.equal(tags(made, 5), tags(made, 6))


def test_recomputed_activations_have_the_same_gradients() -> None:
    found = []
    for recompute in (False, True):
        made = model("albert", dropout=0.1).train()
        made.encoder.recompute = recompute
        found.append(gradients(made, tags(made, 5)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("watching", [{"trace": ForwardTrace()}, {"layers": LayerMean()}])
def test_watching_all_tokens_while_some_are_left_out_is_a_bug(watching: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="all tokens"):
        model().encoder(packed(), selected_P=torch.tensor([0]), **watching)
