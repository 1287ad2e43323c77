"""The sides of `annotate.py`: our own path, and other engines with the same weights as a competent user would call them.

Each side takes texts and gives entities as (start, end, label), tokenising and decoding included. It lives in a process of
its own, so that neither memory nor waiting threads of one meet another. Engines tokenise all texts in one call of the
fast tokenizer, which uses all cores, pad batches of 32 (as they come, or sorted by length), take the likeliest tag of the first
piece of each word, and join tags to entities. Settings are the defaults of each engine, but for the number of threads.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from annotate_material import LONGEST
from harness import chunks, received

BATCH = 32
Entity = tuple[int, int, str]
Answers = list[list[Entity]]


@dataclass(frozen=True)
class Weights:
    """Where the same weights are in each form."""

    checkpoint: Path
    export: Path
    """Ours, in the format that the product takes on this machine."""
    openvino: Path
    """The same at int8 by NNCF, for OpenVINO as a peer."""
    work: Path
    """Where engines write what they make of the checkpoint."""
    threads: int


class Product:
    """Our own path: an Export, as `alembert predict` and `annotate` run it."""

    def __init__(self, weights: Weights) -> None:
        from alembert.infer.task_model import TaskModel

        self._model = TaskModel.open(weights.export)

    def answers(self, texts: Sequence[str], _: bool) -> Answers:
        found = self._model.predict(self._model.task.examples_from_texts(texts))
        return [[(each.start, each.end, each.label) for each in one.entities] for one in found]


class Pipeline:
    """The token-classification pipeline of transformers, called on the list of texts."""

    def __init__(self, weights: Weights) -> None:
        import torch
        from transformers import pipeline

        torch.set_num_threads(weights.threads)
        self._pipeline = pipeline("token-classification", model=str(weights.checkpoint))

    def answers(self, texts: Sequence[str], _: bool) -> Answers:
        found = self._pipeline(list(texts))
        return [[(each["start"], each["end"], each["entity"][2:]) for each in one] for one in found]


class Engine:
    """An engine that computes logits of padded batches."""

    def __init__(self, weights: Weights) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(weights.checkpoint / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        named = json.loads((weights.checkpoint / "config.json").read_text())["id2label"]
        self._tags = [named[str(number)] for number in range(len(named))]
        self.logits = self.started(weights)

    def started(self, weights: Weights) -> Callable[[list[list[int]]], np.ndarray]:
        """Load the weights; give what turns token ids of some texts into logits, texts x tokens x tags."""
        raise NotImplementedError

    def answers(self, texts: Sequence[str], by_length: bool) -> Answers:
        encodings = self._tokenizer.encode_batch(list(texts))
        order = list(range(len(texts)))
        if by_length:
            order.sort(key=lambda number: len(encodings[number]))
        found: Answers = [[] for _ in texts]
        for numbers in chunks(order, BATCH):
            tags = self.logits([encodings[number].ids for number in numbers]).argmax(-1)
            for row, number in zip(tags, numbers, strict=True):
                found[number] = list(self._entities(encodings[number], row))
        return found

    def _entities(self, encoding: Any, row: np.ndarray) -> Iterator[Entity]:
        """Join the tags of words, each that of its first piece; most texts have few, so the others are not looked at."""
        row = row[: len(encoding)]
        if not row.any():
            return
        begun: Entity | None = None
        seen = None
        for word, (start, end), tag in zip(encoding.word_ids, encoding.offsets, row.tolist(), strict=True):
            name = self._tags[tag]
            if begun and word is not None and (word == seen or name == f"I-{begun[2]}"):
                begun = (begun[0], end, begun[2])
            elif word is not None and word != seen:
                if begun:
                    yield begun
                begun = None if name == "O" else (start, end, name[2:])
            seen = word
        if begun:
            yield begun


class OnnxRuntime(Engine):
    """ONNX Runtime with dynamic int8, of an export by torch."""

    fused = False

    def started(self, weights: Weights) -> Callable[[list[list[int]]], np.ndarray]:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = weights.threads
        file = quantised_onnx(weights, fused=self.fused)
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

        def logits(rows: list[list[int]]) -> np.ndarray:
            ids, lengths = padded(rows, np.int64)
            mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
            return session.run(None, {"ids": ids, "mask": mask})[0]

        return logits


class OnnxRuntimeFused(OnnxRuntime):
    """The same after ONNX Runtime's own optimiser for BERT, which joins attention and layer norms."""

    fused = True


