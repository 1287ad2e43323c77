"""Graphs in each format: int8 for ONNX Runtime, and the products that stay in float.

The graph for ONNX Runtime. In: what `onnx.QuantisedOnnxOperations` takes. Out: a file that ONNX Runtime alone reads, with
the numbers of the standard form, up to rounding:

- A product of whole numbers adds its bias itself (MatMulIntegerToFloat).
- Queries, keys and values are three products of the same rounded states, so that nothing has to be cut apart.
- The factors that make channels alike move into the scales of the product before, wherever what lies between is linear
  in each channel: values through attention, and ReLU.
- ReLU is left to the rounding behind it, which ends at zero anyway.
- Blocks compute (T, B, D): then attention multiplies queries, keys and values where they are (FusedMatMul), and only
  what it makes of them is copied.

ONNX Runtime also has MultiHeadAttention and SkipLayerNormalization; on CPUs both are slower than what they replace
(docs/lab/export.md).

`OpenVinoBuilder` builds a graph and lets NNCF round it; `OnnxBuilder` builds the file of either kind itself.

`FloatFallback` limits what int8 costs. All products are quantised first. If that costs too much, those that harm most go
back to float: one, then two, four and so on, each time with everything else quantised anew. So few tries are needed, at
the price of keeping up to twice as many in float as would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import numpy as np

from alembert.compress import onnx, openvino
from alembert.compress.network import FloatArray, build_network
from alembert.compress.onnx import (
    MAX_WEIGHT,
    ActivationRange,
    QuantisedOnnxOperations,
    build_onnx,
    check_onnx,
    quantise_rows,
)
from alembert.compress.openvino import build_openvino
from alembert.data.windows import Row
from alembert.hardware.runtimes import import_onnxruntime, import_openvino
from alembert.nn.model import Model
from alembert.tasks.runtime.export import CompileGraph, OnnxGraph, OpenVinoGraph
from alembert.tasks.runtime.export_files import ExportFormat

if TYPE_CHECKING:
    from openvino import Model as Graph


# D width, C outputs


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

    token_axis = 0

    def __init__(self, seen: Mapping[str, ActivationRange]) -> None:
        super().__init__(seen)
        self.domains[DOMAIN] = 1
        self._products: dict[str, _Product] = {}
        self._rectified: dict[str, str] = {}
        """What ReLU made -> what it was made of."""
        self._mixed: dict[str, str] = {}
        """Values as the heads see them, and what attention makes of them -> the product that they were."""
        self._by_token: dict[str, str] = {}
        """What the heads see (B, H, T, K) -> the same by token (T, B, H, K)."""

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

    # -- attention

    def enter_blocks(self, states_BTD: str) -> str:
        return self._node("Transpose", states_BTD, perm=[1, 0, 2])

    def leave_blocks(self, states: str) -> str:
        return self._node("Transpose", states, perm=[1, 0, 2])

    def split_heads(self, states: str, heads: int, size: int) -> str:
        by_token_TBHK = self._node("Reshape", states, self._whole([0, 0, heads, size]))
        value = self._node("Transpose", by_token_TBHK, perm=[1, 2, 0, 3])
        self._mixed[value] = states
        self._by_token[value] = by_token_TBHK
        return value

    def attention(self, query: str, key: str, value: str, size: int) -> str:
        scores = self._multiply_heads(query, key, alpha=1 / math.sqrt(size), transB=1)
        weights = self._node("Softmax", self.add(scores, self.unseen_B11T), axis=-1)
        mixed = self._multiply_heads(weights, value)
        self._mixed[mixed] = self._mixed[value]
        return mixed

    def _multiply_heads(self, one: str, other: str, **options: Any) -> str:
        """Multiply (B, H, T, K) with another; what was made of (T, B, H, K) alone is read as it was."""
        options |= {"transBatchA": int(one in self._by_token), "transBatchB": int(other in self._by_token)}
        inputs = (self._by_token.get(value, value) for value in (one, other))
        return self._node("FusedMatMul", *inputs, domain=DOMAIN, **options)

    def merge_heads(self, states_BHTK: str, width: int) -> str:
        by_token_TBHK = self._node("Transpose", states_BHTK, perm=[2, 0, 1, 3])
        value = self._node("Reshape", by_token_TBHK, self._whole([0, 0, width]))
        self._mixed[value] = self._mixed[states_BHTK]
        return value


RANKING_ROWS: Final = 16
"""Rows on which the harm of single products is compared: it is done for each of them."""


class GraphBuilder(Protocol):
    """Makes graphs of a model with some of its heads, calibrated on rows; a graph is whatever the format has for it."""

    def check(self) -> None:
        """Refuse before the long work what this format cannot hold."""

    def build_fp32(self) -> Any:
        """Make the graph in fp32."""

    def build_int8(self, keep: Sequence[str]) -> Any:
        """Make the graph in int8; the products named in `keep` stay in float."""

    def rank_products(self, graph: Any) -> list[str]:
        """Name the products that are rounded in a graph, first the one whose rounding does most harm."""

    def compile(self, graph: Any) -> CompileGraph:
        """Return what opens a graph in the library that runs it."""

    def size(self, graph: Any) -> int:
        """Count the bytes of a graph's numbers."""

    def write(self, graph: Any, path: Path) -> None:
        """Write a graph to a file."""


