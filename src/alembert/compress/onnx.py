"""The ONNX model of an encoder and its heads, in fp32 or int8, for every ONNX runtime.

Inputs are those that programs have for a BERT: `input_ids`, `attention_mask` and `token_type_ids` (B, T), int64; texts and
tokens may be any number. `network` describes the graph. It uses operations of 2021 (opset 17, IR 8), so that runtimes of
many years read it; LayerNormalization is the newest of them, and attention and GELU are spelt out. `formats` has the
int8 form that is faster and for ONNX Runtime alone.

For int8, rows of the task's text are run through the fp32 model, which shows how large the numbers get that each product
multiplies with its weights (static quantisation): nothing has to be measured when the file is used, and the answer for a
text does not depend on those beside it.
A few channels of a BERT are many times larger than the others. They are made smaller and their weights larger by the same
factor (SmoothQuant, Xiao et al. 2023), so that one step of rounding suits all. Rounding is written with the format's own pair,
QuantizeLinear and DequantizeLinear, so that any runtime reads the file; those that multiply whole numbers join the pairs
with the product between them. Weights have a scale for each output, and take 7 bits of their 8, as in `openvino`. The
table of tokens has a scale for each row.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from alembert.compress.network import FloatArray, Gelu, build_network, relative_error
from alembert.data.windows import Row
from alembert.errors import BadSetting, require
from alembert.nn.model import Model
from alembert.tasks.runtime import Outputs
from alembert.tasks.runtime.export import FEATURES_INPUT, OnnxGraph

# R rows, B documents, T tokens, V vocabulary, C outputs, D width or channels, E embedding width, H heads, K head size

OPSET: Final = 17
IR_VERSION: Final = 8
MAX_FILE_BYTES: Final = 2**31 - 1
"""Bytes that a file of the format can hold."""
MASKED_SCORE: Final = float(np.finfo(np.float32).min)
"""What a token that is none has as its score: it weighs nothing, and not even a row of such tokens is no number.

