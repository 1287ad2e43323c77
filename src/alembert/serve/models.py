"""The models of a service: their names, inputs checked and turned into examples, and batches of them computed.

In: folders, and what clients send: texts, or objects such as `{"question": ..., "passage": ...}`. Out: the records that
`alembert predict --json` prints, and vectors. What a client sent is never quoted in an error, not even a key.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from alembert.errors import BadFile, BadInput, BadSetting, UserError
from alembert.infer.embedder import Embedder, open_stated_embedder
from alembert.infer.engines import choose_device
from alembert.infer.explain.explain import choose_model_task, count_evaluations, explain_decision
from alembert.infer.predictions import coverage_dict
from alembert.infer.predictor_io import to_example
from alembert.infer.task_model import ModelTask, TaskExamples, TaskModel

ServiceInput = str | dict[str, Any]
"""What a client asks about: a text, or an object with the keys that a task needs."""
_KEYS: Final = ("id", "text", "texts", "question", "passage", "context", "choices", "entities")
PROBE_TEXT: Final = "Aspirin relieved the fever."
"""A known text, of which a vector is made at the start."""
_PROBES: Final[tuple[ServiceInput, ...]] = (
    PROBE_TEXT,
    "Aspirin relieved the fever.\tThe fever went down.",
    "<< Aspirin >> relieved the [[ fever ]].",
    {"question": "What relieved the fever?", "passage": "Aspirin relieved the fever."},
    {"question": "What relieved the fever?", "choices": ["aspirin", "sugar"], "passage": "Aspirin relieved it."},
    {"question": "What relieved the fever?", "choices": ["aspirin", "sugar"]},
)
"""Known inputs, of which a model is asked the first that it can read."""
_TAG_PREFIX: Final = re.compile(r"[BIESLU]-")
_TOLERANCE: Final = 1e-3
"""Numbers may differ by so much between batches, since sums are made in another order."""


@dataclass(frozen=True)
class BatchAnswer:
    """The answers for a batch, in its order, and the seconds that they took."""

    answers: Sequence[Any]
    """A record each, or the exception that stands for it."""
    tokenise_seconds: float = 0.0
    compute_seconds: float = 0.0


@dataclass(frozen=True)
class ServedModel:
    """A model with the name that clients call it by."""

    name: str
    folder: Path
    model: TaskModel | None
    """None: it makes vectors alone."""
    embedder: Embedder | None
    probe: ServiceInput | None = None
    """A known input that readiness asks; None: the model can read none of them."""

    @classmethod
    def open(cls, name: str, folder: Path, device: str = "auto") -> ServedModel:
        """Open a folder for its tasks, and for vectors if it says how they are made."""
        place = choose_device([folder], device)
        embedder = open_stated_embedder(folder, place)
        try:
            model = TaskModel.open(folder, place)
        except BadFile:
            if embedder is None:
                raise
            model = None
        return cls(name, folder, model, embedder, find_probe(model))

    def describe(self) -> dict[str, Any]:
        """Return what a client should know about the model."""
        parts = {} if self.model is None else self.model.tasks
        tasks = [
            {"name": name, "kind": part.saved.kind, "labels": list_labels(part.task.labels)}
            for name, part in parts.items()
        ]
        engine = (self.model or self.embedder).engine  # type: ignore[union-attr]
        return {
            "name": self.name,
            "tasks": tasks,
            "engine": getattr(engine, "name", "vectors"),
            "max_tokens": engine.max_tokens,
            "embeds": self.embedder is not None,
            "example": self.probe,
        }

    def prediction(self, min_score: float | None = None, min_precision: float | None = None) -> Prediction:
        """Return the computation of predictions that withholds answers below a threshold."""
        if self.model is None:
            raise BadSetting(f"The model {self.name} makes vectors and predicts nothing. Use /v1/embed.")
        model = self.model.with_threshold(min_score, min_precision)
        return Prediction((self.name, min_score, min_precision), model)

    def explaining(self, asked: Mapping[str, Any], task: str | None = None, max_tokens: int = 200_000) -> Explaining:
        """Return the computation of explanations of what is asked: span, label, method."""
        if self.model is None:
            raise BadSetting(f"The model {self.name} makes vectors and no decisions that could be explained.")
        _, part = choose_model_task([self.model], task)
        return Explaining((self.name, "explain", part.name, *asked.values()), self, part, asked, max_tokens)

    def embedding(self) -> Embedding:
        """Return the computation of vectors."""
        if self.embedder is None:
            raise BadSetting(
                f"The model {self.name} makes no vectors: its folder does not say how. Use a model that was fine-tuned "
                "with --task compare, or /v1/predict."
            )
        return Embedding((self.name, "embed"), self.embedder)


@dataclass(frozen=True)
class Prediction:
    """Computes predictions; inputs with equal keys are computed together."""

    key: tuple[Any, ...]
    model: TaskModel = field(compare=False)

    def prepare(self, inputs: Sequence[ServiceInput], first: int = 1) -> list[TaskExamples]:
        """Turn inputs into examples, and refuse what the model cannot read; `first` is the number of the first."""
        if all(isinstance(item, str) for item in inputs) and first == 1:
            for number, text in enumerate(inputs, first):
                _refuse_blank(text, number)
            examples = self.model.examples_from_texts([str(item) for item in inputs])
        else:
            examples = [self._example(item, number) for number, item in enumerate(inputs, first)]
        self.model.check(examples)
        return examples

    def _example(self, item: ServiceInput, number: int) -> TaskExamples:
        parts = self.model.tasks
        if isinstance(item, Mapping):
            _check_keys(item, number)
        if isinstance(item, str) or set(item) <= {"id", "text"}:
            text: Any = item if isinstance(item, str) else item.get("text")
            name = str(number) if isinstance(item, str) else item.get("id", str(number))
            _refuse_blank(text, number)
            return {task: part.task.examples_from_texts([text], [name])[0] for task, part in parts.items()}
        if len(parts) > 1:
            raise BadInput(
                f"Input {number} is more than a text, and the model has several tasks, which read texts alone."
            )
        return {task: _read_object(part.task, item, number) for task, part in parts.items()}

    def compute(self, examples: Sequence[TaskExamples]) -> BatchAnswer:
        """Compute a batch."""
        start = time.perf_counter()
        encoded = self.model.encode_all(examples)
        ready = time.perf_counter()
        predictions = self.model.decode_all(encoded, self.model.run_all(encoded))
        records = [self.model.to_record(*pair) for pair in zip(examples, predictions, strict=True)]
        return BatchAnswer(records, ready - start, time.perf_counter() - ready)


@dataclass(frozen=True)
class Embedding:
    """Computes vectors of texts."""

    key: tuple[Any, ...]
    embedder: Embedder = field(compare=False)

    def prepare(self, inputs: Sequence[ServiceInput], first: int = 1) -> list[str]:
        """Check that the inputs are texts."""
        for number, item in enumerate(inputs, first):
            if not isinstance(item, str):
                raise BadInput(f"Input {number} is an object; expected a text, since vectors are made of texts.")
            _refuse_blank(item, number)
        return [str(item) for item in inputs]

    def compute(self, texts: Sequence[str]) -> BatchAnswer:
        """Compute a batch."""
        start = time.perf_counter()
        found = self.embedder.embed(texts)
        seconds = time.perf_counter() - start
        rows = zip(found.vectors_ND, found.coverages, strict=True)
        answers = [{"vector": vector_D.tolist(), "coverage": coverage_dict(each)} for vector_D, each in rows]
        return BatchAnswer(answers, 0.0, seconds)


@dataclass(frozen=True)
class ExplainJob:
    """A text with what it is thought to cost."""

    example: Any
    tokens: int


@dataclass(frozen=True)
class Explaining:
    """Computes explanations of answers, one at a time."""

    key: tuple[Any, ...]
    served: ServedModel = field(compare=False)
    part: ModelTask = field(compare=False)
    asked: Mapping[str, Any] = field(compare=False)
    """Span, label and method."""
    max_tokens: int

    def prepare(self, inputs: Sequence[ServiceInput], first: int = 1) -> list[ExplainJob]:
        """Turn inputs into examples, and estimate what they cost: the text once, and its longest row once for each token."""
        examples = self.served.prediction().prepare(inputs, first)
        return [self._job(example[self.part.name]) for example in examples]

    def _job(self, example: Any) -> ExplainJob:
        self.part.task.margins()  # refuses tasks without
        assert self.served.model is not None
        engine = self.served.model.engine
        (encoded,) = self.part.task.encode([example], engine.tokenizer, engine.max_tokens)
        if encoded.tokens > self.max_tokens:
            raise BadInput(
                f"The text has {encoded.tokens:,} tokens; an explanation may need at most {self.max_tokens:,}. Send a part of it."
            )
        longest = max((row.length for row in encoded.rows), default=0)
        cost = encoded.tokens + longest * (longest + count_evaluations(has_attention=True))
        return ExplainJob(example, min(cost, self.max_tokens))

    def compute(self, jobs: Sequence[ExplainJob]) -> BatchAnswer:
        """Explain each of a batch."""
        start = time.perf_counter()
        assert self.served.model is not None
        engine = self.served.model.engine
        records = [
            explain_decision(self.part, engine, job.example, max_tokens=self.max_tokens, **self.asked).record()
            for job in jobs
        ]
        return BatchAnswer(records, 0.0, time.perf_counter() - start)


Computation = Prediction | Embedding | Explaining


def compute_each(compute: Callable[[Sequence[Any]], BatchAnswer], items: Sequence[Any]) -> BatchAnswer:
    """Compute a batch; if it fails, compute each item alone, so that one cannot spoil the answers of the others."""
    try:
        return compute(items)
    except BaseException as problem:  # a panic of a library in Rust is no Exception, and must not end the lane
        if len(items) == 1:
            return BatchAnswer([_to_exception(problem)])
    parts = [compute_each(compute, [item]) for item in items]
    return BatchAnswer(
        [part.answers[0] for part in parts],
        sum(part.tokenise_seconds for part in parts),
        sum(part.compute_seconds for part in parts),
    )


def _to_exception(problem: BaseException) -> Exception:
    """Return what can be handed on as an answer; its place in the code stays, its message may hold text."""
    if isinstance(problem, Exception):
        return problem
    return RuntimeError(type(problem).__name__).with_traceback(problem.__traceback__)


def list_labels(labels: Sequence[str]) -> list[str]:
    """Return labels without the prefixes of tag schemes, each once.

    >>> list_labels(["O", "B-gene", "I-gene"])
    ['gene']
    """
    names = (_TAG_PREFIX.sub("", label) for label in labels)
    is_scheme = "O" in labels and any(_TAG_PREFIX.match(label) for label in labels)
    return [name for name in dict.fromkeys(names) if name != "O"] if is_scheme else list(labels)


def name_models(folders: Sequence[Path]) -> dict[str, Path]:
    """Call each folder by the end of its path: as short as it can be while all are different.

    >>> sorted(name_models([Path("work/a/export"), Path("work/b/export")]))
    ['a/export', 'b/export']
    """
    whole = [folder.absolute() for folder in folders]
    if len(set(whole)) < len(whole):
        raise BadSetting("A model was named twice. Name each folder once.")
    for length in range(1, max(len(folder.parts) for folder in whole) + 1):
        names = ["/".join(folder.parts[-length:]) for folder in whole]
        if len(set(names)) == len(names):
            return dict(zip(names, folders, strict=True))
    raise AssertionError("different paths have different ends")


def find_probe(model: TaskModel | None) -> ServiceInput | None:
    """Return the first known input that a model can read and answer."""
    for probe in _PROBES if model is not None else ():
        assert model is not None
        try:
            computation = Prediction(("probe",), model)
            json.dumps(computation.compute(computation.prepare([probe])).answers)
        except (UserError, ValueError, KeyError, AssertionError, IndexError):
            continue
        return probe
    return None


def is_same_answer(one: Any, other: Any) -> bool:
    """Compare two answers to the same input; numbers may differ by what the order of sums changes.

    >>> is_same_answer({"score": 0.50001}, {"score": 0.5}), is_same_answer(["a"], ["b"])
    (True, False)
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same_answer(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same_answer, one, other))
    return bool(one == other)


def _check_keys(item: Mapping[str, Any], number: int) -> None:
    if not set(item) <= set(_KEYS):
        raise BadInput(f"Input {number} has a key that no task reads. The keys are {', '.join(_KEYS)}.")
    if not isinstance(item.get("id", ""), str):
        raise BadInput(f"Input {number} has an `id` that is no string. Put it into quotes.")


def _refuse_blank(text: Any, number: int) -> None:
    if not isinstance(text, str):
        raise BadInput(f"Input {number} has no text as `text`; expected a string.")
    if not text.strip():
        raise BadInput(f"Input {number} has no text: it is empty or blank.")


def _read_object(task: Any, item: dict[str, Any], number: int) -> Any:
    """Make an example of an object; what is wrong in its inside is not repeated."""
    try:
        return to_example(task, item, number)
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        keys = ", ".join(key for key in _KEYS if key in item)
        raise BadInput(
            f"Input {number} is an object with {keys}, which a model for {task.name} cannot read. Look up what it reads "
            "in the description of /v1/predict (/openapi.json)."
        ) from None
