"""A fine-tuned model: examples in, predictions of its tasks out, whatever engine computes them.

A model has a table of tasks, of which there is mostly one. The encoder runs once over each row that tasks have in
common (`tasks.runtime`); a task that has its own way to run, such as writing a text token by token, goes its way
afterwards. While some examples are computed, others are encoded or decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol

from alembert.corpus.document import Document
from alembert.corpus.inputs import InputFile, InputFiles, list_input_files
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile, SourceLine, strip_compression_suffix
from alembert.data.batching import map_in_threads
from alembert.errors import BadFile, BadInput, BadSetting, UserError
from alembert.hub import model_folder
from alembert.infer.engines import ModelSize, open_engine
from alembert.tasks.example import EncodedExample, Example, ReadResult
from alembert.tasks.files import SavedTask, choose_task, read_tasks
from alembert.tasks.metrics.calibration import find_threshold
from alembert.tasks.runtime import HeadRunner, run_together
from alembert.tasks.task import AnyTask, Task
from alembert.text.lexicon import parse_lexicon_option
from alembert.text.tokenizer import Tokenizer

BATCH_EXAMPLES: Final = 512
"""Examples that are encoded and computed together: enough to sort by length, few enough to hold."""
PARALLEL_BATCHES: Final = 2
"""Parts under way at a time: one keeps the engine busy while the other is encoded or decoded."""
SEEDS_FOLDER: Final = "seeds"


class TaskEngine(Protocol):
    """What computes the answers of heads."""

    @property
    def name(self) -> str:
        """What it is called: torch, openvino int8, onnxruntime int8."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_tokens(self) -> int:
        """Tokens that the model reads at once."""

    @property
    def size(self) -> ModelSize:
        """What the model costs on any machine."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What a thread holds while it computes, if only one may at a time."""

    def bind(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, HeadRunner]:
        """Return the task with what it needs of the weights of its head (none: called as its kind), and what runs it."""


TaskExamples = dict[str, Example]
"""One text as each task of a model reads it, by the names of the tasks."""


def is_plain_text(file: InputFile) -> bool:
    """Return whether a file is plain text, and not that of a brat pair."""
    return not file.more and strip_compression_suffix(file.path.name).lower().endswith(".txt")


def check_thresholds(min_score: Any, min_precision: Any) -> None:
    """Refuse thresholds that are no share."""
    for name, share in (("min_score", min_score), ("min_precision", min_precision)):
        if share is not None and not (isinstance(share, Real) and 0 <= float(share) <= 1):
            raise BadSetting(f"`{name}` is {share!r}; expected a number from 0 to 1.")


@dataclass(frozen=True)
class ModelTask:
    """A task of an opened model, and what runs its head."""

    saved: SavedTask
    task: AnyTask
    runner: HeadRunner
    min_score: float = 0.0
    """Answers of which the model is less sure are withheld."""

    @property
    def name(self) -> str:
        return self.saved.name

    def with_threshold(self, min_score: float | None, min_precision: float | None) -> ModelTask:
        """Return the task that withholds answers below a score, or below the one that reached a precision in training."""
        reached = 0.0
        if min_precision is not None:
            reached = find_threshold(min_precision, self.saved.training, str(self.saved.folder))
        return replace(self, min_score=max(min_score or 0.0, reached))

    def read_texts(self, files: InputFiles, options: ReadOptions) -> ReadResult[Any]:
        """Read what is to be predicted, with or without right answers."""
        options = self.saved.apply_columns(options)
        return ReadResult.concatenate(
            self.read_lines(file.path, options)
            if is_plain_text(file)
            else self.task.read_unlabelled([file.path], self.task.settings, options)
            for file in files.files
        )

    def read_lines(self, file: Path, options: ReadOptions) -> ReadResult[Any]:
        """Read plain text, a text a line, each named by its file and number."""
        source = SourceFile(file, options)
        try:
            lines = list(source.lines())
        except DamagedFile as damage:
            raise BadFile(f"{file}: {damage}.") from None
        finally:
            source.close()
        texts = [line.text for line in lines if isinstance(line, SourceLine) and line.text.strip()]
        aside = tuple(line for line in lines if isinstance(line, SetAside))
        ids = [f"{source.stem}-{number}" for number in range(1, len(texts) + 1)]
        return ReadResult(tuple(self.task.examples_from_texts(texts, ids)), aside, tuple(source.remarks()))

    def decode_batch(self, encoded: Sequence[EncodedExample], outputs: Sequence[Any]) -> list[Any]:
        """Read the answers of examples, without those that are withheld."""
        predictions = self.task.decode_batch(encoded, outputs)
        if not self.min_score:
            return predictions
        return [self.task.apply_min_score(prediction, self.min_score) for prediction in predictions]


