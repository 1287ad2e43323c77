"""Peers that `bench` measures beside a model: other ways to the answers of the same weights, if they are installed.

In: an opened model. Out: peers that can read its folder, and why the others are left out. A Checkpoint of a tagger or of
a classifier of texts is what transformers opens: its pipeline, called on the list of texts, and its model fed batches
sorted by length. An Export is what OpenVINO or ONNX Runtime opens: its graph, fed batches as they come, without settings.
transformers is no dependency: it is looked for, and never needed. Peers run on the CPU, in this process, on its threads.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from alembert.infer.engine_export import ExportEngine
from alembert.tasks.classify.task import ClassifyTask
from alembert.tasks.runtime.export_files import GRAPH_FILES

if TYPE_CHECKING:
    from alembert.data.windows import Row
    from alembert.infer.task_model import TaskModel
    from alembert.tasks.example import EncodedExample, Example
    from alembert.tasks.runtime import Outputs

BATCH: Final = 32
PIPELINE: Final = "transformers pipeline"
SORTED: Final = "transformers, batches of 32 sorted by length"
AS_THEY_COME: Final = "the same library without settings, batches of 32 as they come"
KINDS: Final = {
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
    whole: bool
    """Whether it reads a text at once, so that it would cut or refuse one that needs windows."""

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.model.encode(examples)

    def predict(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Answer examples."""
        return self.answer(examples)


@dataclass(frozen=True)
class LeftOut:
    """A peer that is not measured."""

    name: str
    reason: str


def peers_of(model: TaskModel, device: str = "cpu") -> Iterator[Peer | LeftOut]:
    """Open each peer, or say why it is left out."""
    if isinstance(model.engine, ExportEngine):
        yield LeftOut(PIPELINE, "transformers reads checkpoints, and this is an Export")
        yield LeftOut(SORTED, "transformers reads checkpoints, and this is an Export")
        yield Peer(AS_THEY_COME, model, as_they_come(model, model.engine), whole=False)
        return
    reason = _unreadable(model, device)
    for name, opened in ((PIPELINE, pipeline), (SORTED, sorted_by_length)):
        yield LeftOut(name, reason) if reason else _opened(name, model, opened)
    yield LeftOut(AS_THEY_COME, "it is for Exports, and this is a checkpoint (alembert export makes one)")


def fits(encoded: EncodedExample) -> bool:
    """Tell whether the model reads a text at once, as peers do that know no windows."""
    return len(encoded.rows) == 1


# -- transformers


def _unreadable(model: TaskModel, device: str) -> str | None:
    """Say why transformers cannot answer as the model does; none: it can."""
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
    return task.name == "tag" and model.name is None


def _pipeline_kind(model: TaskModel) -> str | None:
    config = json.loads((model.folder / "config.json").read_text(encoding="utf8"))
    named = str((config.get("architectures") or [""])[0]).partition("For")[2]
    return KINDS.get(named)


def _opened(
    name: str, model: TaskModel, opened: Callable[[TaskModel, Any], Callable[[list[str]], Any]]
) -> Peer | LeftOut:
    transformers = importlib.import_module("transformers")
    try:
        with _silent(transformers.logging):
            answer = opened(model, transformers)
    except Exception as problem:  # whatever it raises, the model itself can still be measured
        return LeftOut(name, f"transformers cannot open the folder ({type(problem).__name__})")
    return Peer(name, model, lambda examples: answer([each.texts[0] for each in examples]), whole=True)


@contextmanager
def _silent(logging: Any) -> Iterator[None]:
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


def pipeline(model: TaskModel, transformers: Any) -> Callable[[list[str]], Any]:
    """Open the pipeline of transformers, which is called on the list of texts."""
    made: Callable[[list[str]], Any] = transformers.pipeline(
        _pipeline_kind(model), model=str(model.folder), device="cpu"
    )
    return made


def sorted_by_length(model: TaskModel, transformers: Any) -> Callable[[list[str]], Any]:
    """Open the model of transformers; its answers are the likeliest labels, of tokens with their offsets."""
    import torch

    per_token = _pipeline_kind(model) == KINDS["TokenClassification"]
    kind = "AutoModelForTokenClassification" if per_token else "AutoModelForSequenceClassification"
    network = getattr(transformers, kind).from_pretrained(model.folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.folder)

    def answer(texts: list[str]) -> list[Any]:
        found: list[Any] = [None] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
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


def as_they_come(model: TaskModel, engine: ExportEngine) -> Callable[[Sequence[Example]], list[Any]]:
    """Open the graph of an Export without settings; encoding and decoding are those of the model."""
    compute = (_in_onnxruntime if engine.facts.format == "onnx" else _in_openvino)(engine)
    head = model.name or next(iter(engine.facts.heads))
    per_token = engine.facts.heads[head].per_token

    def outputs(rows: Sequence[Row]) -> Iterator[Outputs]:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            found = compute(part, head)
            for place, row in enumerate(part):
                yield found[place, row.places] if per_token else found[place : place + 1]

    def answer(examples: Sequence[Example]) -> list[Any]:
        encoded = model.encode(examples)
        left = outputs([row for each in encoded for row in each.rows])
        return [model.task.decode(each, [next(left) for _ in each.rows]) for each in encoded]

    return answer


def _in_openvino(engine: ExportEngine) -> Callable[[Sequence[Row], str], Outputs]:
    from alembert.hardware.runtimes import get_core
    from alembert.tasks.runtime.export import pad_rows

    compiled = get_core().compile_model(engine.folder / GRAPH_FILES["openvino"], "CPU")
    request = compiled.create_infer_request()

    def compute(rows: Sequence[Row], head: str) -> Outputs:
        found: Outputs = request.infer(pad_rows(rows), share_inputs=True)[head]
        return found

    return compute


def _in_onnxruntime(engine: ExportEngine) -> Callable[[Sequence[Row], str], Outputs]:
    from alembert.hardware.runtimes import import_onnxruntime
    from alembert.tasks.runtime.graphs import build_bert_inputs

    session = import_onnxruntime().InferenceSession(str(engine.folder / GRAPH_FILES["onnx"]))

    def compute(rows: Sequence[Row], head: str) -> Outputs:
        found: Outputs = session.run([head], build_bert_inputs(rows))[0]
        return found

    return compute
