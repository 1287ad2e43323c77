"""The int8 graph for ONNX Runtime: one of its own operations, and less between the products.

In: what `onnx.QuantisedOnnxOperations` takes. Out: a file that ONNX Runtime alone reads, with the numbers of the standard
form, up to rounding:

- A product of whole numbers adds its bias itself (MatMulIntegerToFloat).
- Queries, keys and values are three products of the same rounded states, so that nothing has to be cut apart.
- The factors that make channels alike move into the scales of the product before, wherever what lies between is linear
  in each channel: values through attention, and ReLU.
- ReLU is left to the rounding behind it, which ends at zero anyway.

ONNX Runtime also has MultiHeadAttention and SkipLayerNormalization; on CPUs both are slower than what they replace
(docs/lab/export.md).
"""

# D width, C outputs
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from alembert.compress.network import FloatArray, build_network
from alembert.compress.onnx import MAX_WEIGHT, ActivationRange, QuantisedOnnxOperations, quantise_rows
from alembert.nn.model import Model

DOMAIN: Final = "com.microsoft"
"""The domain of operations that are ONNX Runtime's own."""


def build_runtime_int8(model: Model, heads: Sequence[str], seen: Mapping[str, ActivationRange]) -> bytes:
    """Build the graph for ONNX Runtime with the products of `seen` in int8, and the others in float."""
    operations = RuntimeOnnxOperations(seen)
    build_network(model, heads, operations)
    return operations.file()


@dataclass(frozen=True)
class _Product:
    """A product in whole numbers: the names of what it multiplies, and of its constants."""

    rounded: str
    scale: str
    zero: str
    weight: str
    weight_scale: str
    bias: str


class RuntimeOnnxOperations(QuantisedOnnxOperations):
    """The operations of ONNX Runtime. Values remember the products that they were made of."""

    def __init__(self, seen: Mapping[str, ActivationRange]) -> None:
        super().__init__(seen)
        self.domains[DOMAIN] = 1
        self._products: dict[str, _Product] = {}
        self._rectified: dict[str, str] = {}
        """What ReLU made -> what it was made of."""
        self._mixed: dict[str, str] = {}
        """Values as the heads see them, and what attention makes of them -> the product that they were."""

    # -- products

    def linear(self, states: str, prefix: str, weight_CD: FloatArray, bias_C: FloatArray, name: str) -> str:
        if name not in self.seen:
            return super().linear(states, prefix, weight_CD, bias_C, name)
        factor_D = self.seen[name].smoothing(weight_CD)
        scale, zero = self._steps(name, *self.seen[name].extremes(factor_D))
        rounded = self._node("QuantizeLinear", self._smooth(states, prefix, factor_D), scale, zero)
        whole_CD, weight_scale_C1 = quantise_rows(weight_CD * factor_D, MAX_WEIGHT)
        weight = self._initial(f"{prefix}.weight, int8", whole_CD.T)
        own = self._own(name, weight_scale_C1[:, 0], bias_C)
        return self._multiply(_Product(rounded=rounded, scale=scale, zero=zero, weight=weight, **own), name)

    def _own(self, name: str, weight_scale_C: FloatArray, bias_C: FloatArray) -> dict[str, str]:
        """Keep what a product multiplies and adds at its end: its own, also where layers share weights."""
        scale, bias = self._initial(f"{name}.weight, scale", weight_scale_C), self.constant(f"{name}.bias", bias_C)
        return {"weight_scale": scale, "bias": bias}

    def _multiply(self, product: _Product, name: str) -> str:
        inputs = (product.rounded, product.weight, product.scale, product.weight_scale, product.zero, "", product.bias)
        value = self._node("MatMulIntegerToFloat", *inputs, name=name, domain=DOMAIN)
        self._products[value] = product
        return value

    def _smooth(self, states: str, prefix: str, factor_D: FloatArray) -> str:
        """Make channels alike, in the product before if it can be; ReLU is left to the rounding that follows."""
        before = self._products.get(self._rectified.get(states) or self._mixed.get(states, ""))
        if before is None:
            return self.multiply(states, self.constant(f"{prefix}.weight, smoothing", np.reciprocal(factor_D)))
        for name in (before.weight_scale, before.bias):
            self.initial[name] = np.asarray(self.initial[name] / factor_D, np.float32)
        return self._rectified.get(states, states)

    def split(self, states: str, sizes: Sequence[int]) -> list[str]:
        """Make as many products of one as there are parts; nothing then needs the whole."""
        whole = self._products.get(states)
        if whole is None:
            return super().split(states, sizes)
        names = (whole.weight, whole.weight_scale, whole.bias)
        parts = zip(*(np.split(self.initial[name], np.cumsum(sizes)[:-1], axis=-1) for name in names), strict=True)
        values = []
        for number, (weight_DC, scale_C, bias_C) in enumerate(parts):
            name = f"{states[1:]}.{number}"
            weight = self._initial(f"{whole.weight}.{number}", weight_DC)
            values.append(self._multiply(replace(whole, weight=weight, **self._own(name, scale_C, bias_C)), name))
        return values

    # -- what values are made of

    def relu(self, states: str) -> str:
        value = super().relu(states)
        self._rectified[value] = states
        return value

    def split_heads(self, states_BTD: str, heads: int, size: int) -> str:
        value = super().split_heads(states_BTD, heads, size)
        self._mixed[value] = states_BTD
        return value

    def attention(self, query: str, key: str, value: str, size: int) -> str:
        mixed = super().attention(query, key, value, size)
        self._mixed[mixed] = self._mixed[value]
        return mixed

    def merge_heads(self, states_BHTK: str, width: int) -> str:
        value = super().merge_heads(states_BHTK, width)
        self._mixed[value] = self._mixed[states_BHTK]
        return value
