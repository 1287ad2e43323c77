"""Post-training quantisation: a float graph and some rows of the task's text in, a graph with int8 numbers out.

NNCF runs the rows through the graph and sees how large the numbers get at each place (static quantisation), so that
nothing has to be measured when the graph is used. Activations are symmetric, which is faster than with an offset at the
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

from alembert.compress.fallback import relative_error
from alembert.data.windows import Row
from alembert.hardware.runtimes import import_nncf
from alembert.tasks.runtime.export import pad_rows
from alembert.tasks.runtime.graphs import OpenVinoGraph

if TYPE_CHECKING:
    from openvino import Model as Graph
    from openvino import Node

_QUANTISED: Final = "FakeQuantize"
_MOVING: Final = ("Reshape", "Transpose", "Squeeze", "Gather")
_ATTENTION: Final = "ScaledDotProductAttention"


def quantise(graph: Graph, rows: Sequence[Row], keep: Collection[str] = ()) -> Graph:
    """Quantise a graph; the products named in `keep` stay in float. The graph that is given stays as it is."""
    nncf = import_nncf()
    items = [pad_rows([row]) for row in rows]
    with _quiet():
        found: Graph = nncf.quantize(
            graph.clone(),
            nncf.Dataset(items),
            subset_size=len(items),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.PERFORMANCE,
            ignored_scope=nncf.IgnoredScope(names=list(keep), types=[_ATTENTION]),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
        )
    return found


def products(graph: Graph) -> list[str]:
    """Name the products whose activations are quantised, in the order of the graph."""
    return [node.get_friendly_name() for node, _ in _quantised_products(graph)]


def ranked(graph: Graph, exact: Graph, rows: Sequence[Row]) -> list[str]:
    """Sort the quantised products by the harm they do: first the one without which the outputs come nearest the exact.

    Of several outputs each counts alike, however large its numbers are.
    """
    wanted = _outputs(exact, rows)
    errors = {}
    for name in products(graph):
        found = _outputs(_without(graph, name), rows)
        errors[name] = sum(map(relative_error, found, wanted))
    return sorted(errors, key=errors.__getitem__)


def _without(graph: Graph, name: str) -> Graph:
    """Give the graph with the activations of one product in float."""
    changed = graph.clone()
    for node, rounding in _quantised_products(changed):
        if node.get_friendly_name() == name:
            rounding.output(0).replace(rounding.input_value(0))
    return changed


def _quantised_products(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Give each product with the node that rounds its activations, which may stand before others that only move them."""
    for node in graph.get_ordered_ops():
        if node.get_type_name() == "MatMul":
            above = node.input_value(0).get_node()
            while above.get_type_name() in _MOVING:
                above = above.input_value(0).get_node()
            if above.get_type_name() == _QUANTISED:
                yield node, above


def _outputs(graph: Graph, rows: Iterable[Row]) -> list[list[Any]]:
    """Give for each output of a graph what it is for each row."""
    opened = OpenVinoGraph(graph, threads=1, streams=1)
    found = [opened.infer([row]) for row in rows]
    return [[each[output.get_any_name()] for each in found] for output in graph.outputs]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars, which NNCF draws on stdout, and warnings about its own parts from the user."""
    with (
        Path(os.devnull).open("w", encoding="utf8") as nowhere,
        redirect_stdout(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
