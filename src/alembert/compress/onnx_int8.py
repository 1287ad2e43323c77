"""The ONNX model with int8 numbers: a model and some rows of the task's text in, a file out.

The rows are run through the fp32 model, which shows how large the numbers get that each product multiplies with its weights
(static quantisation): nothing has to be measured when the file is used, and what a text gets does not depend on those beside it.
A few channels of a BERT are many times larger than the others. They are made smaller and their weights larger by the same
factor (SmoothQuant, Xiao et al. 2023), so that one step of rounding suits all. Rounding is written with the format's own pair,
QuantizeLinear and DequantizeLinear, so that any runtime reads the file; those that multiply whole numbers join the pairs
with the product between them. Weights have a scale for each output, and take 7 bits of their 8, as in `quantise`. The table
of tokens has a scale for each row.
"""

# R rows, B documents, T tokens, V vocabulary, C outputs, D channels, E embedding width
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from alembert.compress.fallback import relative_error
from alembert.compress.network import Numbers, describe
from alembert.compress.onnx_graph import OnnxOperations, build_onnx
from alembert.data.windows import Row
from alembert.nn.model import Model
from alembert.tasks.runtime import Outputs
from alembert.tasks.runtime.graphs import OnnxGraph

SMOOTHING: Final = 0.7
"""How much of the differences between channels goes to the weights: 0 nothing, 1 all."""
WEIGHT_TOP: Final = 63
TABLE_TOP: Final = 127
LEVELS: Final = 255
"""Steps between the lowest and the highest number."""
SMALL: Final = 1e-5


@dataclass(frozen=True, eq=False)
class Seen:
    """What a product multiplied with its weights: the extremes of each channel, row by row."""

    low_RD: Numbers
    high_RD: Numbers
    largest_D: Numbers
    """The largest number of each channel, of either sign, among all products with the same weights."""

    def smoothing(self, weight_CD: Numbers) -> Numbers:
        """Give the factor by which each channel is made smaller, and its weights larger."""
        weights_D = np.abs(weight_CD).max(0).clip(SMALL)
        factor_D = self.largest_D.clip(SMALL) ** SMOOTHING / weights_D ** (1 - SMOOTHING)
        return np.asarray(factor_D / np.exp(np.log(factor_D).mean()), np.float32)

    def extremes(self, factor_D: Numbers) -> tuple[float, float]:
        """Give the lowest and the highest number of smoothed channels, in the mean over rows.

        The extremes of all would be those of one strange row, and their steps too wide for the others. Zero is always among
        them.
        """
        low, high = (self.low_RD / factor_D).min(1).mean(), (self.high_RD / factor_D).max(1).mean()
        return min(float(low), 0.0), max(float(high), 0.0)


def build_int8(model: Model, heads: Sequence[str], seen: Mapping[str, Seen]) -> bytes:
    """Build the ONNX model with the products of `seen` in int8, and the others in float."""
    operations = RoundedOperations(seen)
    describe(model, heads, operations)
    return operations.file()


def see(model: Model, heads: Sequence[str], rows: Sequence[Row]) -> dict[str, Seen]:
    """Run rows through the fp32 model, and see what each product multiplies with its weights."""
    operations = OnnxOperations()
    describe(model, heads, operations)
    values = list(dict.fromkeys(value for value, _ in operations.multiplied.values()))
    bounds = _bounds(OnnxGraph(operations.file(watched=values), threads=1, streams=1), values, rows)
    largest: dict[str, Numbers] = {}
    for value, place in operations.multiplied.values():
        own = np.abs(bounds[value]).max((0, 1))
        largest[place] = np.maximum(largest.get(place, own), own)
    return {product: Seen(*bounds[value], largest[place]) for product, (value, place) in operations.multiplied.items()}


