"""The error atlas: what kinds of errors a fine-tuned model makes, where they gather, and the worst examples.

In: a model and labelled files. Out: tables, and examples with what is right and what was guessed marked in them. Each task
has its own survey, in `errors_<task>`. This is the one place, beside predictions, where text of the user is shown.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembert.corpus.readers.contract import ReadOptions, SetAside
from alembert.errors import BadSetting
from alembert.infer.scoring import read_gold
from alembert.inspect.marked_text import Mark
from alembert.inspect.tables import Table
from alembert.tasks.example import Coverage

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, kw_only=True)
class Case:
    """An example that went wrong."""

    id: str
    where: str
    told: str
    """What went wrong, in words."""
    texts: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    """Entities in the first text."""

    def as_json(self) -> dict[str, Any]:
        """Give plain values; marks with their text."""
        record = asdict(self)
        record["marks"] = [{**asdict(mark), "text": self.texts[0][mark.start : mark.end]} for mark in self.marks]
        return record


@dataclass(frozen=True, kw_only=True)
class Atlas:
    """The errors of a model on some files."""

    model: str
    task: str
    examples: int
    told: str
    """How much is wrong, in words."""
    tables: tuple[Table, ...]
    worst: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    """What could not be told, and why."""
    coverage: Coverage = field(default_factory=Coverage)
    set_aside: tuple[SetAside, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give plain values for `--json`."""
        return {
            "model": self.model,
            "task": self.task,
            "examples": self.examples,
            "told": self.told,
            "tables": {table.name: table.records() for table in self.tables},
            "worst": [case.as_json() for case in self.worst],
            "notes": list(self.notes),
            "coverage": asdict(self.coverage),
            "set_aside": [asdict(item) for item in self.set_aside],
        }


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a task finds out about its errors."""

    told: str
    """How much is wrong, in words."""
    tables: tuple[Table, ...]
    cases: tuple[Case, ...]
    """All examples with errors, the worst first."""
    notes: tuple[str, ...] = ()


def errors(
    model: TaskModel,
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    top: int = 20,
) -> Atlas:
    """Find and sort the errors of a model on labelled files."""
    survey = _survey_of(model.task.name)
    reading = read_gold(model, [Path(path) for path in files], options or ReadOptions(), part)
    predictions = model.predict(reading.examples)
    found = survey(model, reading.examples, predictions)
    scores = model.task.score(reading.examples, predictions)
    return Atlas(
        model=str(model.folder),
        task=model.task.name,
        examples=len(reading.examples),
        told=found.told,
        tables=found.tables,
        worst=found.cases[:top],
        notes=(*found.notes, *scores.notes),
        coverage=scores.coverage,
        set_aside=reading.set_aside,
    )


def _survey_of(task: str) -> Callable[[TaskModel, Sequence[Any], Sequence[Any]], Survey]:
    try:
        module = importlib.import_module(f"alembert.inspect.errors_{task}")
    except ModuleNotFoundError:
        raise BadSetting(
            f"There is no error atlas for the task {task}. See its scores with `alembert evaluate`."
        ) from None
    found: Callable[[TaskModel, Sequence[Any], Sequence[Any]], Survey] = module.survey
    return found