@dataclass(frozen=True)
class OpenVinoBuilder:
    """Makes OpenVINO models."""

    model: Model
    heads: Sequence[str]
    rows: Sequence[Row]

    def check(self) -> None:
        """Refuse at once if OpenVINO is not there."""
        import_openvino()

    @cached_property
    def _exact(self) -> Graph:
        return build_openvino(self.model, *self.heads)

    def build_fp32(self) -> Graph:
        return self._exact

    def build_int8(self, keep: Sequence[str]) -> Graph:
        return openvino.quantise(self._exact, self.rows, keep)

    def rank_products(self, graph: Graph) -> list[str]:
        return openvino.rank_products(graph, self._exact, _subsample(self.rows))

    def compile(self, graph: Graph) -> CompileGraph:
        longest = self.model.config.max_position_embeddings
        return partial(OpenVinoGraph, graph, exact=not openvino.list_quantised_products(graph), longest=longest)

    def size(self, graph: Graph) -> int:
        return sum(node.data.nbytes for node in graph.get_ops() if node.get_type_name() == "Constant")

    def write(self, graph: Graph, path: Path) -> None:
        import_openvino().save_model(graph, str(path), compress_to_fp16=False)


@dataclass(frozen=True)
class OnnxBuilder:
    """Makes files in the ONNX format."""

    model: Model
    heads: Sequence[str]
    rows: Sequence[Row]
    portable: bool = False
    """Whether int8 is written in operations of the standard alone."""

    def check(self) -> None:
        """Refuse at once if ONNX or ONNX Runtime is not there, or if no file can hold the model."""
        import_onnxruntime()
        check_onnx(self.model)

    @cached_property
    def _seen(self) -> dict[str, onnx.ActivationRange]:
        return onnx.collect_activation_ranges(self.model, self.heads, self.rows)

    def build_fp32(self) -> bytes:
        return build_onnx(self.model, *self.heads)

    def build_int8(self, keep: Sequence[str]) -> bytes:
        rounded = {name: activations for name, activations in self._seen.items() if name not in keep}
        build = onnx.build_int8 if self.portable else build_runtime_int8
        return build(self.model, self.heads, rounded)

    def rank_products(self, graph: bytes) -> list[str]:
        return onnx.rank_products(self.model, self.heads, self._seen, _subsample(self.rows))

    def compile(self, graph: bytes) -> CompileGraph:
        return partial(OnnxGraph, graph)

    def size(self, graph: bytes) -> int:
        return len(graph)

    def write(self, graph: bytes, path: Path) -> None:
        path.write_bytes(graph)


def create_builder(
    form: ExportFormat, model: Model, heads: Sequence[str], rows: Sequence[Row], *, portable: bool = False
) -> GraphBuilder:
    """Create the builder of a format; `portable`: of files that more runtimes than the usual one read."""
    return OnnxBuilder(model, heads, rows, portable) if form == "onnx" else OpenVinoBuilder(model, heads, rows)


def _subsample(rows: Sequence[Row]) -> Sequence[Row]:
    return rows[:: len(rows) // RANKING_ROWS + 1]


GraphT = TypeVar("GraphT")


@dataclass(frozen=True)
class FloatFallback(Generic[GraphT]):
    """What the search needs to know of graphs, whatever they are."""

    quantise: Callable[[Sequence[str]], GraphT]
    """Quantise, with these products in float."""
    loss: Callable[[GraphT], float]
    """What it costs, in points."""
    rank: Callable[[GraphT], Sequence[str]]
    """Name the products, the most harmful first."""

    def search(
        self, limit: float, say: Callable[[str], None] = lambda _: None
    ) -> tuple[GraphT, tuple[str, ...]] | None:
        """Find a graph that costs at most `limit` points, and what is in float in it; none: there is none."""
        graph = self.quantise(())
        lost = self.loss(graph)
        if lost <= limit:
            return graph, ()
        names = self.rank(graph)
        count = 1
        while count < len(names):
            say(
                f"int8 costs {lost:.2f} points, more than {limit:g}: trying with {count} of {len(names)} products in float"
            )
            in_float = tuple(names[:count])
            graph = self.quantise(in_float)
            lost = self.loss(graph)
            if lost <= limit:
                return graph, in_float
            count *= 2
        return None
