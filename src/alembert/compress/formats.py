"""What makes the graphs of an Export in its format: fp32, int8, and int8 with some products in float.

`OpenVinoBuilder` builds a graph and lets NNCF round it; `OnnxBuilder` builds the file of either kind itself.

Which format runs a model faster on this machine: the graphs of both take turns over the same rows.

What `doctor` measures, products of large matrices, does not decide it: libraries differ as much in what they do between
products, and in how soon a single text is ready. So the model itself is run. The faster over many rows wins, unless another
comes near it and answers single rows sooner: what people feel, since one that reads millions of texts reads them about as
fast in either. The clock decides, so on a noisy machine the same command may take the one or the other of two that are near
each other; `ExportSettings.format` names one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from alembert.compress import onnx, openvino
from alembert.compress.onnx import build_onnx, check_onnx
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

    def ranked(self, graph: Any) -> list[str]:
        """Name the products that are rounded in a graph, first the one whose rounding does most harm."""

    def compile(self, graph: Any) -> CompileGraph:
        """Give what opens a graph in the library that runs it."""

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
        """Say at once if OpenVINO is not there."""
        import_openvino()

    @cached_property
    def _exact(self) -> Graph:
        return build_openvino(self.model, *self.heads)

    def build_fp32(self) -> Graph:
        return self._exact

    def build_int8(self, keep: Sequence[str]) -> Graph:
        return openvino.quantise(self._exact, self.rows, keep)

    def ranked(self, graph: Graph) -> list[str]:
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

    def check(self) -> None:
        """Say at once if ONNX or ONNX Runtime is not there, or if no file can hold the model."""
        import_onnxruntime()
        check_onnx(self.model)

    @cached_property
    def _seen(self) -> dict[str, onnx.ActivationRange]:
        return onnx.collect_activation_ranges(self.model, self.heads, self.rows)

    def build_fp32(self) -> bytes:
        return build_onnx(self.model, *self.heads)

    def build_int8(self, keep: Sequence[str]) -> bytes:
        rounded = {name: each for name, each in self._seen.items() if name not in keep}
        return onnx.build_int8(self.model, self.heads, rounded)

    def ranked(self, graph: bytes) -> list[str]:
        return onnx.rank_products(self.model, self.heads, self._seen, _subsample(self.rows))

    def compile(self, graph: bytes) -> CompileGraph:
        return partial(OnnxGraph, graph)

    def size(self, graph: bytes) -> int:
        return len(graph)

    def write(self, graph: bytes, path: Path) -> None:
        path.write_bytes(graph)


BUILDERS: Final[dict[ExportFormat, type[OpenVinoBuilder] | type[OnnxBuilder]]] = {
    "openvino": OpenVinoBuilder,
    "onnx": OnnxBuilder,
}


def _subsample(rows: Sequence[Row]) -> Sequence[Row]:
    return rows[:: len(rows) // RANKING_ROWS + 1]


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


def choose_format(found: Mapping[ExportFormat, FormatSpeed]) -> ExportFormat:
    """Take the fastest over many rows, or one that comes near it and answers single rows sooner.

    >>> choose_format({"openvino": FormatSpeed(900, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'openvino'
    >>> choose_format({"openvino": FormatSpeed(500, 7.0), "onnx": FormatSpeed(1000, 8.0)})
    'onnx'
    """
    best = max(each.tokens_per_second for each in found.values())
    near = [form for form, each in found.items() if each.tokens_per_second >= NEAR_SHARE * best]
    return min(near, key=lambda form: found[form].milliseconds)


def describe_speeds(found: Mapping[ExportFormat, FormatSpeed]) -> str:
    """Say what was measured."""
    return "; ".join(f"in {RUNTIME_PACKAGES[form]} {pace}" for form, pace in found.items())