Added to a score it swallows it, so that one addition does what a choice between two would, at less cost."""


def build_onnx(model: Model, *heads: str) -> bytes:
    """Build the ONNX model of the encoder with some of its heads, as the bytes of its file."""
    operations = OnnxOperations()
    build_network(model, heads, operations)
    return operations.file()


def check_onnx(model: Model) -> None:
    """Refuse before the work what cannot be written here, or not in one file."""
    import_onnx()
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    if size > MAX_FILE_BYTES:
        raise BadSetting(
            f"The weights take {size / 1e9:.1f} GB, and a file in the ONNX format holds {MAX_FILE_BYTES / 1e9:.1f}. Export "
            "without --format onnx."
        )


def import_onnx() -> Any:
    """Import onnx; one sentence says how to install it if it is not there."""
    require("Writing an Export in the ONNX format", "onnx")
    return importlib.import_module("onnx")


class OnnxOperations:
    """The operations of ONNX; a value is the name of it."""

    ids = "input_ids"
    segments = "token_type_ids"
    mask = "attention_mask"
    token_axis = 1

    def __init__(self) -> None:
        self.has_features = False
        self.onnx = import_onnx()
        self.domains = {"": OPSET}
        """Version of the operations of each domain."""
        self.nodes: list[Any] = []
        self.initial: dict[str, Any] = {}
        self.outputs: list[Any] = []
        self.multiplied: dict[str, tuple[str, str]] = {}
        """Product -> what it multiplies with weights, and the name of these, which several may have in common."""
        self.numbers = count()
        self.tokens = self._node("Gather", self._node("Shape", self.ids), self._whole([1]))
        self.real_BT = self._node("Cast", self.mask, to=self.onnx.TensorProto.FLOAT)
        self.unseen_B11T = self._padding_scores()

    def file(self, watched: Collection[str] = ()) -> bytes:
        """Return the model with all outputs that were made, and with values inside it that are to be seen."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        inputs = [
            helper.make_tensor_value_info(name, types.INT64, ["batch", "tokens"])
            for name in (self.ids, self.mask, self.segments)
        ]
        if self.has_features:
            inputs.append(helper.make_tensor_value_info(FEATURES_INPUT, types.INT64, ["batch", "tokens", "features"]))
        outputs = [
            *self.outputs,
            *(helper.make_tensor_value_info(name, types.FLOAT, None) for name in watched),
        ]
        initial = [self.onnx.numpy_helper.from_array(values, name) for name, values in self.initial.items()]
        nodes, constants = self._used(watched)
        initial = [value for value in initial if value.name in constants]
        graph = helper.make_graph(nodes, "alembert", inputs, outputs, initial)
        versions = [helper.make_opsetid(domain, self.domains[domain]) for domain in sorted(self.domains)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="alembert")
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _used(self, watched: Collection[str]) -> tuple[list[Any], set[str]]:
        """Return the nodes that outputs need, and the names of what they read."""
        needed = {*watched, *(output.name for output in self.outputs)}
        used = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                used.append(node)
        return used[::-1], needed

    def output(self, name: str, states: str, *, per_token: bool) -> None:
        """Make something an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [states], [name], name=f"output {name}"))
        axes = ["batch", "tokens", f"{name} outputs"] if per_token else ["batch", f"{name} outputs"]
        number = self.onnx.TensorProto.FLOAT
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, number, axes))

    # -- numbers

    def constant(self, name: str, values: FloatArray) -> str:
        return self._initial(name, np.asarray(values, np.float32))

    def add(self, one: str, other: str) -> str:
        return self._node("Add", one, other)

    def multiply(self, one: str, other: str) -> str:
        return self._node("Mul", one, other)

    def negative(self, states: str) -> str:
        return self._node("Neg", states)

    def relu(self, states: str) -> str:
        return self._node("Relu", states)

    def tanh(self, states: str) -> str:
        return self._node("Tanh", states)

    def gelu(self, states: str, form: Gelu) -> str:
        if form == "erf":  # spelt as runtimes know it, which make one operation of it
            curve = self._node("Erf", self._node("Div", states, self._float(math.sqrt(2))))
        else:
            cube = self.multiply(self.multiply(states, states), states)
            bent = self.add(states, self._times(cube, 0.044715))
            curve = self.tanh(self._times(bent, math.sqrt(2 / math.pi)))
        return self.multiply(self._times(states, 0.5), self.add(curve, self._float(1)))

    def linear(self, states: str, prefix: str, weight_CD: FloatArray, bias_C: FloatArray, name: str) -> str:
        self.multiplied[name] = (states, prefix)
        weight_DC = self.constant(f"{prefix}.weight", weight_CD.T)
        product = self._node("MatMul", states, weight_DC, name=name)
        return self.add(product, self.constant(f"{prefix}.bias", bias_C))

    def norm(self, states: str, scale: str, bias: str, eps: float) -> str:
        return self._node("LayerNormalization", states, scale, bias, axis=-1, epsilon=eps)

    # -- parts

    def concat(self, parts: Sequence[str]) -> str:
        return self._node("Concat", *parts, axis=-1)

    def split(self, states: str, sizes: Sequence[int]) -> list[str]:
        number = next(self.numbers)
        names = [f"/Split {number} {index}" for index in range(len(sizes))]
        node = self.onnx.helper.make_node(
            "Split", [states, self._whole(list(sizes))], names, name=f"Split {number}", axis=-1
        )
        self.nodes.append(node)
        return names

    def rows(self, table: str, numbers: str) -> str:
        return self._node("Gather", table, numbers)

    def sum_of_features(self, table: str) -> str:
        self.has_features = True
        return self._node("ReduceSum", self.rows(table, FEATURES_INPUT), self._whole([2]), keepdims=0)

    def first_rows(self, table: str) -> str:
        return self._node("Slice", table, self._whole([0]), self.tokens, self._whole([0]))

    def first(self, states: str, axis: int) -> str:
        return self._node("Gather", states, self._whole([0]), axis=axis)

    def without_tokens(self, states_B1D: str) -> str:
        return self._node("Squeeze", states_B1D, self._whole([1]))

    # -- attention and real tokens

    def enter_blocks(self, states_BTD: str) -> str:
        return states_BTD

    def leave_blocks(self, states: str) -> str:
        return states

    def split_heads(self, states_BTD: str, heads: int, size: int) -> str:
        by_token = self._node("Reshape", states_BTD, self._whole([0, 0, heads, size]))
        return self._node("Transpose", by_token, perm=[0, 2, 1, 3])

    def merge_heads(self, states_BHTK: str, width: int) -> str:
        by_token = self._node("Transpose", states_BHTK, perm=[0, 2, 1, 3])
        return self._node("Reshape", by_token, self._whole([0, 0, width]))

    def attention(self, query: str, key: str, value: str, size: int) -> str:
        across = self._node("Transpose", key, perm=[0, 1, 3, 2])
        scores = self._node("MatMul", self._times(query, 1 / math.sqrt(size)), across)
        seen = self.add(scores, self.unseen_B11T)
        return self._node("MatMul", self._node("Softmax", seen, axis=-1), value)

    def _padding_scores(self) -> str:
        """Return what is added to scores: zero for a real token, and for others so much that it swallows any score."""
        minus_BT = self._node("Sub", self.real_BT, self._float(1))
        return self._node("Unsqueeze", self._times(minus_BT, -MASKED_SCORE), self._whole([1, 2]))

    def mean(self, states_BTD: str) -> str:
        weight_BT1 = self._node("Unsqueeze", self.real_BT, self._whole([-1]))
        total_BD = self._node("ReduceSum", self.multiply(states_BTD, weight_BT1), self._whole([1]), keepdims=0)
        length_B1 = self._node("ReduceSum", self.real_BT, self._whole([1]), keepdims=1)
        return self._node("Div", total_BD, length_B1)

    # -- small parts

    def _node(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        own = name or f"{kind} {next(self.numbers)}"
        value = f"/{own}"  # no output is called so
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [value], name=own, **attributes))
        return value

    def _times(self, states: str, factor: float) -> str:
        return self.multiply(states, self._float(factor))

    def _float(self, value: float) -> str:
        return self._initial(f"{value}", np.array(value, np.float32))

    def _whole(self, values: list[int]) -> str:
        return self._initial(f"{values}", np.array(values, np.int64))

    def _initial(self, name: str, values: Any) -> str:
        """Keep numbers once under their name."""
        if name not in self.initial:
            self.initial[name] = np.ascontiguousarray(values).reshape(values.shape)
        return name


SMOOTHING: Final = 0.7
"""How much of the differences between channels goes to the weights: 0 nothing, 1 all."""
MAX_WEIGHT: Final = 63
MAX_EMBEDDING: Final = 127
LEVELS: Final = 255
"""Steps between the lowest and the highest number."""
MIN_MAGNITUDE: Final = 1e-5


@dataclass(frozen=True, eq=False)
class ActivationRange:
    """What a product multiplied with its weights: the extremes of each channel, row by row."""

    low_RD: FloatArray
    high_RD: FloatArray
    largest_D: FloatArray
    """The largest number of each channel, of either sign, among all products with the same weights."""

    def smoothing(self, weight_CD: FloatArray) -> FloatArray:
        """Return the factor by which each channel is made smaller, and its weights larger."""
        weights_D = np.abs(weight_CD).max(0).clip(MIN_MAGNITUDE)
        factor_D = self.largest_D.clip(MIN_MAGNITUDE) ** SMOOTHING / weights_D ** (1 - SMOOTHING)
        return np.asarray(factor_D / np.exp(np.log(factor_D).mean()), np.float32)

    def extremes(self, factor_D: FloatArray) -> tuple[float, float]:
        """Return the lowest and the highest number of smoothed channels, in the mean over rows.

        The extremes of all would be those of one strange row, and their steps too wide for the others. Zero is always among
        them.
        """
        low, high = (self.low_RD / factor_D).min(1).mean(), (self.high_RD / factor_D).max(1).mean()
        return min(float(low), 0.0), max(float(high), 0.0)


def build_int8(model: Model, heads: Sequence[str], seen: Mapping[str, ActivationRange]) -> bytes:
    """Build the ONNX model with the products of `seen` in int8, and the others in float."""
    operations = QuantisedOnnxOperations(seen)
    build_network(model, heads, operations)
    return operations.file()


def collect_activation_ranges(model: Model, heads: Sequence[str], rows: Sequence[Row]) -> dict[str, ActivationRange]:
    """Run rows through the fp32 model, and see what each product multiplies with its weights."""
    operations = OnnxOperations()
    build_network(model, heads, operations)
    values = list(dict.fromkeys(value for value, _ in operations.multiplied.values()))
    bounds = _channel_bounds(OnnxGraph(operations.file(watched=values), threads=1, streams=1), values, rows)
    largest: dict[str, FloatArray] = {}
    for value, prefix in operations.multiplied.values():
        own = np.abs(bounds[value]).max((0, 1))
        largest[prefix] = np.maximum(largest.get(prefix, own), own)
    return {
        product: ActivationRange(*bounds[value], largest[prefix])
        for product, (value, prefix) in operations.multiplied.items()
    }


def _channel_bounds(
    graph: OnnxGraph, values: Sequence[str], rows: Sequence[Row]
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return the lowest and the highest number of each channel of some values, row by row (R, D)."""
    lows: dict[str, list[FloatArray]] = {name: [] for name in values}
    highs: dict[str, list[FloatArray]] = {name: [] for name in values}
    for row in rows:
        outputs = graph.infer([row])
        for name in values:
            channels = outputs[name].reshape(-1, outputs[name].shape[-1])
            lows[name].append(channels.min(0))
            highs[name].append(channels.max(0))
    return {name: (np.stack(lows[name]), np.stack(highs[name])) for name in values}


