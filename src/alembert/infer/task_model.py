"""A fine-tuned model: examples in, predictions of its task out, whatever engine computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

from alembert.corpus.inputs import InputFile, list_input_files
from alembert.corpus.readers.contract import DamagedFile, ReadOptions, SetAside
from alembert.corpus.readers.source import SourceFile, SourceLine, strip_compression_suffix
from alembert.data.batching import map_in_threads
from alembert.errors import BadFile, BadInput, BadSetting
from alembert.hub import model_folder
from alembert.infer.engines import open_engine
from alembert.infer.size import Size
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
from alembert.tasks.runtime import Runner
from alembert.tasks.task import AnyTask
from alembert.text.tokenizer import Tokenizer

AT_ONCE: Final = 512
"""Examples that are encoded and computed together: enough to sort by length, few enough to hold."""
OVERLAPPED: Final = 2
"""Parts under way at a time: one keeps the engine busy while the other is encoded or decoded."""
SEEDS: Final = "seeds"


class TaskEngine(Protocol):
    """What computes the answers of heads."""

    @property
    def name(self) -> str:
        """What it is called: torch, openvino int8, onnxruntime int8."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""

    @property
    def size(self) -> Size:
        """What the model costs on any machine."""

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """What a thread holds while it computes, if only one may at a time."""

    def bound(self, task: AnyTask, head: str | None = None) -> tuple[AnyTask, Runner]:
        """Give the task what it needs of the weights of its head (none: called as its kind), and what runs it."""


Made = TypeVar("Made")


def as_examples(
    given: Sequence[Made | str], kind: type[Made], of_texts: Callable[[Sequence[str]], Sequence[Made]]
) -> Sequence[Made]:
    """Return examples as they are, and make examples of texts; refuse anything else."""
    if not isinstance(given, str):
        if all(isinstance(each, kind) for each in given):
            return cast(Sequence[Made], given)
        if all(isinstance(each, str) for each in given):
            return of_texts(cast(Sequence[str], given))
    strange = given if isinstance(given, str) else next(each for each in given if not isinstance(each, kind))
    raise BadInput(
        "A model predicts a list of texts, or a list of examples of its task; "
        f"{type(strange).__name__} was given instead, or among them."
    )


def has_lines(file: InputFile) -> bool:
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
        return cls.of_engine(open_engine(place, device), place, task if read_task_names(place) else None)

    @classmethod
    def of_engine(cls, engine: TaskEngine, folder: Path, name: str | None = None) -> TaskModel:
        """Put together an engine and the task that its folder describes."""
        bound, runner = engine.bound(open_task(folder, name), name)
        return cls(bound, engine, runner, folder, name)

    def read(self, files: Sequence[Path], options: ReadOptions) -> ReadResult[Any]:
        """Read examples of the model's task, from the columns that it was trained on unless others are named."""
        options = apply_training_columns(self.training(), options, str(self.folder / TASK_FILE))
        return self.task.read(files, self.task.settings, options)

    def read_texts(self, file: Path, options: ReadOptions) -> ReadResult[Any]:
        """Read what is to be predicted, with or without right answers; plain text (`.txt`) has one text a line.

        A folder or a pattern stands for all files in it.
        """
        options = apply_training_columns(self.training(), options, str(self.folder / TASK_FILE))
        listed = list_input_files([file])
        reading: ReadResult[Any] = ReadResult.joined(
            self.read_lines(each.path, options)
            if has_lines(each)
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
        return ReadResult(tuple(self.task.of_texts(texts, ids)), aside, tuple(source.remarks()))

    def predict(self, examples: Sequence[Example | str], tell: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Predict all examples, or texts; `tell` hears how many are done."""
        predictions: list[Any] = []
        for prediction in self.predictions(examples):
            predictions.append(prediction)
            tell(len(predictions))
        return predictions

    def predictions(self, examples: Sequence[Example | str]) -> Iterator[Any]:
        """Predict examples or texts in their order; while some are computed, others are encoded or decoded."""
        ready = as_examples(examples, Example, self.task.of_texts)
        parts = [ready[start : start + AT_ONCE] for start in range(0, len(ready), AT_ONCE)]
        for answers in map_in_threads(self._answers, parts, min(OVERLAPPED, len(parts)), ahead=1):
            yield from answers

    def _answers(self, examples: Sequence[Example]) -> list[Any]:
        encoded = self.encode(examples)
        with self.engine.turn:
            outputs = self.task.run(self.runner, encoded)
        return [self.decode(*pair) for pair in zip(encoded, outputs, strict=True)]

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> TaskModel:
        """Return the model that withholds answers below a score, or below the one that reached a precision in training."""
        if min_score is None and min_precision is None:
            return self
        check_thresholds(min_score, min_precision)
        reached = 0.0
        if min_precision is not None:
            reached = find_threshold(min_precision, self.training(), str(self.folder))
        return replace(self, min_score=max(min_score or 0.0, reached))

    def decode(self, encoded: EncodedExample, outputs: Any) -> Any:
        """Read the answers of one example, without those that are withheld."""
        prediction = self.task.decode(encoded, outputs)
        return self.task.withhold(prediction, self.min_score) if self.min_score else prediction

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Turn examples into what the model reads."""
        return self.task.encode(examples, self.engine.tokenizer, self.engine.longest)

    def training(self) -> Mapping[str, Any]:
        """Give the facts of the training that were kept."""
        facts: Mapping[str, Any] = read_task_table(self.folder, self.name).get("training", {})
        return facts

    def train_keys(self) -> set[int] | None:
        """Give the keys of the examples that were trained on; none: they are not known."""
        return read_train_keys(self.folder, self.name)

    def surfaces(self) -> Mapping[str, int] | None:
        """Say how often entities were seen in training, by `tasks.surfaces.surface_key`; none: it is not known."""
        return read_surfaces(self.folder, self.name)

    def members(self) -> list[Path]:
        """List the folders of all seeds; one that was trained with a single seed is its own."""
        numbered = [path for path in (self.folder / SEEDS).glob("*") if path.name.isdecimal()]
        return sorted(numbered, key=lambda path: int(path.name)) or [self.folder]
