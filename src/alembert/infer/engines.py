"""Which engine runs a folder, and what a model costs: numbers, bytes, layers, multiplications.

The folder alone decides. An Export runs on the CPU without torch, in the library that its format is made for (OpenVINO
or ONNX Runtime), a Checkpoint in torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from alembert.artifact import shortlist
from alembert.errors import TRAINING, BadFile, BadSetting, is_installed, require
from alembert.hardware.runtimes import check_openvino_installed
from alembert.tasks.runtime.export import CompileGraph, ExportedGraph, GraphRunner
from alembert.tasks.runtime.export_files import (
    GRAPH_FILES,
    GRAPH_WEIGHT_FILES,
    RUNTIME_PACKAGES,
    ExportMetadata,
    is_export,
    read_decoding_weights,
    read_export_metadata,
)
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from alembert.infer.engine_torch import TorchEngine
    from alembert.infer.task_model import TaskEngine


def open_engine(folder: Path, device: str = "cpu") -> TaskEngine:
    """Open a fine-tuned model with the engine that it is made for; `device` is for torch."""
    return ExportEngine.open(folder) if is_export(folder) else open_torch_engine(folder, device)


def open_torch_engine(folder: str | Path, device: str = "cpu") -> TorchEngine:
    """Open a checkpoint in torch; one sentence says what to do if torch is not there."""
    require(
        f"The checkpoint {folder}",
        *TRAINING,
        otherwise="An Export of it needs none: make one where torch is installed (alembert export).",
    )
    if is_export(Path(folder)):
        raise BadSetting(
            f"{folder} is an Export, which answers its task alone. Use the Checkpoint that it was made of, which runs in torch."
        )
    from alembert.infer.engine_torch import TorchEngine

    return TorchEngine.open(folder, device)


def choose_device(folders: Iterable[Path], name: str) -> str:
    """Choose the device of models: the one of this name, or the CPU if all are Exports, for which torch is not loaded.

    Without torch it is the CPU too: what needs torch is refused when it is opened.
    """
    if not is_installed("torch") or all(is_export(folder) for folder in folders):
        return "cpu"
    from alembert.hardware.torch_settings import resolve_device

    return resolve_device(name)


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """How large a model is."""

    parameters: int
    """Numbers in its weights, heads included."""
    bytes: int
    """What the weights take in memory."""
    layers: int
    width: int
    multiplications: int
    """Of the encoder, for one token of a text of `data.rows.USUAL_TOKENS`."""


class ExportEngine:
    """An Export ready to compute."""

    def __init__(self, folder: Path, facts: ExportMetadata, tokenizer: Tokenizer) -> None:
        self.folder = folder
        self.facts = facts
        self.tokenizer = tokenizer
        self.max_tokens = facts.longest
        self.lock = nullcontext()  # callers share the streams of one compiled graph

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
            from alembert.tasks.runtime.export import OnnxGraph

            return partial(OnnxGraph, file)
        from alembert.tasks.runtime.export import OpenVinoGraph

        opened = partial(OpenVinoGraph, file, exact=self.facts.precision != "int8", longest=self.facts.longest)
        # What single texts run on is kept for the next process, which starts sooner with it.
        return lambda threads, streams: opened(threads, streams, keep=streams == 1)

    @property
    def size(self) -> ModelSize:
        """What the model costs on any machine."""
        return ModelSize(
            parameters=self.facts.parameters,
            bytes=(self.folder / GRAPH_WEIGHT_FILES[self.facts.format]).stat().st_size,
            layers=self.facts.layers,
            width=self.facts.width,
            multiplications=self.facts.multiplications,
        )

    def bind(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, GraphRunner]:
        """Return the task with what it needs of the weights of its head (none: the only one), and what runs it."""
        name = next(iter(self.facts.heads)) if head is None else head
        found = self.facts.heads.get(name)
        if found is None or task.labels != found.labels:
            there = shortlist(found.labels) or "none" if found else f"no head {name!r}"
            raise BadFile(
                f"The model and its task.json do not fit: the task {task.name} has the labels {shortlist(task.labels)}; the "
                f"model has {there}. One of the files was changed; export again."
            )
        weights = read_decoding_weights(self.folder, name, task.decoding_weights)
        return task.with_decoding_weights(weights), GraphRunner(self.graph, name)
