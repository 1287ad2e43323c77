"""What makes the graphs of an Export in its format: fp32, int8, and int8 with some products in float.

`OpenVinoMaker` builds a graph and lets NNCF round it; `OnnxMaker` builds the file of either kind itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from alembert.compress import onnx_int8, quantise
from alembert.compress.graph import build_graph
from alembert.compress.onnx_graph import build_onnx, check_onnx
from alembert.data.windows import Row
from alembert.hardware.runtimes import import_onnxruntime, import_openvino
from alembert.nn.model import Model
from alembert.tasks.runtime.export import CompileGraph
from alembert.tasks.runtime.export_files import ExportFormat
from alembert.tasks.runtime.graphs import OnnxGraph, OpenVinoGraph

if TYPE_CHECKING:
    from openvino import Model as Graph

RANKING_ROWS: Final = 16
"""Rows on which the harm of single products is compared: it is done for each of them."""


class Maker(Protocol):
    """Makes graphs of a model with some of its heads, calibrated on rows; a graph is whatever the format has for it."""

    def check(self) -> None:
        """Refuse before the long work what this format cannot hold."""

    def exact(self) -> Any:
        """Make the graph in fp32."""

    def int8(self, keep: Sequence[str]) -> Any:
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
class OpenVinoMaker:
    """Makes OpenVINO models."""

    model: Model
    heads: Sequence[str]
    rows: Sequence[Row]

    def check(self) -> None:
        """Say at once if OpenVINO is not there."""
        import_openvino()

    @cached_property
    def _exact(self) -> Graph:
        return build_graph(self.model, *self.heads)

    def exact(self) -> Graph:
        return self._exact

    def int8(self, keep: Sequence[str]) -> Graph:
        return quantise.quantise(self._exact, self.rows, keep)

    def ranked(self, graph: Graph) -> list[str]:
        return quantise.ranked(graph, self._exact, _some(self.rows))

    def compile(self, graph: Graph) -> CompileGraph:
        longest = self.model.config.max_position_embeddings
        return partial(OpenVinoGraph, graph, exact=not quantise.products(graph), longest=longest)

    def size(self, graph: Graph) -> int:
        return sum(node.data.nbytes for node in graph.get_ops() if node.get_type_name() == "Constant")

    def write(self, graph: Graph, path: Path) -> None:
        import_openvino().save_model(graph, str(path), compress_to_fp16=False)


@dataclass(frozen=True)
class OnnxMaker:
    """Makes files in the ONNX format."""

    model: Model
    heads: Sequence[str]
    rows: Sequence[Row]

    def check(self) -> None:
        """Say at once if ONNX or ONNX Runtime is not there, or if no file can hold the model."""
        import_onnxruntime()
        check_onnx(self.model)

    @cached_property
    def _seen(self) -> dict[str, onnx_int8.Seen]:
        return onnx_int8.see(self.model, self.heads, self.rows)

    def exact(self) -> bytes:
        return build_onnx(self.model, *self.heads)

    def int8(self, keep: Sequence[str]) -> bytes:
        rounded = {name: each for name, each in self._seen.items() if name not in keep}
        return onnx_int8.build_int8(self.model, self.heads, rounded)

    def ranked(self, graph: bytes) -> list[str]:
        return onnx_int8.ranked(self.model, self.heads, self._seen, _some(self.rows))

    def compile(self, graph: bytes) -> CompileGraph:
        return partial(OnnxGraph, graph)

    def size(self, graph: bytes) -> int:
        return len(graph)

    def write(self, graph: bytes, path: Path) -> None:
        path.write_bytes(graph)


MAKERS: Final[dict[ExportFormat, type[OpenVinoMaker] | type[OnnxMaker]]] = {
    "openvino": OpenVinoMaker,
    "onnx": OnnxMaker,
}


def _some(rows: Sequence[Row]) -> Sequence[Row]:
    return rows[:: len(rows) // RANKING_ROWS + 1]
