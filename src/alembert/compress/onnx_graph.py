"""The ONNX model of an encoder and its heads, for ONNX Runtime and other programs.

Inputs are those that programs have for a BERT: `input_ids`, `attention_mask` and `token_type_ids` (B, T), int64; texts and
tokens may be any number. What the graph is made of says `network`. It uses operations of 2021 (opset 17, IR 8), so that
runtimes of many years read it; LayerNormalization is the newest of them, and attention and GELU are spelt out.
"""

# B documents, T tokens, D width, H heads, K head size
from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Sequence
from itertools import count
from typing import Any, Final

import numpy as np

from alembert.compress.network import Gelu, Numbers, describe
from alembert.errors import BadSetting
from alembert.extras import require
from alembert.nn.model import Model

OPSET: Final = 17
IR: Final = 8
LARGEST: Final = 2**31 - 1
"""Bytes that a file of the format can hold."""
NOTHING: Final = float(np.finfo(np.float32).min)
"""What a token that is none has as its score: it weighs nothing, and not even a row of such tokens is no number.

Added to a score it swallows it, so that one addition does what a choice between two would, at less cost."""


def build_onnx(model: Model, *heads: str) -> bytes:
    """Build the ONNX model of the encoder with some of its heads, as the bytes of its file."""
    operations = OnnxOperations()
    describe(model, heads, operations)
    return operations.file()


def check_onnx(model: Model) -> None:
    """Refuse before the work what cannot be written here, or not in one file."""
    import_onnx()
    size = 4 * sum(each.numel() for each in model.parameters())
    if size > LARGEST:
        raise BadSetting(
            f"The weights take {size / 1e9:.1f} GB, and a file in the ONNX format holds {LARGEST / 1e9:.1f}. Export "
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

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.initial: dict[str, Any] = {}
        self.outputs: list[Any] = []
        self.multiplied: dict[str, tuple[str, str]] = {}
        """Product -> what it multiplies with weights, and the place of these, which several may have in common."""
        self.numbers = count()
        self.tokens = self._node("Gather", self._node("Shape", self.ids), self._whole([1]))
        self.real_BT = self._node("Cast", self.mask, to=self.onnx.TensorProto.FLOAT)
        self.unseen_B11T = self._unseen()

    def file(self, watched: Collection[str] = ()) -> bytes:
        """Give the model with all outputs that were made, and with values inside it that are to be seen."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        inputs = [
            helper.make_tensor_value_info(name, types.INT64, ["batch", "tokens"])
            for name in (self.ids, self.mask, self.segments)
        ]
        outputs = [
            *self.outputs,
            *(helper.make_tensor_value_info(name, types.FLOAT, None) for name in watched),
        ]
        initial = [self.onnx.numpy_helper.from_array(each, name) for name, each in self.initial.items()]
        graph = helper.make_graph(self.nodes, "alembert", inputs, outputs, initial)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="alembert"
        )
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def output(self, name: str, states: str, *, per_token: bool) -> None:
        """Make something an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [states], [name], name=f"output {name}"))
        axes = ["batch", "tokens", f"{name} outputs"] if per_token else ["batch", f"{name} outputs"]
        number = self.onnx.TensorProto.FLOAT
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, number, axes))

    # -- numbers

    def constant(self, name: str, values: Numbers) -> str:
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

    def linear(self, states: str, place: str, weight_CD: Numbers, bias_C: Numbers, name: str) -> str:
        self.multiplied[name] = (states, place)
        weight_DC = self.constant(f"{place}.weight", weight_CD.T)
        product = self._node("MatMul", states, weight_DC, name=name)
        return self.add(product, self.constant(f"{place}.bias", bias_C))

    def norm(self, states: str, scale: str, bias: str, eps: float) -> str:
        return self._node("LayerNormalization", states, scale, bias, axis=-1, epsilon=eps)

    # -- parts

    def concat(self, parts: Sequence[str]) -> str:
        return self._node("Concat", *parts, axis=-1)

    def split(self, states: str, sizes: Sequence[int]) -> list[str]:
        number = next(self.numbers)
        names = [f"/Split {number} {place}" for place in range(len(sizes))]
        node = self.onnx.helper.make_node(
            "Split", [states, self._whole(list(sizes))], names, name=f"Split {number}", axis=-1
        )
        self.nodes.append(node)
        return names

    def rows(self, table: str, numbers: str) -> str:
        return self._node("Gather", table, numbers)

    def beginning(self, table: str) -> str:
        return self._node("Slice", table, self._whole([0]), self.tokens, self._whole([0]))

    def first(self, states: str, axis: int) -> str:
        return self._node("Gather", states, self._whole([0]), axis=axis)

    def without_tokens(self, states_B1D: str) -> str:
        return self._node("Squeeze", states_B1D, self._whole([1]))

    # -- attention and real tokens

    def by_head(self, states_BTD: str, heads: int, size: int) -> str:
        by_token = self._node("Reshape", states_BTD, self._whole([0, 0, heads, size]))
        return self._node("Transpose", by_token, perm=[0, 2, 1, 3])

    def joined(self, states_BHTK: str, width: int) -> str:
        by_token = self._node("Transpose", states_BHTK, perm=[0, 2, 1, 3])
        return self._node("Reshape", by_token, self._whole([0, 0, width]))

    def attention(self, query: str, key: str, value: str, size: int) -> str:
        across = self._node("Transpose", key, perm=[0, 1, 3, 2])
        scores = self._node("MatMul", self._times(query, 1 / math.sqrt(size)), across)
        seen = self.add(scores, self.unseen_B11T)
        return self._node("MatMul", self._node("Softmax", seen, axis=-1), value)

    def _unseen(self) -> str:
        """Give what is added to scores: zero for a real token, and for others so much that no score can be told beside it."""
        minus_BT = self._node("Sub", self.real_BT, self._float(1))
        return self._node("Unsqueeze", self._times(minus_BT, -NOTHING), self._whole([1, 2]))

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