def _bounds(graph: OnnxGraph, values: Sequence[str], rows: Sequence[Row]) -> dict[str, tuple[Numbers, Numbers]]:
    """Give the lowest and the highest number of each channel of some values, row by row (R, D)."""
    lows: dict[str, list[Numbers]] = {name: [] for name in values}
    highs: dict[str, list[Numbers]] = {name: [] for name in values}
    for row in rows:
        found = graph.infer([row])
        for name in values:
            channels = found[name].reshape(-1, found[name].shape[-1])
            lows[name].append(channels.min(0))
            highs[name].append(channels.max(0))
    return {name: (np.stack(lows[name]), np.stack(highs[name])) for name in values}


def ranked(model: Model, heads: Sequence[str], seen: Mapping[str, Seen], rows: Sequence[Row]) -> list[str]:
    """Sort the products by the harm that rounding does: first the one without which the outputs come nearest to fp32."""
    wanted = _outputs(build_onnx(model, *heads), heads, rows)
    errors = {}
    for name in seen:
        others = {other: each for other, each in seen.items() if other != name}
        found = _outputs(build_int8(model, heads, others), heads, rows)
        errors[name] = sum(map(relative_error, found, wanted))
    return sorted(errors, key=errors.__getitem__)


def _outputs(graph: bytes, heads: Sequence[str], rows: Sequence[Row]) -> list[list[Outputs]]:
    """Give for each head what it says of each row."""
    opened = OnnxGraph(graph, threads=1, streams=1)
    found = [opened.infer([row]) for row in rows]
    return [[each[head] for each in found] for head in heads]


class RoundedOperations(OnnxOperations):
    """The operations of ONNX, with whole numbers in products and tables."""

    def __init__(self, seen: Mapping[str, Seen]) -> None:
        super().__init__()
        self.seen = seen

    def linear(self, states: str, place: str, weight_CD: Numbers, bias_C: Numbers, name: str) -> str:
        if name not in self.seen:
            return super().linear(states, place, weight_CD, bias_C, name)
        factor_D = self.seen[name].smoothing(weight_CD)
        smooth = self.multiply(states, self.constant(f"{place}.weight, smoothing", np.reciprocal(factor_D)))
        whole_CD, scale_C1 = rounded_rows(weight_CD * factor_D, WEIGHT_TOP)
        weight_DC = self._node(
            "DequantizeLinear",
            self._initial(f"{place}.weight, int8", whole_CD.T),
            self._initial(f"{place}.weight, scale", scale_C1[:, 0]),
            axis=1,  # and no zero points: a runtime would subtract them, column by column, though they are zero
        )
        rounded = self._rounded(smooth, name, *self.seen[name].extremes(factor_D))
        product = self._node("MatMul", rounded, weight_DC, name=name)
        return self.add(product, self.constant(f"{place}.bias", bias_C))

    def _rounded(self, states: str, product: str, low: float, high: float) -> str:
        """Round to equal steps from `low` to `high`, of which one is zero."""
        step = max((high - low) / LEVELS, float(np.finfo(np.float32).tiny))
        scale = self._initial(f"{product}.scale", np.array(step, np.float32))
        zero = self._initial(f"{product}.zero", np.array(round(-low / step), np.uint8))
        return self._node("DequantizeLinear", self._node("QuantizeLinear", states, scale, zero), scale, zero)

    def rows(self, table: str, numbers: str) -> str:
        whole_VE, scale_V1 = rounded_rows(self.initial.pop(table), TABLE_TOP)
        found = super().rows(self._initial(table, whole_VE), numbers)
        scale_BT1 = super().rows(self._initial(f"{table}.scale", scale_V1), numbers)
        return self.multiply(self._node("Cast", found, to=self.onnx.TensorProto.FLOAT), scale_BT1)


def rounded_rows(table: Numbers, top: int) -> tuple[npt.NDArray[np.int8], Numbers]:
    """Give whole numbers up to `top`, and for each row the number that makes them the old ones again."""
    scale = np.abs(table).max(axis=1, keepdims=True) / np.float32(top)
    scale[scale == 0] = 1  # a row of zeros
    return np.rint(table / scale).astype(np.int8), scale.astype(np.float32)
