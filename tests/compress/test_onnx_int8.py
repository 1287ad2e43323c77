"""ONNX files with int8 numbers: near the exact ones, the same for a text whatever is beside it, small."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alembert.compress.formats import build_runtime_int8
from alembert.compress.network import FloatArray
from alembert.compress.onnx import (
    ActivationRange,
    build_int8,
    build_onnx,
    collect_activation_ranges,
    quantise_rows,
    rank_products,
)
from alembert.data.windows import Row
from alembert.hardware.runtimes import get_core, make_compile_settings
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.tasks.runtime.export import OnnxGraph, build_bert_inputs
from small_checkpoints import small_model

onnx = pytest.importorskip("onnx")
HEADS = {"tag": HeadSpec(kind="tag", outputs=5), "first": HeadSpec(kind="classify", outputs=3)}
LARGER = {"hidden_size": 32, "intermediate_size": 48}
PRODUCTS = [f"layer.{layer}.{part}" for layer in range(2) for part in ("qkv", "out", "inner", "outer")]


def rows(lengths: tuple[int, ...] = (12, 5, 12, 1, 7, 12, 9, 3)) -> list[Row]:
    random = np.random.default_rng(1)
    return [Row(ids=random.integers(0, 50, length), positions=np.arange(length)) for length in lengths]


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model(HEADS, **LARGER)


@pytest.fixture(scope="module")
def seen(model: Model) -> dict[str, ActivationRange]:
    return collect_activation_ranges(model, list(HEADS), rows())


def outputs(content: bytes, head: str = "tag") -> FloatArray:
    graph = OnnxGraph(content, threads=1, streams=1)
    return np.concatenate([graph.infer([row])[head].ravel() for row in rows()])


def constants(content: bytes) -> dict[str, Any]:
    return {each.name: each for each in onnx.load_from_string(content).graph.initializer}


def test_every_product_with_weights_is_seen(seen: dict[str, ActivationRange]) -> None:
    assert list(seen) == [*PRODUCTS, "head.tag", "pooler", "head.first"]
    assert seen["layer.0.outer"].low_RD.shape == (8, 48)


@pytest.mark.parametrize("head", HEADS)
def test_the_outputs_are_near_the_exact_ones(head: str, model: Model, seen: dict[str, ActivationRange]) -> None:
    found = outputs(build_int8(model, list(HEADS), seen), head)
    wanted = outputs(build_onnx(model, *HEADS), head)
    assert not np.array_equal(found, wanted)
    assert np.corrcoef(found, wanted)[0, 1] > 0.99


def test_another_program_computes_the_same(model: Model, seen: dict[str, ActivationRange]) -> None:
    content = build_int8(model, list(HEADS), seen)
    onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    compiled = get_core().compile_model(get_core().read_model(content, b""), "CPU", make_compile_settings(1, 1))
    (row,) = rows((12,))
    ours = OnnxGraph(content, threads=1, streams=1).infer([row])["tag"]
    assert np.corrcoef(compiled(build_bert_inputs([row]))["tag"].ravel(), ours.ravel())[0, 1] > 0.99


VARIANTS = [
    {"hidden_act": "relu"},
    {"hidden_act": "gelu_new", "num_hidden_groups": 1},
    {"hidden_act": "relu", "num_hidden_groups": 1},
    {"position_embedding_type": "rotary", "layer_norm_position": "pre"},
]


@pytest.mark.parametrize("heads", [["tag", "first"], ["tag"], ["first"]], ids="-".join)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_form_for_onnx_runtime_has_the_numbers_of_the_standard_form(
    variant: dict[str, Any], heads: list[str]
) -> None:
    model = small_model({name: HEADS[name] for name in heads}, **LARGER | variant)
    ranges = collect_activation_ranges(model, heads, rows())
    for kept in ({}, {"layer.0.inner"}, {"layer.1.outer"}, {"layer.0.out"}, {"layer.0.qkv"}):
        seen = {name: each for name, each in ranges.items() if name not in kept}
        fast, standard = build_runtime_int8(model, heads, seen), build_int8(model, heads, seen)
        for head in heads:
            expected = outputs(standard, head)
            np.testing.assert_allclose(outputs(fast, head), expected, atol=0.02 * np.abs(expected).max())


def test_the_form_for_onnx_runtime_has_fewer_steps() -> None:
    model = small_model({"tag": HEADS["tag"]}, hidden_act="relu", **LARGER)
    ranges = collect_activation_ranges(model, ["tag"], rows())
    kinds, others = (
        Counter(node.op_type for node in onnx.load_from_string(build(model, ["tag"], ranges)).graph.node)
        for build in (build_runtime_int8, build_int8)
    )
    assert {kinds[name] for name in ("Relu", "Split", "DequantizeLinear")} == {0}
    assert kinds["Mul"] == others["Mul"] - 6  # in each of two layers the factors of queries, values and inner states
    assert (kinds["Transpose"], others["Transpose"]) == (2 + 2, 2 * 5)  # and into the blocks and out of them
    assert kinds["MatMulIntegerToFloat"] == 2 * 6 + 1


@pytest.mark.parametrize("build", [build_int8, build_runtime_int8])
def test_what_is_beside_a_row_does_not_change_it(
    build: Callable[..., bytes], model: Model, seen: dict[str, ActivationRange]
) -> None:
    graph = OnnxGraph(build(model, list(HEADS), seen), threads=1, streams=1)
    for together, row in zip(graph.infer(rows())["tag"], rows(), strict=True):
        np.testing.assert_allclose(together[: row.length], graph.infer([row])["tag"][0], atol=1e-5)


def test_what_is_not_to_be_rounded_stays_in_float(model: Model, seen: dict[str, ActivationRange]) -> None:
    exact = outputs(build_onnx(model, *HEADS))
    kept = {name: each for name, each in seen.items() if name == "layer.0.qkv"}
    one, whole = (outputs(build_int8(model, list(HEADS), each)) for each in (kept, seen))
    assert np.abs(one - exact).max() < np.abs(whole - exact).max()


def test_products_are_ranked_by_the_harm_of_rounding(model: Model, seen: dict[str, ActivationRange]) -> None:
    found = rank_products(model, list(HEADS), seen, rows()[:4])
    assert sorted(found) == sorted(seen)


def test_the_file_is_a_quarter_of_the_exact_one() -> None:
    model = small_model({"tag": HEADS["tag"]}, hidden_size=128, intermediate_size=512)
    small = build_int8(model, ["tag"], collect_activation_ranges(model, ["tag"], rows()))
    assert len(small) < 0.3 * len(build_onnx(model, "tag"))


def test_shared_layers_share_their_weights_in_the_file() -> None:
    model = small_model({"tag": HEADS["tag"]}, num_hidden_groups=1, **LARGER)
    names = constants(build_int8(model, ["tag"], collect_activation_ranges(model, ["tag"], rows())))
    assert [name for name in names if name.endswith("inner.weight, int8")] == ["encoder.blocks.0.inner.weight, int8"]


def test_smoothing_changes_no_product() -> None:
    random = np.random.default_rng(0)
    states, weight = random.normal(size=(6, 4)).astype(np.float32), np.ones((3, 4), np.float32)
    states[:, 2] *= 50
    seen = ActivationRange(states.min(0)[None], states.max(0)[None], np.abs(states).max(0))
    factor = seen.smoothing(weight)
    assert factor[2] > 5 * factor[[0, 1, 3]].max()
    np.testing.assert_allclose((states / factor) @ (weight * factor).T, states @ weight.T, rtol=1e-4)


def test_zero_is_always_among_the_steps() -> None:
    positive = ActivationRange(
        np.full((2, 3), 4.0, np.float32), np.full((2, 3), 9.0, np.float32), np.ones(3, np.float32)
    )
    assert positive.extremes(np.ones(3, np.float32)) == (0.0, 9.0)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e30])
def test_rounded_rows_are_off_by_half_a_step_at_most(size: float) -> None:
    table = (size * np.random.default_rng(5).normal(size=(30, 4))).astype(np.float32)
    whole, scale = quantise_rows(table, top=127)
    assert np.abs(whole.astype(int)).max() <= 127
    assert (np.abs(whole * scale - table) <= scale * 0.5001).all()
