"""Runs an Export on the CPU without torch, in the library that its format is made for: OpenVINO or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

from alembert.artifact import shortlist
from alembert.errors import BadFile
from alembert.hardware.runtimes import check_openvino_installed
from alembert.infer.size import Size
from alembert.tasks.runtime.export import CompileGraph, ExportedGraph, GraphRunner, SharedEncoderRunner
from alembert.tasks.runtime.export_files import (
    GRAPH_FILES,
    GRAPH_WEIGHT_FILES,
    RUNTIME_PACKAGES,
    ExportMetadata,
    read_decoding_weights,
    read_export_metadata,
)
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer


class ExportEngine:
    """An Export ready to compute."""

    def __init__(self, folder: Path, facts: ExportMetadata, tokenizer: Tokenizer) -> None:
        self.folder = folder
        self.facts = facts
        self.tokenizer = tokenizer
        self.longest = facts.longest
        self.turn = nullcontext()  # callers share the streams of one compiled graph

    @classmethod
    def open(cls, folder: str | Path) -> ExportEngine:
        """Open an Export for prediction; its graph is compiled when it is first asked."""
        place = Path(folder)
        facts = read_export_metadata(place)
        if facts.format == "openvino":
            check_openvino_installed()
        return cls(place, facts, Tokenizer.open(place))

    @property
    def name(self) -> str:
        return f"{RUNTIME_PACKAGES[self.facts.format]} {self.facts.precision}"

    @cached_property
    def graph(self) -> ExportedGraph:
        """The graph; one for all heads, so that it is compiled once."""
        return ExportedGraph(self._compile, self.facts.heads, self.facts.width)

    @property
    def _compile(self) -> CompileGraph:
        """What opens the graph in its library, which is loaded then."""
        file = self.folder / GRAPH_FILES[self.facts.format]
        if self.facts.format == "onnx":
            from alembert.tasks.runtime.graphs import OnnxGraph

            return partial(OnnxGraph, file)
        from alembert.tasks.runtime.graphs import OpenVinoGraph

        opened = partial(OpenVinoGraph, file, exact=self.facts.precision != "int8", longest=self.facts.longest)
        # What single texts run on is kept for the next process, which starts sooner with it.
        return lambda threads, streams: opened(threads, streams, keep=streams == 1)

    @property
    def size(self) -> Size:
        """What the model costs on any machine."""
        return Size(
            parameters=self.facts.parameters,
            bytes=(self.folder / GRAPH_WEIGHT_FILES[self.facts.format]).stat().st_size,
            layers=self.facts.layers,
            width=self.facts.width,
            multiplications=self.facts.multiplications,
        )

    def bound(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, GraphRunner]:
        """Give a task what it needs of the weights of its head (none: the only one), and what runs it."""
        name = next(iter(self.facts.heads)) if head is None else head
        found = self.facts.heads.get(name)
        if found is None or task.labels != found.labels:
            there = shortlist(found.labels) or "none" if found else f"no head {name!r}"
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} has the labels {shortlist(task.labels)}; the "
                f"model has {there}. One of the files was changed; export again."
            )
        weights = read_decoding_weights(self.folder, name, task.decoding_weights)
        return task.bound_to(weights), GraphRunner(self.graph, name)

    def together(self, tasks: Mapping[str, AnyTask]) -> SharedEncoderRunner:
        """Give what runs the heads of several tasks, which have their names, at once."""
        return SharedEncoderRunner(
            lambda heads, rows, _: self.graph.head_outputs(heads, rows),
            {name: head.per_token for name, head in self.graph.heads.items()},
            dict.fromkeys(tasks),
        )
