"""Peers that `bench` measures beside a model: other ways to the answers of the same weights, if they are installed.

In: an opened model. Out: peers that can read its folder, and why the others are left out. A Checkpoint of a tagger
or of a classifier of texts is what transformers opens: its pipeline, called on the list of texts, and its model fed
batches sorted by length. An Export is what OpenVINO or ONNX Runtime opens: its graph, fed batches as they come, without
settings. transformers is no dependency: it is looked for, and never needed. Peers run on the CPU, in this process, on
its threads.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from alembert.infer.engines import ExportEngine
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.runtime.export_files import GRAPH_FILES

if TYPE_CHECKING:
    from alembert.data.windows import Row
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.example import EncodedExample, Example
    from alembert.tasks.runtime import Outputs

BATCH_SIZE: Final = 32
PIPELINE_PEER: Final = "transformers pipeline"
SORTED_PEER: Final = "transformers, batches of 32 sorted by length"
UNSORTED_PEER: Final = "the same library without settings, batches of 32 as they come"
PIPELINE_KINDS: Final = {
    "TokenClassification": "token-classification",
    "SequenceClassification": "text-classification",
}
"""What the name of a model in config.json ends with -> the pipeline that it is for."""


@dataclass(frozen=True)
class Peer:
    """Another way to the answers of a model; tokens are counted as the model itself reads them."""

    name: str
    model: TaskModel
    answer: Callable[[Sequence[Example]], Sequence[Any]]
    reads_whole_texts: bool
    """Whether it reads a text at once, so that it would cut or refuse one that needs windows."""

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.model.encode(examples)

    def predict(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Answer examples."""
        return self.answer(examples)


@dataclass(frozen=True)
class SkippedPeer:
    """A peer that is not measured."""

    name: str
    reason: str


def open_peers(model: TaskModel, device: str = "cpu") -> Iterator[Peer | SkippedPeer]:
    """Open each peer, or say why it is left out."""
    if isinstance(model.engine, ExportEngine):
        yield SkippedPeer(PIPELINE_PEER, "transformers reads checkpoints, and this is an Export")
        yield SkippedPeer(SORTED_PEER, "transformers reads checkpoints, and this is an Export")
        yield Peer(UNSORTED_PEER, model, open_unsorted(model, model.engine), reads_whole_texts=False)
        return
    reason = _incompatibility(model, device)
    for name, opened in ((PIPELINE_PEER, open_transformers_pipeline), (SORTED_PEER, open_transformers_sorted)):
        yield SkippedPeer(name, reason) if reason else _open_peer(name, model, opened)
    yield SkippedPeer(UNSORTED_PEER, "it is for Exports, and this is a checkpoint (alembert export makes one)")


def fits_one_window(encoded: EncodedExample) -> bool:
    """Return whether the model reads a text at once, as peers do that know no windows."""
    return len(encoded.rows) == 1


# -- transformers


def _incompatibility(model: TaskModel, device: str) -> str | None:
    """Explain why transformers cannot answer as the model does; none: it can."""
    if device != "cpu":
        return f"peers are measured on the CPU, and this model runs on {device}"
    if find_spec("transformers") is None:
        return "transformers is not installed (pip install transformers)"
    if not _reads_texts(model):
        return f"it answers plain texts alone, and this model is for more (task {model.task.name})"
    if _pipeline_kind(model) is None:
        return "config.json names no model for the classification of tokens or texts"
    return None


def _reads_texts(model: TaskModel) -> bool:
    task = model.task
    if isinstance(task, ClassifyTask):
        return not task.pairs and not task.is_document
    return task.name == "tag" and model.only.runner.head == task.head().kind


def _pipeline_kind(model: TaskModel) -> str | None:
    config = json.loads((model.folder / "config.json").read_text(encoding="utf8"))
    named = str((config.get("architectures") or [""])[0]).partition("For")[2]
    return PIPELINE_KINDS.get(named)


