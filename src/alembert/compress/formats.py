"""Graphs in each format, the search for products to keep in float, and the faster format.

`OpenVinoBuilder` builds a graph and lets NNCF round it; `OnnxBuilder` builds the file of either kind itself.

`FloatFallback` limits what int8 costs. All products are quantised first. If that costs too much, those that harm most go
back to float: one, then two, four and so on, each time with everything else quantised anew. So few tries are needed, at
the price of keeping up to twice as many in float as would do.

The faster format is chosen by running the model itself in both over the same rows: libraries differ as much in what they
do between products as in the products that `doctor` measures. The faster over many rows wins, unless another comes near it
and answers single rows sooner, which is what people notice. On a noisy machine the same command may choose either of two
that are near each other; `ExportSettings.format` names one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from alembert.compress import onnx, openvino
from alembert.compress.onnx import build_onnx, check_onnx
from alembert.compress.onnx_runtime import build_runtime_int8
from alembert.compress.openvino import build_openvino
from alembert.data.windows import Row
from alembert.hardware.runtimes import import_onnxruntime, import_openvino
from alembert.nn.model import Model
from alembert.tasks.runtime.export import CompileGraph, ExportedGraph
from alembert.tasks.runtime.export_files import RUNTIME_PACKAGES, ExportFormat
from alembert.tasks.runtime.graphs import OnnxGraph, OpenVinoGraph

if TYPE_CHECKING:
    from openvino import Model as Graph


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


ROUNDS: Final = 5
NEAR_SHARE: Final = 0.85
"""Share of the best speed that counts as near it."""
Timer = Callable[[], float]


@dataclass(frozen=True)
class FormatSpeed:
    """How fast a graph was."""

    tokens_per_second: float
    milliseconds: float
    """What a single row took, the middle of all."""

    def __str__(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens a second, {self.milliseconds:.1f} ms for one row alone"


def measure_format_speeds(
    graphs: Mapping[ExportFormat, ExportedGraph], rows: Sequence[Row], clock: Timer = perf_counter
) -> dict[ExportFormat, FormatSpeed]:
    """Measure graphs in turn, all rows together and one by one; each has read them before."""
    tokens = sum(row.length for row in rows)
    together: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    single: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    for turn in range(1 + ROUNDS):
        for form, graph in graphs.items():
            all_rows = _time_rows(graph, rows, clock)
            alone = [_time_rows(graph, [row], clock) for row in rows[turn::ROUNDS]]
            if turn:
                together[form].append(all_rows)
                single[form] += alone
    return {
        form: FormatSpeed(tokens / max(median(together[form]), 1e-9), 1000 * median(single[form] or together[form]))
        for form in graphs
    }


def _time_rows(graph: ExportedGraph, rows: Sequence[Row], clock: Timer) -> float:
    began = clock()
    deque(graph.head_outputs(list(graph.heads), rows), maxlen=0)
    return clock() - began


def choose_format(speeds: Mapping[ExportFormat, FormatSpeed]) -> ExportFormat:
    """Take the fastest over many rows, or one that comes near it and answers single rows sooner.

    >>> choose_format({"openvino": FormatSpeed(900, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'openvino'
    >>> choose_format({"openvino": FormatSpeed(500, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'onnx'
    """
    best = max(speed.tokens_per_second for speed in speeds.values())
    near = [form for form, speed in speeds.items() if speed.tokens_per_second >= NEAR_SHARE * best]
    return min(near, key=lambda form: speeds[form].milliseconds)


def describe_speeds(speeds: Mapping[ExportFormat, FormatSpeed]) -> str:
    return "; ".join(f"in {RUNTIME_PACKAGES[form]} {speed}" for form, speed in speeds.items())
