"""Which format runs a model faster on this machine: the graphs of both take turns over the same rows.

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
from statistics import median
from time import perf_counter
from typing import Final

from alembert.data.windows import Row
from alembert.tasks.runtime.export import ExportedGraph
from alembert.tasks.runtime.export_files import RUNTIME_PACKAGES, ExportFormat

ROUNDS: Final = 5
NEAR: Final = 0.85
"""Share of the best speed that counts as near it."""
Clock = Callable[[], float]


@dataclass(frozen=True)
class Pace:
    """How fast a graph was."""

    tokens_per_second: float
    milliseconds: float
    """What a single row took, the middle of all."""

    def __str__(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens a second, {self.milliseconds:.1f} ms for one row alone"


def paces(
    graphs: Mapping[ExportFormat, ExportedGraph], rows: Sequence[Row], clock: Clock = perf_counter
) -> dict[ExportFormat, Pace]:
    """Measure graphs in turn, all rows together and one by one; each has read them before."""
    tokens = sum(row.length for row in rows)
    together: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    single: dict[ExportFormat, list[float]] = {form: [] for form in graphs}
    for turn in range(1 + ROUNDS):
        for form, graph in graphs.items():
            all_rows = _seconds(graph, rows, clock)
            alone = [_seconds(graph, [row], clock) for row in rows[turn::ROUNDS]]
            if turn:
                together[form].append(all_rows)
                single[form] += alone
    return {
        form: Pace(tokens / max(median(together[form]), 1e-9), 1000 * median(single[form] or together[form]))
        for form in graphs
    }


def _seconds(graph: ExportedGraph, rows: Sequence[Row], clock: Clock) -> float:
    began = clock()
    deque(graph.head_outputs(list(graph.heads), rows), maxlen=0)
    return clock() - began


def faster(found: Mapping[ExportFormat, Pace]) -> ExportFormat:
    """Take the fastest over many rows, or one that comes near it and answers single rows sooner.

    >>> faster({"openvino": Pace(900, 7.0), "onnx": Pace(1000, 8.0)})
    'openvino'
    >>> faster({"openvino": Pace(500, 7.0), "onnx": Pace(1000, 8.0)})
    'onnx'
    """
    best = max(each.tokens_per_second for each in found.values())
    near = [form for form, each in found.items() if each.tokens_per_second >= NEAR * best]
    return min(near, key=lambda form: found[form].milliseconds)


def told(found: Mapping[ExportFormat, Pace]) -> str:
    """Say what was measured."""
    return "; ".join(f"in {RUNTIME_PACKAGES[form]} {pace}" for form, pace in found.items())
