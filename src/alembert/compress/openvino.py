"""The OpenVINO model of an encoder and its heads, and its post-training quantisation to int8.

Inputs are `ids` and `segments` (B, T) and `lengths` (B), int32. The attention is one operation a layer and knows padding
by the lengths. `network` describes the graph.

For int8, NNCF runs rows of the task's text through the float graph and sees how large the numbers get at each node (static
quantisation), so that nothing has to be measured when the graph is used. Activations are symmetric, which is faster than with an offset at the
same score (measured). Attention stays in float, in one fused operation. Weights take 7 bits of their 8: processors without
VNNI add two products in 16 bits and cut off what does not fit, and the answers would depend on the processor.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alembert.compress.network import FloatArray, Gelu, build_network, relative_error
from alembert.data.windows import Row
from alembert.hardware.runtimes import import_nncf, import_openvino
from alembert.tasks.runtime.export import FEATURES_INPUT, OpenVinoGraph, pad_features, pad_rows

if TYPE_CHECKING:
    from openvino import Model as Graph
    from openvino import Node

    from alembert.nn.model import Model


# B documents, T tokens, D width, H heads, K head size


IDS: Final = "ids"
SEGMENTS: Final = "segments"
LENGTHS: Final = "lengths"


def build_openvino(model: Model, *heads: str) -> Graph:
    """Build the OpenVINO model of the encoder with some of its heads."""
    operations = OpenVinoOperations()
    build_network(model, heads, operations)
    return operations.graph()


class OpenVinoOperations:
    """The operations of OpenVINO."""

    token_axis = 1

    def __init__(self) -> None:
        self.openvino = import_openvino()
        self.ops: Any = self.openvino.opset13
        self.constants: dict[str, Node] = {}
        self.outputs: list[Node] = []
        self.more_inputs: list[Node] = []
        whole = self.openvino.PartialShape([-1, -1])
        self.ids = self._input(IDS, whole)
        self.segments = self._input(SEGMENTS, whole)
        self.lengths = self._input(LENGTHS, self.openvino.PartialShape([-1]))
        size = self.ops.shape_of(self.ids, "i32")
        self.tokens = self.ops.gather(size, self._whole([1]), self._whole(0))
        self.real_BT = self._real()

    def graph(self) -> Graph:
        """Return the graph with all outputs that were made."""
        inputs = [self.ids, self.segments, self.lengths, *self.more_inputs]
        return _name_nodes(self.openvino.Model(self.outputs, inputs, "alembert"))

    def output(self, name: str, states: Any, *, per_token: bool) -> None:
        """Make something an output of the graph; what is one already is copied, since a value has one name."""
        if any(states is other for other in self.outputs):
            states = self.add(states, self.constant("zero", np.zeros((), np.float32)))
        states.output(0).set_names({name})
        self.outputs.append(states)

    # -- numbers

    def constant(self, name: str, values: FloatArray) -> Node:
        if name not in self.constants:
            node = self.ops.constant(np.ascontiguousarray(values, np.float32))
            node.set_friendly_name(name)
            self.constants[name] = node
        return self.constants[name]

    def add(self, one: Any, other: Any) -> Node:
        return self._node("add", one, other)

    def multiply(self, one: Any, other: Any) -> Node:
        return self._node("multiply", one, other)

    def negative(self, states: Any) -> Node:
        return self._node("negative", states)

    def relu(self, states: Any) -> Node:
        return self._node("relu", states)

    def tanh(self, states: Any) -> Node:
        return self._node("tanh", states)

    def gelu(self, states: Any, form: Gelu) -> Node:
        return self._node("gelu", states, form)

    def linear(self, states: Any, prefix: str, weight_CD: FloatArray, bias_C: FloatArray, name: str) -> Node:
        product = self.ops.matmul(states, self.constant(f"{prefix}.weight", weight_CD), False, True)
        product.set_friendly_name(name)
        return self.add(product, self.constant(f"{prefix}.bias", bias_C))

    def norm(self, states: Any, scale: Any, bias: Any, eps: float) -> Node:
        even = self.ops.mvn(states, self._whole([-1]), True, eps, "inside_sqrt")
        return self.add(self.multiply(even, scale), bias)

    # -- parts

    def concat(self, parts: Sequence[Any]) -> Node:
        return self._node("concat", list(parts), -1)

    def split(self, states: Any, sizes: Sequence[int]) -> list[Any]:
        parts: list[Any] = self.ops.variadic_split(states, self._whole(-1), self._whole(list(sizes))).outputs()
        return parts

    def rows(self, table: Any, numbers: Any) -> Node:
        return self._node("gather", table, numbers, self._whole(0))

    def sum_of_features(self, table: Any) -> Node:
        features = self._input(FEATURES_INPUT, self.openvino.PartialShape([-1, -1, -1]))
        self.more_inputs.append(features)
        return self._node("reduce_sum", self.rows(table, features), self._whole([2]), False)

    def first_rows(self, table: Any) -> Node:
        zero, one = self._whole([0]), self._whole([1])
        return self._node("slice", table, zero, self.tokens, one, zero)

    def first(self, states: Any, axis: int) -> Node:
        return self._node("gather", states, self._whole([0]), self._whole(axis))

    def without_tokens(self, states_B1D: Any) -> Node:
        return self._node("squeeze", states_B1D, self._whole([1]))

    # -- attention and real tokens

    def enter_blocks(self, states_BTD: Any) -> Any:
        return states_BTD

    def leave_blocks(self, states: Any) -> Any:
        return states

    def split_heads(self, states_BTD: Any, heads: int, size: int) -> Node:
        by_token = self.ops.reshape(states_BTD, self._whole([0, 0, heads, size]), True)
        return self._node("transpose", by_token, self._whole([0, 2, 1, 3]))

    def merge_heads(self, states_BHTK: Any, width: int) -> Node:
        by_token = self.ops.transpose(states_BHTK, self._whole([0, 2, 1, 3]))
        return self._node("reshape", by_token, self._whole([0, 0, width]), True)

    def attention(self, query: Any, key: Any, value: Any, size: int) -> Node:
        mask = self.ops.unsqueeze(self.real_BT, self._whole([1, 2]))
        return self._node("scaled_dot_product_attention", query, key, value, mask)

    def mean(self, states_BTD: Any) -> Node:
        ops = self.ops
        weight_BT1 = ops.unsqueeze(ops.convert(self.real_BT, "f32"), self._whole([-1]))
        total_BD = ops.reduce_sum(ops.multiply(states_BTD, weight_BT1), self._whole([1]))
        return self._node("divide", total_BD, ops.unsqueeze(ops.convert(self.lengths, "f32"), self._whole([-1])))

    def _real(self) -> Node:
        """Mark the tokens (B, T) that are real."""
        ops = self.ops
        length = ops.squeeze(self.tokens, self._whole([0]))
        positions_T = ops.range(self._whole(0), length, self._whole(1), "i32")
        return self._node("less", positions_T, ops.unsqueeze(self.lengths, self._whole([-1])))

    # -- small parts

    def _node(self, operation: str, *inputs: Any) -> Node:
        node: Node = getattr(self.ops, operation)(*inputs)
        return node

    def _input(self, name: str, shape: Any) -> Node:
        node: Node = self.ops.parameter(shape, np.int32, name=name)
        node.output(0).set_names({name})
        return node

    def _whole(self, values: int | list[int]) -> Node:
        return self._node("constant", np.array(values, np.int32))


def _name_nodes(graph: Graph) -> Graph:
    """Number the nodes that have no name of ours: OpenVINO counts over the whole process, and files would differ."""
    for number, node in enumerate(graph.get_ordered_ops()):
        if node.get_friendly_name() == node.get_name():
            node.set_friendly_name(f"{node.get_type_name()}.{number}")
    return graph


_QUANTISER: Final = "FakeQuantize"
_LAYOUT_OPERATIONS: Final = ("Reshape", "Transpose", "Squeeze", "Gather")
_ATTENTION: Final = "ScaledDotProductAttention"


def quantise(graph: Graph, rows: Sequence[Row], keep: Collection[str] = ()) -> Graph:
    """Quantise a graph; the products named in `keep` stay in float. The old graph stays as it is."""
    nncf = import_nncf()
    reads_features = any(FEATURES_INPUT in port.get_names() for port in graph.inputs)
    items = [
        pad_rows([row]) | ({FEATURES_INPUT: pad_features([row], row.length)} if reads_features else {}) for row in rows
    ]
    with _silence_nncf():
        quantised: Graph = nncf.quantize(
            graph.clone(),
            nncf.Dataset(items),
            subset_size=len(items),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.PERFORMANCE,
            ignored_scope=nncf.IgnoredScope(names=list(keep), types=[_ATTENTION]),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
        )
    return quantised


def list_quantised_products(graph: Graph) -> list[str]:
    """Name the products whose activations are quantised, in the order of the graph."""
    return [node.get_friendly_name() for node, _ in _find_quantised_products(graph)]


def rank_products(graph: Graph, exact: Graph, rows: Sequence[Row]) -> list[str]:
    """Sort the quantised products by the harm they do: first the one without which the outputs come nearest the exact.

    Of several outputs each counts alike, however large its numbers are.
    """
    expected = _outputs(exact, rows)
    errors = {}
    for name in list_quantised_products(graph):
        outputs = _outputs(_dequantise_product(graph, name), rows)
        errors[name] = sum(map(relative_error, outputs, expected))
    return sorted(errors, key=errors.__getitem__)


def _dequantise_product(graph: Graph, name: str) -> Graph:
    """Return the graph with the activations of one product in float."""
    changed = graph.clone()
    for node, rounding in _find_quantised_products(changed):
        if node.get_friendly_name() == name:
            rounding.output(0).replace(rounding.input_value(0))
    return changed


def _find_quantised_products(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield each product with the node that rounds its activations, which may stand before others that only move them."""
    for node in graph.get_ordered_ops():
        if node.get_type_name() == "MatMul":
            above = node.input_value(0).get_node()
            while above.get_type_name() in _LAYOUT_OPERATIONS:
                above = above.input_value(0).get_node()
            if above.get_type_name() == _QUANTISER:
                yield node, above


def _outputs(graph: Graph, rows: Iterable[Row]) -> list[list[Any]]:
    """Return each output of a graph for each row."""
    opened = OpenVinoGraph(graph, threads=1, streams=1)
    by_row = [opened.infer([row]) for row in rows]
    return [[outputs[output.get_any_name()] for outputs in by_row] for output in graph.outputs]


@contextmanager
def _silence_nncf() -> Iterator[None]:
    """Keep progress bars, which NNCF draws on stdout, and warnings about its own parts from the user."""
    with (
        Path(os.devnull).open("w", encoding="utf8") as nowhere,
        redirect_stdout(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