@dataclass(frozen=True)
class TaskModel:
    """A fine-tuned model with its tasks, by their names."""

    folder: Path
    engine: TaskEngine
    tasks: Mapping[str, ModelTask]

    @classmethod
    def open(cls, folder: str | Path, device: str = "cpu", task: str | None = None) -> TaskModel:
        """Open a folder that `finetune` or `export` wrote, or one that was fine-tuned elsewhere; `hub:` models, too.

        A model of several tasks is opened whole, unless `task` names one of them. The engine is the one that the folder
        is made for (`engine.name` says which).
        """
        place = model_folder(folder)
        saved = read_tasks(place)  # a folder without the task is refused before its weights are read
        chosen = saved.values() if task is None else [choose_task(place, saved, task)]
        return cls.from_engine(open_engine(place, device), *chosen)

    @classmethod
    def from_engine(cls, engine: TaskEngine, *saved: SavedTask) -> TaskModel:
        """Put together an engine and tasks that its folder describes."""
        tasks = {each.name: ModelTask(each, *engine.bind(each.open(), each.head)) for each in saved}
        return cls(saved[0].folder, engine, tasks)

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> TaskModel:
        """Return the model whose tasks withhold answers, see `ModelTask.with_threshold`."""
        if min_score is None and min_precision is None:
            return self
        check_thresholds(min_score, min_precision)
        return replace(
            self, tasks={name: part.with_threshold(min_score, min_precision) for name, part in self.tasks.items()}
        )

    def with_lexicons(self, lexicons: Sequence[str]) -> TaskModel:
        """Return the model with more terms, in files given as LABEL=FILE, for the lexicons that its tasks read."""
        if not lexicons:
            return self
        labels = [parse_lexicon_option(option)[0] for option in lexicons]
        readers = {name: part for name, part in self.tasks.items() if part.task.lexicon_labels} or self.tasks
        known = {label for part in readers.values() for label in part.task.lexicon_labels}
        tasks = dict(self.tasks)
        for name, part in readers.items():
            pairs = zip(labels, lexicons, strict=True)
            own = [option for label, option in pairs if label in part.task.lexicon_labels or label not in known]
            tasks[name] = replace(part, task=part.task.with_lexicons(own))
        return replace(self, tasks=tasks)

    @property
    def lexicon_labels(self) -> frozenset[str]:
        """Names of the lexicons that its tasks read."""
        return frozenset(label for part in self.tasks.values() for label in part.task.lexicon_labels)

    def lexicon_notes(self) -> list[str]:
        """Describe the terms that its tasks were not trained with."""
        return [sentence for part in self.tasks.values() for sentence in part.task.lexicon_notes()]

    def select(self, name: str) -> TaskModel:
        """Return the model with one of its tasks alone."""
        chosen = self._choose(name)
        return replace(self, tasks={chosen.name: chosen})

    def _choose(self, name: str | None) -> ModelTask:
        return self.tasks[choose_task(self.folder, {part.name: part.saved for part in self.tasks.values()}, name).name]

    # -- the only task

    @cached_property
    def only(self) -> ModelTask:
        """The task of a model that has one; a model of several is refused with their names."""
        return self._choose(None)

    @property
    def task(self) -> AnyTask:
        return self.only.task

    def with_task(self, task: AnyTask) -> TaskModel:
        """Return the model with another form of its only task."""
        return replace(self, tasks={self.only.name: replace(self.only, task=task)})

    @property
    def training_facts(self) -> Mapping[str, Any]:
        """The facts of the training that were kept."""
        return self.only.saved.training

    def train_keys(self) -> set[int] | None:
        """Read the keys of the examples that were trained on; none: they are not known."""
        return self.only.saved.train_keys()

    def surfaces(self) -> Mapping[str, int] | None:
        """Read how often entities were seen in training, by `tasks.example.surface_key`; none: it is not known."""
        return self.only.saved.surfaces()

    def seed_folders(self) -> list[Path]:
        """List the folders of all seeds; one that was trained with a single seed is its own."""
        numbered = [path for path in (self.folder / SEEDS_FOLDER).glob("*") if path.name.isdecimal()]
        return sorted(numbered, key=lambda path: int(path.name)) or [self.folder]

    def read(self, files: Sequence[Path], options: ReadOptions) -> ReadResult[Any]:
        """Read examples of the task, from the columns that it was trained on unless others are named."""
        return self.task.read(files, self.task.settings, self.only.saved.apply_columns(options))

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.task.encode(examples, self.engine.tokenizer, self.engine.max_tokens)

    def predict(
        self, examples: Sequence[Example | str], on_progress: Callable[[int], None] = lambda _: None
    ) -> list[Any]:
        """Predict all examples, or texts; `on_progress` is called with how many are done."""
        predictions: list[Any] = []
        for prediction in self.iter_predictions(examples):
            predictions.append(prediction)
            on_progress(len(predictions))
        return predictions

    def iter_predictions(self, examples: Sequence[Example | str]) -> Iterator[Any]:
        """Predict examples or texts in their order."""
        name = self.only.name
        for predictions in self.predict_all(self.to_examples(examples)):
            yield predictions[name]

    # -- all tasks

    def to_examples(self, given: Sequence[Example | str]) -> list[TaskExamples]:
        """Make examples of texts; examples of an only task are taken as they are, and anything else is refused."""
        if not isinstance(given, str):
            texts = [text for text in given if isinstance(text, str)]
            examples = [example for example in given if isinstance(example, Example)]
            if len(texts) == len(given):
                return self.examples_from_texts(texts)
            if len(examples) == len(given):
                return [{self.only.name: example} for example in examples]
        strange = given if isinstance(given, str) else next(each for each in given if not isinstance(each, Example))
        raise BadInput(
            "A model predicts a list of texts, or a list of examples of its task; "
            f"{type(strange).__name__} was given instead, or among them."
        )

    def examples_from_texts(self, texts: Sequence[str]) -> list[TaskExamples]:
        """Make examples without answers of plain texts."""
        return self._examples(lambda task: task.examples_from_texts(texts))

    def examples_from_documents(self, documents: Sequence[Document]) -> list[TaskExamples]:
        """Make examples without answers of documents."""
        return self._examples(lambda task: task.examples_from_documents(documents))

    def _examples(self, read_as: Callable[[AnyTask], Sequence[Example]]) -> list[TaskExamples]:
        columns = {}
        for name, part in self.tasks.items():
            with self._naming_task(name):
                columns[name] = read_as(part.task)
        return _to_rows(columns)

    def read_texts(self, file: Path, options: ReadOptions) -> ReadResult[Any]:
        """Read what is to be predicted, with or without right answers; plain text (`.txt`) has one text a line.

        A folder or a pattern stands for all files in it.
        """
        listed = list_input_files([file])
        found: dict[str, ReadResult[Any]] = {}
        for name, part in self.tasks.items():
            with self._naming_task(name):
                found[name] = part.read_texts(listed, options)
        if len({tuple(example.texts for example in reading.examples) for reading in found.values()}) > 1:
            counts = ", ".join(f"{len(reading.examples):,} for {name}" for name, reading in found.items())
            raise BadInput(
                f"The tasks of the model do not read the same texts from {file} ({counts}). Predict with one task at a "
                "time: --task NAME."
            )
        return ReadResult(
            tuple(_to_rows({name: reading.examples for name, reading in found.items()})),
            tuple(dict.fromkeys(item for reading in found.values() for item in reading.set_aside)),
            (*dict.fromkeys(note for reading in found.values() for note in reading.remarks), *listed.remarks([file])),
        )

    def check(self, examples: Sequence[TaskExamples]) -> None:
        """Refuse texts that one of the tasks cannot take."""
        for name, part in self.tasks.items():
            with self._naming_task(name):
                part.task.check([example[name] for example in examples])

    def data_notes(self, examples: Sequence[TaskExamples]) -> list[str]:
        """Explain what keeps texts from having any answer of a task."""
        return [
            f"task {name}: {sentence}" if len(self.tasks) > 1 else sentence
            for name, part in self.tasks.items()
            for sentence in part.task.data_notes([example[name] for example in examples])
        ]

    def predict_all(self, examples: Sequence[TaskExamples]) -> Iterator[dict[str, Any]]:
        """Predict with all tasks, in the order of the examples; predictions have the names of their tasks."""
        batches = [examples[start : start + BATCH_EXAMPLES] for start in range(0, len(examples), BATCH_EXAMPLES)]
        for predictions in map_in_threads(self._predict_batch, batches, min(PARALLEL_BATCHES, len(batches)), ahead=1):
            yield from predictions

    def _predict_batch(self, examples: Sequence[TaskExamples]) -> list[dict[str, Any]]:
        encoded = self.encode_all(examples)
        return self.decode_all(encoded, self.run_all(encoded))

    def encode_all(self, examples: Sequence[TaskExamples]) -> dict[str, list[EncodedExample]]:
        """Turn examples into what the model reads, for each task."""
        tokenizer, longest = self.engine.tokenizer, self.engine.max_tokens
        return {
            name: part.task.encode([example[name] for example in examples], tokenizer, longest)
            for name, part in self.tasks.items()
        }

    def run_all(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> dict[str, Sequence[Any]]:
        """Compute the outputs of each task for encoded examples."""
        with self.engine.lock:
            return self._run(encoded)

    def decode_all(
        self, encoded: Mapping[str, Sequence[EncodedExample]], outputs: Mapping[str, Sequence[Any]]
    ) -> list[dict[str, Any]]:
        """Read the predictions of each example from the outputs, by the names of the tasks."""
        return _to_rows({name: part.decode_batch(encoded[name], outputs[name]) for name, part in self.tasks.items()})

    def _run(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> dict[str, Sequence[Any]]:
        plain = {name: part.runner for name, part in self.tasks.items() if _needs_one_pass(part.task)}
        outputs: dict[str, Sequence[Any]] = {}
        if len(self.tasks) > 1:
            outputs |= run_together(plain, encoded)
        own = {name: part for name, part in self.tasks.items() if name not in outputs}
        return outputs | {name: part.task.run(part.runner, encoded[name]) for name, part in own.items()}

    def to_record(self, example: TaskExamples, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the predictions as a JSON object; those of several tasks are under their names."""
        records = {name: part.task.to_record(example[name], predictions[name]) for name, part in self.tasks.items()}
        return records if len(records) > 1 else records[self.only.name]

    def to_lines(self, example: TaskExamples, predictions: Mapping[str, Any]) -> list[str]:
        """Return the predictions as lines for people; those of several tasks stand below their names."""
        lines: list[str] = []
        for name, part in self.tasks.items():
            own = part.task.to_lines(example[name], predictions[name])
            lines += own if len(self.tasks) == 1 else [f"{name}:", *(f"  {line}" for line in own)]
        return lines

    @contextmanager
    def _naming_task(self, name: str) -> Iterator[None]:
        """Name which of several tasks has refused something, and how the others are asked."""
        try:
            yield
        except UserError as problem:
            if len(self.tasks) > 1:
                advice = "To ask another task alone, give its name: --task NAME."
                problem.args = (f"Task {name}: {problem} {advice}",)
            raise


def _to_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _needs_one_pass(task: AnyTask) -> bool:
    """Return whether the head's outputs for the rows are all that a task wants of the model."""
    return type(task).run is Task.run