def _open_peer(
    name: str, model: TaskModel, opened: Callable[[TaskModel, Any], Callable[[list[str]], Any]]
) -> Peer | SkippedPeer:
    transformers = importlib.import_module("transformers")
    try:
        with _quiet_transformers(transformers.logging):
            answer = opened(model, transformers)
    except Exception as problem:  # whatever it raises, the model itself can still be measured
        return SkippedPeer(name, f"transformers cannot open the folder ({type(problem).__name__})")
    return Peer(name, model, lambda examples: answer([each.texts[0] for each in examples]), reads_whole_texts=True)


@contextmanager
def _quiet_transformers(logging: Any) -> Iterator[None]:
    """Let transformers say nothing but errors, and show no bars, as long as the block lasts."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def open_transformers_pipeline(model: TaskModel, transformers: Any) -> Callable[[list[str]], Any]:
    """Open the pipeline of transformers, which is called on the list of texts."""
    made: Callable[[list[str]], Any] = transformers.pipeline(
        _pipeline_kind(model), model=str(model.folder), device="cpu"
    )
    return made


def open_transformers_sorted(model: TaskModel, transformers: Any) -> Callable[[list[str]], Any]:
    """Open the model of transformers; its answers are the likeliest labels, of tokens with their offsets."""
    import torch

    per_token = _pipeline_kind(model) == PIPELINE_KINDS["TokenClassification"]
    kind = "AutoModelForTokenClassification" if per_token else "AutoModelForSequenceClassification"
    network = getattr(transformers, kind).from_pretrained(model.folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.folder)

    def answer(texts: list[str]) -> list[Any]:
        found: list[Any] = [None] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH_SIZE):
            numbers = order[start : start + BATCH_SIZE]
            part = [texts[number] for number in numbers]
            tokens = tokenizer(part, padding=True, return_tensors="pt", return_offsets_mapping=per_token)
            offsets = tokens.pop("offset_mapping").tolist() if per_token else [None] * len(part)
            with torch.inference_mode():
                labels = network(**tokens).logits.argmax(-1).tolist()
            for number, pair in zip(numbers, zip(labels, offsets, strict=True), strict=True):
                found[number] = pair
        return found

    return answer


# -- OpenVINO and ONNX Runtime


def open_unsorted(model: TaskModel, engine: ExportEngine) -> Callable[[Sequence[Example]], list[Any]]:
    """Open the graph of an Export without settings; encoding and decoding are those of the model."""
    compute = (_onnxruntime_runner if engine.facts.format == "onnx" else _openvino_runner)(engine)
    head, per_token = model.only.runner.head, model.only.runner.per_token

    def outputs(rows: Sequence[Row]) -> Iterator[Outputs]:
        for start in range(0, len(rows), BATCH_SIZE):
            part = rows[start : start + BATCH_SIZE]
            found = compute(part, head)
            for place, row in enumerate(part):
                yield found[place, row.positions] if per_token else found[place : place + 1]

    def answer(examples: Sequence[Example]) -> list[Any]:
        encoded = model.encode(examples)
        left = outputs([row for each in encoded for row in each.rows])
        return [model.task.decode(each, [next(left) for _ in each.rows]) for each in encoded]

    return answer


def _openvino_runner(engine: ExportEngine) -> Callable[[Sequence[Row], str], Outputs]:
    from alembert.hardware.runtimes import get_core
    from alembert.tasks.runtime.export import pad_rows

    compiled = get_core().compile_model(engine.folder / GRAPH_FILES["openvino"], "CPU")
    request = compiled.create_infer_request()

    def compute(rows: Sequence[Row], head: str) -> Outputs:
        found: Outputs = request.infer(pad_rows(rows), share_inputs=True)[head]
        return found

    return compute


def _onnxruntime_runner(engine: ExportEngine) -> Callable[[Sequence[Row], str], Outputs]:
    from alembert.hardware.runtimes import import_onnxruntime
    from alembert.tasks.runtime.export import build_bert_inputs

    session = import_onnxruntime().InferenceSession(str(engine.folder / GRAPH_FILES["onnx"]))

    def compute(rows: Sequence[Row], head: str) -> Outputs:
        found: Outputs = session.run([head], build_bert_inputs(rows))[0]
        return found

    return compute
