"""int8 graphs: near the exact ones, in float where they are told to be, quiet."""

import numpy as np
import pytest
from openvino import Model as Graph

from alembert.compress.openvino import build_openvino, list_quantised_products, quantise, rank_products
from alembert.data.windows import Row
from alembert.nn.config import EncoderConfig
from alembert.nn.heads import HeadSpec
from alembert.nn.model import new_model
from alembert.tasks.runtime.export import OpenVinoGraph
from small_checkpoints import opinionated

ALL = [f"layer.{layer}.{part}" for layer in range(2) for part in ("qkv", "out", "inner", "outer")]


def rows() -> list[Row]:
    random = np.random.default_rng(1)
    return [Row(ids=random.integers(0, 50, 12), positions=np.arange(12)) for _ in range(8)]


def exact(**changes: int) -> Graph:
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = EncoderConfig(vocab_size=50, **{**shape, **changes}, max_position_embeddings=32)
    model = new_model(config, {"tag": HeadSpec(kind="tag", outputs=5)})
    opinionated(model)
    return build_openvino(model.eval(), "tag")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return exact()


@pytest.fixture(scope="module")
def int8(graph: Graph) -> Graph:
    return quantise(graph, rows())


def outputs(graph: Graph) -> np.ndarray:
    return OpenVinoGraph(graph, threads=1, streams=1).infer(rows())["tag"]


def test_every_product_with_weights_is_quantised(int8: Graph) -> None:
    assert list_quantised_products(int8) == [*ALL, "head"]


def test_the_outputs_are_near_the_exact_ones(graph: Graph, int8: Graph) -> None:
    found, wanted = outputs(int8), outputs(graph)
    assert not np.array_equal(found, wanted)
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.98


def test_the_graph_that_is_given_stays_as_it_is(graph: Graph, int8: Graph) -> None:
    assert list_quantised_products(int8)
    assert list_quantised_products(graph) == []


def test_what_is_to_be_kept_stays_in_float(graph: Graph) -> None:
    found = quantise(graph, rows(), keep=["layer.1.outer", "head"])
    assert list_quantised_products(found) == [name for name in ALL if name != "layer.1.outer"]


def test_layers_that_share_their_weights_can_be_quantised() -> None:
    assert list_quantised_products(quantise(exact(num_hidden_groups=1), rows())) == [*ALL, "head"]


def test_attention_stays_in_float(int8: Graph) -> None:
    kinds = [node.get_type_name() for node in int8.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == 2


def test_products_are_ranked_by_what_the_outputs_gain_without_them(graph: Graph, int8: Graph) -> None:
    names = rank_products(int8, graph, rows()[:2])
    assert sorted(names) == sorted([*ALL, "head"])


def test_stdout_is_for_data(graph: Graph, capfd: pytest.CaptureFixture[str]) -> None:
    quantise(graph, rows()[:2])
    assert capfd.readouterr().out == ""