def rank_products(
    model: Model, heads: Sequence[str], seen: Mapping[str, ActivationRange], rows: Sequence[Row]
) -> list[str]:
    """Sort the products by the harm that rounding does: first the one without which the outputs come nearest to fp32."""
    expected = _outputs(build_onnx(model, *heads), heads, rows)
    errors = {}
    for name in seen:
        others = {other: range_ for other, range_ in seen.items() if other != name}
        outputs = _outputs(build_int8(model, heads, others), heads, rows)
        errors[name] = sum(map(relative_error, outputs, expected))
    return sorted(errors, key=errors.__getitem__)


def _outputs(graph: bytes, heads: Sequence[str], rows: Sequence[Row]) -> list[list[Outputs]]:
    """Return the outputs of each head for each row."""
    opened = OnnxGraph(graph, threads=1, streams=1)
    by_row = [opened.infer([row]) for row in rows]
    return [[outputs[head] for outputs in by_row] for head in heads]


class QuantisedOnnxOperations(OnnxOperations):
    """The operations of ONNX, with whole numbers in products and tables."""

    def __init__(self, seen: Mapping[str, ActivationRange]) -> None:
        super().__init__()
        self.seen = seen

    def linear(self, states: str, prefix: str, weight_CD: FloatArray, bias_C: FloatArray, name: str) -> str:
        if name not in self.seen:
            return super().linear(states, prefix, weight_CD, bias_C, name)
        factor_D = self.seen[name].smoothing(weight_CD)
        smooth = self.multiply(states, self.constant(f"{prefix}.weight, smoothing", np.reciprocal(factor_D)))
        whole_CD, scale_C1 = quantise_rows(weight_CD * factor_D, MAX_WEIGHT)
        weight_DC = self._node(
            "DequantizeLinear",
            self._initial(f"{prefix}.weight, int8", whole_CD.T),
            self._initial(f"{prefix}.weight, scale", scale_C1[:, 0]),
            axis=1,  # and no zero points: a runtime would subtract them, column by column, though they are zero
        )
        rounded = self._round(smooth, name, *self.seen[name].extremes(factor_D))
        product = self._node("MatMul", rounded, weight_DC, name=name)
        return self.add(product, self.constant(f"{prefix}.bias", bias_C))

    def _steps(self, product: str, low: float, high: float) -> tuple[str, str]:
        """Return the size of equal steps from `low` to `high`, and the number of the one that is zero."""
        step = max((high - low) / LEVELS, float(np.finfo(np.float32).tiny))
        scale = self._initial(f"{product}.scale", np.array(step, np.float32))
        return scale, self._initial(f"{product}.zero", np.array(round(-low / step), np.uint8))

    def _round(self, states: str, product: str, low: float, high: float) -> str:
        """Round to equal steps from `low` to `high`, of which one is zero."""
        scale, zero = self._steps(product, low, high)
        return self._node("DequantizeLinear", self._node("QuantizeLinear", states, scale, zero), scale, zero)

    def rows(self, table: str, numbers: str) -> str:
        whole_VE, scale_V1 = quantise_rows(self.initial.pop(table), MAX_EMBEDDING)
        whole_BTE = super().rows(self._initial(table, whole_VE), numbers)
        scale_BT1 = super().rows(self._initial(f"{table}.scale", scale_V1), numbers)
        return self.multiply(self._node("Cast", whole_BTE, to=self.onnx.TensorProto.FLOAT), scale_BT1)


def quantise_rows(table: FloatArray, top: int) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Return whole numbers up to `top`, and for each row the scale that restores the old ones."""
    scale = np.abs(table).max(axis=1, keepdims=True) / np.float32(top)
    scale[scale == 0] = 1  # a row of zeros
    return np.rint(table / scale).astype(np.int8), scale.astype(np.float32)