class CTranslate2(Engine):
    """CTranslate2 at int8, which has the encoder alone; the head is one product in numpy."""

    def started(self, weights: Weights) -> Callable[[list[list[int]]], np.ndarray]:
        import ctranslate2
        from ctranslate2.converters import TransformersConverter
        from safetensors.numpy import load_file

        folder = TransformersConverter(str(weights.checkpoint)).convert(str(weights.work / "ctranslate2"))
        encoder = ctranslate2.Encoder(folder, compute_type="int8", intra_threads=weights.threads)
        stored = load_file(weights.checkpoint / "model.safetensors")
        weight, bias = stored["classifier.weight"].T, stored["classifier.bias"]
        return lambda rows: np.array(encoder.forward_batch(rows).last_hidden_state) @ weight + bias


class OpenVino(Engine):
    """OpenVINO with an int8 graph of ours, as it is compiled without a word about how."""

    def started(self, weights: Weights) -> Callable[[list[list[int]]], np.ndarray]:
        from alembert.hardware.runtimes import import_openvino

        compiled = import_openvino().Core().compile_model(str(weights.openvino / "model.xml"), "CPU")
        request = compiled.create_infer_request()

        def logits(rows: list[list[int]]) -> np.ndarray:
            ids, lengths = padded(rows, np.int32)
            inputs = {"ids": ids, "segments": np.zeros_like(ids), "lengths": lengths.astype(np.int32)}
            return request.infer(inputs, share_inputs=True)[0]

        return logits


SIDES: dict[str, type] = {
    "alembert": Product,
    "onnxruntime": OnnxRuntime,
    "onnxruntime_fused": OnnxRuntimeFused,
    "ctranslate2": CTranslate2,
    "openvino": OpenVino,
    "pipeline": Pipeline,
}
NEEDS = {
    "alembert": (),
    "onnxruntime": ("onnxruntime", "onnx", "torch", "transformers"),
    "onnxruntime_fused": ("onnxruntime", "onnx", "torch", "transformers"),
    "ctranslate2": ("ctranslate2", "torch", "transformers"),
    "openvino": ("openvino",),
    "pipeline": ("torch", "transformers"),
}
"""Packages without which a peer is left out."""
ENGINES = ("onnxruntime", "onnxruntime_fused", "ctranslate2", "openvino")


def padded(rows: list[list[int]], dtype: type) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), dtype)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    return ids, lengths


def quantised_onnx(weights: Weights, *, fused: bool) -> Path:
    """Make an ONNX file of the checkpoint, and int8 of it."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source = exported_onnx(weights.checkpoint, weights.work / "model.onnx")
    if fused:
        from onnxruntime.transformers.optimizer import optimize_model

        shape = json.loads((weights.checkpoint / "config.json").read_text())
        sizes = {"num_heads": shape["num_attention_heads"], "hidden_size": shape["hidden_size"]}
        found = optimize_model(str(source), model_type="bert", **sizes)
        source = weights.work / "fused.onnx"
        found.save_model_to_file(str(source))
    target = source.with_suffix(".int8.onnx")
    # The joined operators are of a domain for which shape inference knows no types.
    types = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(str(source), str(target), weight_type=QuantType.QInt8, extra_options=types)
    return target


def exported_onnx(checkpoint: Path, target: Path) -> Path:
    """Export as transformers' own models are: each operation as it is written there."""
    if target.is_file():
        return target
    import torch
    from transformers import AutoModelForTokenClassification

    model = AutoModelForTokenClassification.from_pretrained(checkpoint, attn_implementation="eager").eval()

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids)).logits

    example = torch.ones(2, 16, dtype=torch.long)
    axes = {name: {0: "texts", 1: "tokens"} for name in ("ids", "mask", "logits")}
    names = {"input_names": ["ids", "mask"], "output_names": ["logits"], "dynamic_axes": axes}
    torch.onnx.export(Logits(), (example, example), str(target), **names, opset_version=17, dynamo=False)
    return target


def serve(pipe, kind: str, weights: Weights) -> None:
    """Open a side, then answer: (texts, whether to sort, how often) -> middle of the seconds, and the entities."""
    import logging
    import warnings

    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    questions = received(pipe)
    next(questions)  # whoever asks wants to know whether this side can be opened
    try:
        side = SIDES[kind](weights)
    except Exception as problem:  # whatever a peer raises is why it is left out
        pipe.send(f"{type(problem).__name__}: {problem}".splitlines()[0])
        return
    pipe.send(None)
    for texts, by_length, repeats in questions:
        took = []
        for _ in range(repeats):
            start = time.perf_counter()
            found = side.answers(texts, by_length)
            took.append(time.perf_counter() - start)
        pipe.send((median(took), found))
