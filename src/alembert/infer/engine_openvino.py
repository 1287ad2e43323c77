"""The OpenVINO engine: runs an Export on the CPU, without torch."""

from __future__ import annotations

from pathlib import Path

from alembert.artifact import few
from alembert.errors import BadFile
from alembert.infer.size import Size
from alembert.tasks.export_files import (
    GRAPH,
    GRAPH_WEIGHTS,
    ExportFacts,
    read_decoding,
    read_facts,
)
from alembert.tasks.running_openvino import GraphRunner
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer


class OpenVinoEngine:
    """An Export ready to compute."""

    def __init__(self, folder: Path, facts: ExportFacts, tokenizer: Tokenizer) -> None:
        self.folder = folder
        self.facts = facts
        self.tokenizer = tokenizer
        self.longest = facts.longest

    @classmethod
    def open(cls, folder: str | Path) -> OpenVinoEngine:
        """Open an Export for prediction; its graph is compiled when it is first asked."""
        place = Path(folder)
        return cls(place, read_facts(place), Tokenizer.open(place))

    @property
    def name(self) -> str:
        return f"openvino {self.facts.precision}"

    @property
    def size(self) -> Size:
        """What the model costs on any machine."""
        return Size(
            parameters=self.facts.parameters,
            bytes=(self.folder / GRAPH_WEIGHTS).stat().st_size,
            layers=self.facts.layers,
            width=self.facts.width,
            multiplications=self.facts.multiplications,
        )

    def bound(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, GraphRunner]:
        """Give a task what it needs of the weights of its head, and what runs it; an Export has one head."""
        if task.labels != self.facts.labels:
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} has the labels {few(task.labels)}; the "
                f"model has {few(self.facts.labels) or 'none'}. One of the files was changed; export again."
            )
        weights = read_decoding(self.folder, task.decoding_weights)
        return task.bound_to(weights), GraphRunner(self.folder / GRAPH, per_token=self.facts.per_token)
