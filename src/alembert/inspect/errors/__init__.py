"""The errors of a fine-tuned model: their kinds, where they gather, and the worst examples.

In: a model and labelled files. Out: tables, and examples with what is right and what was guessed marked in them, for the
terminal, a page or JSON. Each task has an analysis of its own, in the module of its name. This is the one place, beside
predictions, where text of the user is shown.
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
from alembert.html import EntityMark, Html, MarkState, render_legend, render_page, render_text
from alembert.infer.scoring import read_gold
from alembert.inspect.tables import MAX_WHOLE_CHARACTERS, Table, render_excerpts
from alembert.tasks.example import Coverage

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, kw_only=True)
class ErrorCase:
    """An example that went wrong."""

    id: str
    where: str
    problem: str
    """What went wrong, in words."""
    texts: tuple[str, ...]
    marks: tuple[EntityMark, ...] = ()
    """Entities in the first text."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; marks with their text."""
        marks = [{**asdict(mark), "text": self.texts[0][mark.start : mark.end]} for mark in self.marks]
        return {"id": self.id, "where": self.where, "told": self.problem, "texts": self.texts, "marks": marks}


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """The errors of a model on some files."""

    model: str
    task: str
    examples: int
    summary: str
    """How much is wrong, in words."""
    tables: tuple[Table, ...]
    worst: tuple[ErrorCase, ...]
    notes: tuple[str, ...] = ()
    """What could not be found out, and why."""
    coverage: Coverage = field(default_factory=Coverage)
    set_aside: tuple[SetAside, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `--json`."""
        return {
            "model": self.model,
            "task": self.task,
            "examples": self.examples,
            "told": self.summary,
            "tables": {table.name: table.records() for table in self.tables},
            "worst": [case.to_dict() for case in self.worst],
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
    analyse = _load_analysis(model.task.name)
    reading = read_gold(model, [Path(path) for path in files], options or ReadOptions(), part)
    predictions = model.predict(reading.examples)
    analysis = analyse(model, reading.examples, predictions)
    scores = model.task.score(reading.examples, predictions)
    return ErrorReport(
        model=str(model.folder),
        task=model.task.name,
        examples=len(reading.examples),
        summary=analysis.summary,
        tables=analysis.tables,
        worst=analysis.cases[:top],
        notes=(*analysis.notes, *scores.notes),
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
    analyse: Callable[[TaskModel, Sequence[Any], Sequence[Any]], ErrorAnalysis] = module.analyse_errors
    return analyse


STATE_NAMES: Final[dict[MarkState, str]] = {
    "agreed": "right and guessed, same label",
    "other": "right and guessed, another label",
    "gold": "right (line below)",
    "guess": "guessed (line above)",
}
_COLOURS: Final[dict[MarkState, int]] = {"agreed": 2, "other": 3, "gold": 4, "guess": 1}


def render_errors_page(report: ErrorReport) -> str:
    return render_page("Errors", f"Errors of {report.model}", "\n".join(_body(report)))


def _body(report: ErrorReport) -> Iterator[str]:
    yield from (f"<p>{escape(line)}</p>" for line in (errors_headline(report), *report.notes))
    yield from (f"<h2>{escape(table.title)}</h2>\n{table.html()}" for table in report.tables)
    yield "<h2>The worst examples</h2>"
    if any(case.marks for case in report.worst):
        yield render_legend({STATE_NAMES[state]: colour for state, colour in _COLOURS.items()})
    for number, case in enumerate(report.worst, 1):
        yield from _case_section(number, case)


def errors_headline(report: ErrorReport) -> str:
    """Return one sentence on what was looked at and how much is wrong."""
    aside = f"; {len(report.set_aside):,} items were set aside" if report.set_aside else ""
    return f"{report.model}, task {report.task}, {report.examples:,} examples: {report.summary}{aside}."


def _case_section(number: int, case: ErrorCase) -> Iterator[str]:
    yield f"<h3>{number}. {escape(case.where or case.id)}</h3>\n<p>{escape(case.problem)}</p>"
    first, *others = case.texts
    yield render_text(render_excerpts(first, case.marks, lambda run: _COLOURS[run.state]))
    yield from (render_text(Html(escape(text[:MAX_WHOLE_CHARACTERS]))) for text in others)
