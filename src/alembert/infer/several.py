"""A model of several tasks: texts in, the answers of all its tasks out.

The encoder runs once over each row that tasks have in common (`tasks.running_together`); a task that has its own way to
run, such as writing a text token by token, goes its way afterwards. To `predict` such a model looks like one of a single
task: `task` makes examples, checks and shows them, and answers have the names of their tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from alembert.corpus.document import Document
from alembert.errors import UserError
from alembert.hub import model_folder
from alembert.infer.engines import open_engine
from alembert.infer.task_model import AT_ONCE, TaskEngine, TaskModel, as_examples
from alembert.tasks.example import EncodedExample, Example
from alembert.tasks.files import read_task_names
from alembert.tasks.runtime import Outputs
from alembert.tasks.task import AnyTask, Task


class Together(Protocol):
    """What runs the heads of several tasks at once."""

    def outputs(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> Mapping[str, Sequence[list[Outputs]]]:
        """Give each head's outputs at the places of each row of each of its examples."""


class SeveralEngine(TaskEngine, Protocol):
    """An engine that can ask several heads at once."""

    def together(self, tasks: Mapping[str, AnyTask]) -> Together:
        """Give what runs the heads of these tasks, which have their names."""


@dataclass(frozen=True)
class SeveralExamples:
    """One text as each task reads it."""

    texts: tuple[str, ...]
    by_task: Mapping[str, Example]


@dataclass(frozen=True)
class SeveralTasks:
    """The tasks of a model, behind the part of the contract that prediction needs."""

    tasks: Mapping[str, AnyTask]

    def of_texts(self, texts: Sequence[str]) -> list[SeveralExamples]:
        """Make examples without answers of plain texts."""
        return self._examples(texts, lambda task: task.of_texts(texts))

    def of_documents(self, documents: Sequence[Document]) -> list[SeveralExamples]:
        """Make examples without answers of documents."""
        return self._examples([each.text for each in documents], lambda task: task.of_documents(documents))

    def _examples(self, texts: Sequence[str], read_as: Callable[[AnyTask], Sequence[Example]]) -> list[SeveralExamples]:
        columns: dict[str, Sequence[Example]] = {}
        for name, task in self.tasks.items():
            with _named(name):
                columns[name] = read_as(task)
        return [
            SeveralExamples((text,), {name: column[number] for name, column in columns.items()})
            for number, text in enumerate(texts)
        ]

    def check(self, examples: Sequence[SeveralExamples]) -> None:
        """Refuse texts that one of the tasks cannot take."""
        for name, task in self.tasks.items():
            with _named(name):
                task.check([example.by_task[name] for example in examples])

    def notes(self, examples: Sequence[SeveralExamples]) -> list[str]:
        """Say what keeps texts from having any answer of a task."""
        return [
            f"task {name}: {sentence}"
            for name, task in self.tasks.items()
            for sentence in task.notes([example.by_task[name] for example in examples])
        ]

    def record(self, example: SeveralExamples, predictions: Mapping[str, Any]) -> dict[str, Any]:
        """Give the answers as a JSON object: name of the task -> its own record."""
        return {name: task.record(example.by_task[name], predictions[name]) for name, task in self.tasks.items()}

    def show(self, example: SeveralExamples, predictions: Mapping[str, Any]) -> list[str]:
        """Give the answers as lines for people."""
        lines: list[str] = []
        for name, task in self.tasks.items():
            lines += [
                f"{name}:",
                *(f"  {line}" for line in task.show(example.by_task[name], predictions[name])),
            ]
        return lines


@dataclass(frozen=True)
class SeveralModel:
    """A model that was fine-tuned for several tasks."""

    models: Mapping[str, TaskModel]
    engine: SeveralEngine
    folder: Path

    @classmethod
    def open(cls, folder: str | Path, device: str = "cpu") -> SeveralModel:
        """Open a folder that `finetune` or `export` wrote for several tasks."""
        place = model_folder(folder)
        names, engine = read_task_names(place), open_engine(place, device)
        return cls({name: TaskModel.of_engine(engine, place, name) for name in names}, engine, place)

    @property
    def task(self) -> SeveralTasks:
        return SeveralTasks({name: model.task for name, model in self.models.items()})

    def with_threshold(self, min_score: float | None = None, min_precision: float | None = None) -> SeveralModel:
        """Return the model that withholds answers of each task, as `TaskModel.with_threshold` does."""
        models = {name: each.with_threshold(min_score, min_precision) for name, each in self.models.items()}
        return replace(self, models=models)

    def predictions(self, examples: Sequence[SeveralExamples | str]) -> Iterator[dict[str, Any]]:
        """Predict examples or texts in their order, some at a time."""
        ready = as_examples(examples, SeveralExamples, self.task.of_texts)
        for start in range(0, len(ready), AT_ONCE):
            part = ready[start : start + AT_ONCE]
            columns = self._predicted(part)
            for number in range(len(part)):
                yield {name: column[number] for name, column in columns.items()}

    def _predicted(self, examples: Sequence[SeveralExamples]) -> dict[str, list[Any]]:
        encoded = {
            name: model.encode([example.by_task[name] for example in examples]) for name, model in self.models.items()
        }
        with self.engine.turn:
            outputs = self._outputs(encoded)
        return {
            name: [model.decode(*pair) for pair in zip(encoded[name], outputs[name], strict=True)]
            for name, model in self.models.items()
        }

    def _outputs(self, encoded: Mapping[str, Sequence[EncodedExample]]) -> dict[str, Sequence[Any]]:
        plain = {name: model.task for name, model in self.models.items() if _asks_once(model.task)}
        shared = self.engine.together(plain).outputs({name: encoded[name] for name in plain})
        own = {
            name: model.task.run(model.runner, encoded[name])
            for name, model in self.models.items()
            if name not in plain
        }
        return {**shared, **own}


def open_model(folder: str | Path, device: str = "cpu", task: str | None = None) -> TaskModel | SeveralModel:
    """Open a fine-tuned model: one of several tasks whole, unless one of them is named."""
    place = model_folder(folder)
    if task is None and read_task_names(place):
        return SeveralModel.open(place, device)
    return TaskModel.open(place, device, task)


@contextmanager
def _named(task: str) -> Iterator[None]:
    """Say which of several tasks has refused something, and how the others are asked."""
    try:
        yield
    except UserError as problem:
        problem.args = (f"Task {task}: {problem} To ask another task alone, give its name: --task NAME.",)
        raise


def _asks_once(task: AnyTask) -> bool:
    """Tell whether the head's outputs for the rows are all that a task wants of the model."""
    return type(task).run is Task.run
