"""The graph of every encoder and head gives what torch gives, with and without padding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alembert.compress.openvino import build_openvino
from alembert.data.windows import Row
from alembert.errors import BadSetting
from alembert.nn.batch import Batch
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model, new_model
from alembert.tasks.runtime.export import OpenVinoGraph
from small_checkpoints import small_model

SHAPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "tanh": {"hidden_act": "gelu_new"},
    "albert": {"embedding_size": 8, "num_hidden_groups": 1},
    "groups": {"num_hidden_groups": 2, "num_hidden_layers": 3, "inner_group_num": 2},
    "pre-norm": {"layer_norm_position": "pre", "hidden_act": "relu"},
    "rotary": {"position_embedding_type": "rotary"},
    "sinusoidal": {"position_embedding_type": "sinusoidal"},
}
HEADS = {
    "tag": HeadSpec(kind="tag", outputs=5),
    "crf": HeadSpec(kind="crf", outputs=5),
    "pointer": HeadSpec(kind="pointer", outputs=3),
    "relation": HeadSpec(kind="relation", outputs=3),
    "span": HeadSpec(kind="span"),
    "boundary": HeadSpec(kind="boundary"),
    "choice": HeadSpec(kind="choice"),
    "next": HeadSpec(kind="next_sentence"),
    "first": HeadSpec(kind="classify", outputs=3),
    "mean": HeadSpec(kind="classify", outputs=3, pooling="mean"),
    "layers": HeadSpec(kind="classify", outputs=3, pooling="layers"),
    "cls": HeadSpec(kind="embed", pooling="cls"),
    "cls_layer": HeadSpec(kind="embed", pooling="cls_layer"),
    "cls_train_layer": HeadSpec(kind="embed", pooling="cls_train_layer"),
    "mean_vector": HeadSpec(kind="embed", pooling="mean"),
}
FIRST_TOKEN = ("choice", "next", "first", "cls", "cls_layer", "cls_train_layer")


def model_of(**changes: Any) -> Model:
    return small_model(HEADS, **changes)


def rows_of(lengths: Sequence[int]) -> list[Row]:
    random = np.random.default_rng(len(lengths))
    return [
        Row(
            ids=random.integers(0, 50, length),
            positions=np.arange(length),
            segments=(np.arange(length) > length // 2).astype(np.int64),
        )
        for length in lengths
    ]


@torch.inference_mode()
def expected(model: Model, head: str, rows: Sequence[Row]) -> list[npt.NDArray[np.float32]]:
    batch = Batch.packed([row.ids for row in rows], [row.segments for row in rows if row.segments is not None])
    outputs = model(batch, [head], only=True)[head]
    parts = batch.split(outputs) if model.spec(head).per_token else outputs
    return [part.numpy() for part in parts]


@pytest.fixture(params=SHAPES, scope="module")
def model(request: pytest.FixtureRequest) -> Model:
    return model_of(**SHAPES[request.param])


ROWS = (5, 32, 1, 5)


def assert_as_torch(model: Model, heads: Sequence[str]) -> None:
    """Check a graph of these heads: the last layer computes the first token alone if they read no other."""
    rows = rows_of(ROWS)
    outputs = OpenVinoGraph(build_openvino(model, *heads), threads=1, streams=1).infer(rows)
    for head in heads:
        for own, wanted, row in zip(outputs[head], expected(model, head, rows), rows, strict=True):
            found = own[: row.length] if model.spec(head).per_token else own
            np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=head)


@pytest.mark.parametrize("head", HEADS)
def test_the_graph_of_a_head_gives_what_torch_gives(head: str) -> None:
    assert_as_torch(model_of(), [head])


@pytest.mark.parametrize("heads", [HEADS, FIRST_TOKEN], ids=["all heads", "first token"])
def test_the_graph_of_every_encoder_gives_what_torch_gives(model: Model, heads: Sequence[str]) -> None:
    assert_as_torch(model, list(heads))


@pytest.fixture(scope="module")
def tagger() -> OpenVinoGraph:
    return OpenVinoGraph(build_openvino(model_of(), "tag"), threads=1, streams=1)


@settings(deadline=None, max_examples=20)
@given(lengths=st.lists(st.integers(1, 32), min_size=1, max_size=6))
def test_what_is_beside_a_row_does_not_change_it(lengths: list[int], tagger: OpenVinoGraph) -> None:
    rows = rows_of(lengths)
    for found, row in zip(tagger.infer(rows)["tag"], rows, strict=True):
        np.testing.assert_allclose(found[: row.length], tagger.infer([row])["tag"][0], atol=1e-5)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 24, 30])
def test_padding_of_a_lone_row_ends_where_the_model_does_and_changes_nothing(length: int) -> None:
    graph = build_openvino(model_of(max_position_embeddings=30), "tag", "mean")
    plain, rounded = (OpenVinoGraph(graph, threads=1, streams=1, longest=longest) for longest in (None, 30))
    rows = rows_of([length])
    wanted, found = plain.infer(rows), rounded.infer(rows)
    assert found["tag"].shape[1] == (16 if length <= 16 else 30)
    np.testing.assert_allclose(found["tag"][:, :length], wanted["tag"], atol=1e-5)
    np.testing.assert_allclose(found["mean"], wanted["mean"], atol=1e-5)


def test_only_the_first_token_leaves_the_last_layer_if_no_other_is_read() -> None:
    def shape_of(*heads: str) -> str:
        nodes = {node.get_friendly_name(): node for node in build_openvino(model_of(), *heads).get_ops()}
        return str(nodes["layer.1.outer"].get_output_partial_shape(0))

    assert shape_of("first") == shape_of(*FIRST_TOKEN) == "[?,1,16]"
    assert shape_of("mean") == "[?,?,16]"


def test_shared_layers_share_their_weights_in_the_graph() -> None:
    graph = build_openvino(model_of(**SHAPES["albert"]), "tag")
    named = [node.get_friendly_name() for node in graph.get_ops() if node.get_type_name() == "Constant"]
    assert named.count("encoder.blocks.0.inner.weight") == 1


def test_a_head_over_the_vocabulary_is_refused() -> None:
    model = new_model(
        EncoderConfig(vocab_size=9, hidden_size=8, num_attention_heads=2),
        {"words": HeadSpec(kind="masked_lm")},
    )
    with pytest.raises(BadSetting, match="fill masks or write texts"):
        build_openvino(model, "words")


def test_heads_that_give_the_same_are_two_outputs() -> None:
    heads = {name: HeadSpec(kind="embed", pooling="cls") for name in ("one", "other")}
    model = new_model(EncoderConfig(vocab_size=50, hidden_size=16, num_attention_heads=2), heads).eval()
    found = OpenVinoGraph(build_openvino(model, *heads), threads=1, streams=1).infer(rows_of([5]))
    np.testing.assert_array_equal(found["one"], found["other"])


def test_a_head_that_is_called_as_an_input_is_refused() -> None:
    shape = EncoderConfig(vocab_size=9, hidden_size=8, num_attention_heads=2)
    with pytest.raises(BadSetting, match="called segments"):
        build_openvino(new_model(shape, {"segments": HEADS["tag"]}), "segments")


def test_attention_that_does_not_see_everything_is_refused() -> None:
    with pytest.raises(BadSetting, match="causal attention"):
        build_openvino(model_of(attention="causal"), "tag")
