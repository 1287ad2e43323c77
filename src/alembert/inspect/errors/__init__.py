"""The error atlas: what kinds of errors a fine-tuned model makes, where they gather, and the worst examples.

In: a model and labelled files. Out: tables, and examples with what is right and what was guessed marked in them. Each task
has its own survey, in `errors_<task>`. This is the one place, beside predictions, where text of the user is shown.

The error atlas as one HTML page that opens anywhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.corpus.readers.contract import ReadOptions, SetAside
from alembert.errors import BadSetting
from alembert.html import render_legend
from alembert.html import render_page as framed
from alembert.infer.scoring import read_gold
from alembert.inspect.marked import (
    MAX_WHOLE_CHARACTERS,
    EntityMark,
    MarkState,
    TextRun,
    render_marked_text,
    render_text_box,
)
from alembert.inspect.tables import Table
from alembert.tasks.example import Coverage

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, kw_only=True)
class ErrorCase:
    """An example that went wrong."""

    id: str
    where: str
    told: str
    """What went wrong, in words."""
    texts: tuple[str, ...]
    marks: tuple[EntityMark, ...] = ()
    """Entities in the first text."""

    def as_json(self) -> dict[str, Any]:
        """Give plain values; marks with their text."""
        record = asdict(self)
        record["marks"] = [{**asdict(mark), "text": self.texts[0][mark.start : mark.end]} for mark in self.marks]
        return record


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """The errors of a model on some files."""

    model: str
    task: str
    examples: int
    told: str
    """How much is wrong, in words."""
    tables: tuple[Table, ...]
    worst: tuple[ErrorCase, ...]
    notes: tuple[str, ...] = ()
    """What could not be told, and why."""
    coverage: Coverage = field(default_factory=Coverage)
    set_aside: tuple[SetAside, ...] = ()

    def to_dict(self) -> dict[str, Any]:
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
class ErrorAnalysis:
    """What a task finds out about its errors."""

    summary: str
    """How much is wrong, in words."""
    tables: tuple[Table, ...]
    cases: tuple[ErrorCase, ...]
    """All examples with errors, the worst first."""
    notes: tuple[str, ...] = ()


def find_errors(
    model: TaskModel,
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    top: int = 20,
) -> ErrorReport:
    """Find and sort the errors of a model on labelled files."""
    survey = _load_analysis(model.task.name)
    reading = read_gold(model, [Path(path) for path in files], options or ReadOptions(), part)
    predictions = model.predict(reading.examples)
    found = survey(model, reading.examples, predictions)
    scores = model.task.score(reading.examples, predictions)
    return ErrorReport(
        model=str(model.folder),
        task=model.task.name,
        examples=len(reading.examples),
        told=found.summary,
        tables=found.tables,
        worst=found.cases[:top],
        notes=(*found.notes, *scores.notes),
        coverage=scores.coverage,
        set_aside=reading.set_aside,
    )


def _load_analysis(task: str) -> Callable[[TaskModel, Sequence[Any], Sequence[Any]], ErrorAnalysis]:
    try:
        module = importlib.import_module(f"alembert.inspect.errors.{task}")
    except ModuleNotFoundError:
        raise BadSetting(
            f"There is no error atlas for the task {task}. See its scores with `alembert evaluate`."
        ) from None
    found: Callable[[TaskModel, Sequence[Any], Sequence[Any]], ErrorAnalysis] = module.analyse_errors
    return found


STATE_NAMES: Final[dict[MarkState, str]] = {
    "agreed": "right and guessed, same label",
    "other": "right and guessed, another label",
    "gold": "right (line below)",
    "guess": "guessed (line above)",
}
_COLOURS: Final[dict[MarkState, int]] = {"agreed": 2, "other": 3, "gold": 4, "guess": 1}


def render_errors_page(atlas: ErrorReport) -> str:
    """Return the page."""
    return framed("Errors", f"Errors of {atlas.model}", "\n".join(_body(atlas)))


def _body(atlas: ErrorReport) -> Iterator[str]:
    yield f"<p>{escape(errors_headline(atlas))}</p>"
    for note in atlas.notes:
        yield f"<p>{escape(note)}</p>"
    for table in atlas.tables:
        yield f"<h2>{escape(table.title)}</h2>"
        yield table.html()
    yield "<h2>The worst examples</h2>"
    if any(case.marks for case in atlas.worst):
        yield render_legend({STATE_NAMES[state]: colour for state, colour in _COLOURS.items()})
    for number, case in enumerate(atlas.worst, 1):
        yield from _case(number, case)


def errors_headline(atlas: ErrorReport) -> str:
    """Say what was looked at, in one sentence."""
    aside = f"; {len(atlas.set_aside):,} items were set aside" if atlas.set_aside else ""
    return f"{atlas.model}, task {atlas.task}, {atlas.examples:,} examples: {atlas.told}{aside}."


def _case(number: int, case: ErrorCase) -> Iterator[str]:
    yield f"<h3>{number}. {escape(case.where or case.id)}</h3>\n<p>{escape(case.told)}</p>"
    for place, text in enumerate(case.texts):
        yield render_text_box(
            render_marked_text(text, case.marks, _colour) if place == 0 else escape(text[:MAX_WHOLE_CHARACTERS])
        )


def _colour(run: TextRun) -> int:
    return _COLOURS[run.state]
