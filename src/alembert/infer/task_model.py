"""A fine-tuned model: examples in, predictions of its task out, whatever engine computes them.

A model of several tasks: texts in, the answers of all its tasks out.

The encoder runs once over each row that tasks have in common (`tasks.running_together`); a task that has its own way to
run, such as writing a text token by token, goes its way afterwards. To `predict` such a model looks like one of a single
task: `task` makes examples, checks and shows them, and answers have the names of their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

from alembert.corpus.document import Document
from alembert.corpus.inputs import InputFile, list_input_files
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile, SourceLine, strip_compression_suffix
from alembert.data.batching import map_in_threads
from alembert.errors import BadFile, BadInput, BadSetting, UserError
from alembert.hub import model_folder
from alembert.infer.engines import ModelSize, open_engine
from alembert.tasks.confidence import find_threshold
from alembert.tasks.example import EncodedExample, Example, ReadResult
from alembert.tasks.files import (
    TASK_FILE,
    apply_training_columns,
    open_task,
    read_surfaces,
    read_task_names,
    read_task_table,
    read_train_keys,
)
from alembert.tasks.runtime import Outputs, Runner
from alembert.tasks.task import AnyTask, Task
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

    def bind(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, Runner]:
        """Give the task what it needs of the weights of its head (none: called as its kind), and what runs it."""


ExampleT = TypeVar("ExampleT")


def to_examples(
    given: Sequence[ExampleT | str], kind: type[ExampleT], of_texts: Callable[[Sequence[str]], Sequence[ExampleT]]
) -> Sequence[ExampleT]:
    """Return examples as they are, and make examples of texts; refuse anything else."""
    if not isinstance(given, str):
        if all(isinstance(each, kind) for each in given):
            return cast(Sequence[ExampleT], given)
        if all(isinstance(each, str) for each in given):
            return of_texts(cast(Sequence[str], given))
    strange = given if isinstance(given, str) else next(each for each in given if not isinstance(each, kind))
    raise BadInput(
        "A model predicts a list of texts, or a list of examples of its task; "
        f"{type(strange).__name__} was given instead, or among them."
    )


def is_plain_text(file: InputFile) -> bool:
    """Tell whether a file is plain text, and not that of a brat pair."""
    return not file.more and strip_compression_suffix(file.path.name).lower().endswith(".txt")


def check_thresholds(min_score: Any, min_precision: Any) -> None:
    """Refuse thresholds that are no share."""
    for name, share in (("min_score", min_score), ("min_precision", min_precision)):
        if share is not None and not (isinstance(share, Real) and 0 <= float(share) <= 1):
            raise BadSetting(f"`{name}` is {share!r}; expected a number from 0 to 1.")


@dataclass(frozen=True)
class TaskModel:
    """A model that was fine-tuned for a task, or one of the tasks of a model of several."""

    task: AnyTask
    engine: TaskEngine
    runner: Runner
    folder: Path
    name: str | None = None
    """Which of several tasks it is; none: the model has one."""
    min_score: float = 0.0
    """Answers of which the model is less sure are withheld."""

    @classmethod
    def open(cls, folder: str | Path, device: str = "cpu", task: str | None = None) -> TaskModel:
        """Open a folder that `finetune` or `export` wrote, or one that was fine-tuned elsewhere; `hub:` models, too.

        `task` is the name of one of several.

        The engine is the one that the folder is made for (`engine.name` says which).
        """
        place = model_folder(folder)
        read_task_table(place, task)  # a folder without the task is refused before its weights are read
        return cls.from_engine(open_engine(place, device), place, task if read_task_names(place) else None)

    @classmethod
    def from_engine(cls, engine: TaskEngine, folder: Path, name: str | None = None) -> TaskModel:
        """Put together an engine and the task that its folder describes."""
        bound, runner = engine.bind(open_task(folder, name), name)
        return cls(bound, engine, runner, folder, name)

    def read(self, files: Sequence[Path], options: ReadOptions) -> ReadResult[Any]:
        """Read examples of the model's task, from the columns that it was trained on unless others are named."""
        options = apply_training_columns(self.training_facts(), options, str(self.folder / TASK_FILE))
        return self.task.read(files, self.task.settings, options)

    def read_texts(self, file: Path, options: ReadOptions) -> ReadResult[Any]:
        """Read what is to be predicted, with or without right answers; plain text (`.txt`) has one text a line.

        A folder or a pattern stands for all files in it.
        """
        options = apply_training_columns(self.training_facts(), options, str(self.folder / TASK_FILE))
        listed = list_input_files([file])
        reading: ReadResult[Any] = ReadResult.concatenate(
            self.read_lines(each.path, options)
            if is_plain_text(each)
            else self.task.read_unlabelled([each.path], self.task.settings, options)
            for each in listed.files
        )
        return replace(reading, remarks=(*reading.remarks, *listed.remarks([file])))

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

    def predict(self, examples: Sequence[Example | str], tell: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Predict all examples, or texts; `tell` hears how many are done."""
        predictions: list[Any] = []
        for prediction in self.iter_predictions(examples):
            predictions.append(prediction)
            tell(len(predictions))
        return predictions

    def iter_predictions(self, examples: Sequence[Example | str]) -> Iterator[Any]:
        """Predict examples or texts in their order; while some are computed, others are encoded or decoded."""
        ready = to_examples(examples, Example, self.task.examples_from_texts)
        parts = [ready[start : start + BATCH_EXAMPLES] for start in range(0, len(ready), BATCH_EXAMPLES)]
        for answers in map_in_threads(self._answers, parts, min(PARALLEL_BATCHES, len(parts)), ahead=1):
            yield from answers

    def _answers(self, examples: Sequence[Example]) -> list[Any]:
        encoded = self.encode(examples)
        with self.engine.lock:
            outputs = self.task.run(self.runner, encoded)
        return [self.decode(*pair) for pair in zip(encoded, outputs, strict=True)]

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> TaskModel:
        """Return the model that withholds answers below a score, or below the one that reached a precision in training."""
        if min_score is None and min_precision is None:
            return self
        check_thresholds(min_score, min_precision)
        reached = 0.0
        if min_precision is not None:
            reached = find_threshold(min_precision, self.training_facts(), str(self.folder))
        return replace(self, min_score=max(min_score or 0.0, reached))

    def decode(self, encoded: EncodedExample, outputs: Any) -> Any:
        """Read the answers of one example, without those that are withheld."""
        prediction = self.task.decode(encoded, outputs)
        return self.task.apply_min_score(prediction, self.min_score) if self.min_score else prediction

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.task.encode(examples, self.engine.tokenizer, self.engine.max_tokens)

    def training_facts(self) -> Mapping[str, Any]:
        """Give the facts of the training that were kept."""
        facts: Mapping[str, Any] = read_task_table(self.folder, self.name).get("training", {})
        return facts

    def train_keys(self) -> set[int] | None:
        """Give the keys of the examples that were trained on; none: they are not known."""
        return read_train_keys(self.folder, self.name)

    def surfaces(self) -> Mapping[str, int] | None:
        """Say how often entities were seen in training, by `tasks.surfaces.surface_key`; none: it is not known."""
        return read_surfaces(self.folder, self.name)

    def seed_folders(self) -> list[Path]:
        """List the folders of all seeds; one that was trained with a single seed is its own."""
        numbered = [path for path in (self.folder / SEEDS_FOLDER).glob("*") if path.name.isdecimal()]
        return sorted(numbered, key=lambda path: int(path.name)) or [self.folder]


class MultiTaskRunner(Protocol):
    """What runs the heads of several tasks at once."""

    def outputs(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> Mapping[str, Sequence[list[Outputs]]]:
        """Give each head's outputs at the places of each row of each of its examples."""


class MultiTaskEngine(TaskEngine, Protocol):
    """An engine that can ask several heads at once."""

    def multitask_runner(self, tasks: Mapping[str, AnyTask]) -> MultiTaskRunner:
        """Give what runs the heads of these tasks, which have their names."""


@dataclass(frozen=True)
class MultiTaskExample:
    """One text as each task reads it."""

    texts: tuple[str, ...]
    by_task: Mapping[str, Example]


@dataclass(frozen=True)
class MultiTask:
    """The tasks of a model, behind the part of the contract that prediction needs."""

    tasks: Mapping[str, AnyTask]

    def examples_from_texts(self, texts: Sequence[str]) -> list[MultiTaskExample]:
        """Make examples without answers of plain texts."""
        return self._examples(texts, lambda task: task.examples_from_texts(texts))

    def of_documents(self, documents: Sequence[Document]) -> list[MultiTaskExample]:
        """Make examples without answers of documents."""
        return self._examples([each.text for each in documents], lambda task: task.examples_from_documents(documents))

    def _examples(
        self, texts: Sequence[str], read_as: Callable[[AnyTask], Sequence[Example]]
    ) -> list[MultiTaskExample]:
        columns: dict[str, Sequence[Example]] = {}
        for name, task in self.tasks.items():
            with _naming_task(name):
                columns[name] = read_as(task)
        return [
            MultiTaskExample((text,), {name: column[number] for name, column in columns.items()})
            for number, text in enumerate(texts)
        ]

    def check(self, examples: Sequence[MultiTaskExample]) -> None:
        """Refuse texts that one of the tasks cannot take."""
        for name, task in self.tasks.items():
            with _naming_task(name):
                task.check([example.by_task[name] for example in examples])

    def data_notes(self, examples: Sequence[MultiTaskExample]) -> list[str]:
        """Say what keeps texts from having any answer of a task."""
        return [
            f"task {name}: {sentence}"
            for name, task in self.tasks.items()
            for sentence in task.data_notes([example.by_task[name] for example in examples])
        ]

    def to_record(self, example: MultiTaskExample, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Give the answers as a JSON object: name of the task -> its own record."""
        return {name: task.to_record(example.by_task[name], predictions[name]) for name, task in self.tasks.items()}

    def to_lines(self, example: MultiTaskExample, predictions: Mapping[str, Any]) -> list[str]:
        """Give the answers as lines for people."""
        lines: list[str] = []
        for name, task in self.tasks.items():
            lines += [
                f"{name}:",
                *(f"  {line}" for line in task.to_lines(example.by_task[name], predictions[name])),
            ]
        return lines


@dataclass(frozen=True)
class MultiTaskModel:
    """A model that was fine-tuned for several tasks."""

    models: Mapping[str, TaskModel]
    engine: MultiTaskEngine
    folder: Path

    @classmethod
    def open(cls, folder: str | Path, device: str = "cpu") -> MultiTaskModel:
        """Open a folder that `finetune` or `export` wrote for several tasks."""
        place = model_folder(folder)
        names, engine = read_task_names(place), open_engine(place, device)
        return cls({name: TaskModel.from_engine(engine, place, name) for name in names}, engine, place)

    @property
    def task(self) -> MultiTask:
        return MultiTask({name: model.task for name, model in self.models.items()})

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> MultiTaskModel:
        """Return the model that withholds answers of each task, as `TaskModel.with_threshold` does."""
        models = {name: each.with_threshold(min_score, min_precision) for name, each in self.models.items()}
        return replace(self, models=models)

    def iter_predictions(self, examples: Sequence[MultiTaskExample | str]) -> Iterator[dict[str, Any]]:
        """Predict examples or texts in their order, some at a time."""
        ready = to_examples(examples, MultiTaskExample, self.task.examples_from_texts)
        for start in range(0, len(ready), BATCH_EXAMPLES):
            part = ready[start : start + BATCH_EXAMPLES]
            columns = self._predicted(part)
            for number in range(len(part)):
                yield {name: column[number] for name, column in columns.items()}

    def _predicted(self, examples: Sequence[MultiTaskExample]) -> dict[str, list[Any]]:
        encoded = {
            name: model.encode([example.by_task[name] for example in examples]) for name, model in self.models.items()
        }
        with self.engine.lock:
            outputs = self._outputs(encoded)
        return {
            name: [model.decode(*pair) for pair in zip(encoded[name], outputs[name], strict=True)]
            for name, model in self.models.items()
        }

    def _outputs(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> dict[str, Sequence[Any]]:
        plain = {name: model.task for name, model in self.models.items() if _needs_one_pass(model.task)}
        shared = self.engine.multitask_runner(plain).outputs({name: encoded[name] for name in plain})
        own = {
            name: model.task.run(model.runner, encoded[name])
            for name, model in self.models.items()
            if name not in plain
        }
        return {**shared, **own}


def open_model(folder: str | Path, device: str = "cpu", task: str | None = None) -> TaskModel | MultiTaskModel:
    """Open a fine-tuned model: one of several tasks whole, unless one of them is named."""
    place = model_folder(folder)
    if task is None and read_task_names(place):
        return MultiTaskModel.open(place, device)
    return TaskModel.open(place, device, task)


@contextmanager
def _naming_task(task: str) -> Iterator[None]:
    """Say which of several tasks has refused something, and how the others are asked."""
    try:
        yield
    except UserError as problem:
        problem.args = (f"Task {task}: {problem} To ask another task alone, give its name: --task NAME.",)
        raise


def _needs_one_pass(task: AnyTask) -> bool:
    """Tell whether the head's outputs for the rows are all that a task wants of the model."""
    return type(task).run is Task.run
