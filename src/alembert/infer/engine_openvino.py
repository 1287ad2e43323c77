"""The OpenVINO engine: runs an Export on the CPU, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path

from alembert.artifact import few
from alembert.errors import BadFile
from alembert.infer.size import Size
from alembert.tasks.export_files import (
    GRAPH_WEIGHTS,
    GRAPHS,
    ExportFacts,
    graph_content,
    read_decoding,
    read_facts,
)
from alembert.tasks.running_openvino import ExportedGraph, GraphRunner, masked, padded
from alembert.tasks.running_together import TogetherRunner
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer


class OpenVinoEngine:
    """An Export ready to compute."""

    def __init__(self, folder: Path, facts: ExportFacts, tokenizer: Tokenizer) -> None:
        self.folder = folder
        self.facts = facts
        self.tokenizer = tokenizer
        self.longest = facts.longest
        self.turn = nullcontext()  # callers share the streams of one compiled graph

    @classmethod
    def open(cls, folder: str | Path) -> OpenVinoEngine:
        """Open an Export for prediction; its graph is compiled when it is first asked."""
        place = Path(folder)
        return cls(place, read_facts(place), Tokenizer.open(place))

    @property
    def name(self) -> str:
        return f"openvino {self.facts.precision}"

    @cached_property
    def graph(self) -> ExportedGraph:
        """The graph; one for all heads, so that it is compiled once."""
        facts = self.facts
        return ExportedGraph(
            self.folder / GRAPHS[facts.format],
            {name: head.per_token for name, head in facts.heads.items()},
            feed=masked if facts.format == "onnx" else padded,
            content=graph_content(self.folder, facts),
        )

    @property
    def size(self) -> Size:
        """What the model costs on any machine."""
        return Size(
            parameters=self.facts.parameters,
            bytes=(self.folder / GRAPH_WEIGHTS[self.facts.format]).stat().st_size,
            layers=self.facts.layers,
            width=self.facts.width,
            multiplications=self.facts.multiplications,
        )

    def bound(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, GraphRunner]:
        """Give a task what it needs of the weights of its head (none: the only one), and what runs it."""
        name = next(iter(self.facts.heads)) if head is None else head
        found = self.facts.heads.get(name)
        if found is None or task.labels != found.labels:
            there = few(found.labels) or "none" if found else f"no head {name!r}"
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} has the labels {few(task.labels)}; the "
                f"model has {there}. One of the files was changed; export again."
            )
        weights = read_decoding(self.folder, name, task.decoding_weights)
        return task.bound_to(weights), GraphRunner(self.graph, name)

    def together(self, tasks: Mapping[str, AnyTask]) -> TogetherRunner:
        """Give what runs the heads of several tasks, which have their names, at once."""
        return TogetherRunner(
            lambda heads, rows, _: self.graph.head_outputs(heads, rows),
            self.graph.heads,
            dict.fromkeys(tasks),
        )
