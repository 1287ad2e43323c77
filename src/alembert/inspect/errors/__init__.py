"""The errors of a fine-tuned model: their kinds, where they gather, and the worst examples.

In: a model and labelled files. Out: tables, and examples with what is right and what was guessed marked in them, for the
terminal, a page or JSON. Each task has an analysis of its own, in the module of its name. This is the one place, beside
predictions, where text of the user is shown. For the worst examples the words that made the error are found by occlusion,
as far as that costs no more than half of what the predictions cost, unless more is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.corpus.readers.contract import ReadOptions, SetAside
from alembert.errors import BadSetting, UserError
from alembert.html import (
    EntityMark,
    Html,
    MarkState,
    PageSection,
    render_details,
    render_legend,
    render_page,
    render_text,
    render_tiles,
)
from alembert.infer.evaluate import ConfusionMatrix
from alembert.infer.explain.explain import estimate_tokens, explain_decision
from alembert.infer.explain.result import EXPLANATION_STYLE, Explanation, render_explanation_summary
from alembert.infer.scoring import read_gold
from alembert.inspect.row_charts import render_drawn_table
from alembert.inspect.tables import (
    MAX_WHOLE_CHARACTERS,
    Table,
    describe_source,
    render_confusion,
    render_excerpts,
    short_name,
    shorten_paths,
)
from alembert.tasks.example import Coverage, Example
from alembert.text.sentences import Span

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


MAX_EXPLAINED: Final = 20
"""Examples that are explained at most if no number is given."""
_SMALL_BUDGET: Final = 10_000
"""Tokens that may be computed for explanations of few examples, which cost less than to start the program."""


@dataclass(frozen=True, kw_only=True)
class ErrorQuestion:
    """What is asked to learn why an example went wrong."""

    example: Example
    span: Span | None = None
    label: str | None = None


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
    question: ErrorQuestion | None = None
    why: Explanation | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; marks with their text."""
        marks = [{**asdict(mark), "text": self.texts[0][mark.start : mark.end]} for mark in self.marks]
        why = None if self.why is None else self.why.record()
        return {
            "id": self.id, "where": self.where, "told": self.problem, "texts": self.texts, "marks": marks, "why": why
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """The errors of a model on some files."""

    model: str
    task: str
    files: tuple[str, ...] = ()
    examples: int
    summary: str
    """How much is wrong, in words."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """What the summary is about, in numbers."""
    tables: tuple[Table, ...]
    confusion: ConfusionMatrix | None = None
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
            "files": list(self.files),
            "examples": self.examples,
            "told": self.summary,
            "totals": dict(self.totals),
            "confusion": None if self.confusion is None else asdict(self.confusion),
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
    totals: Mapping[str, int] = field(default_factory=dict)
    confusion: ConfusionMatrix | None = None
    """What is taken for what; none unless there are several labels."""
    notes: tuple[str, ...] = ()


def find_errors(
    model: TaskModel,
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    top: int = 20,
    explain: int | None = 0,
) -> ErrorReport:
    """Find and sort the errors of a model on labelled files.

    `explain` is the number of worst examples to explain; none: as many as half the work of the predictions allows.
    """
    analyse = _load_analysis(model.task.name)
    reading = read_gold(model, [Path(path) for path in files], options or ReadOptions(), part)
    predictions = model.predict(reading.examples)
    analysis = analyse(model, reading.examples, predictions)
    scores = model.task.score(reading.examples, predictions)
    worst, explained = _explain_worst(model, analysis.cases[:top], explain, scores.coverage.tokens)
    return ErrorReport(
        model=str(model.folder),
        task=model.task.name,
        examples=len(reading.examples),
        files=tuple(map(str, files)),
        summary=analysis.summary,
        totals=analysis.totals,
        tables=analysis.tables,
        confusion=analysis.confusion,
        worst=worst,
        notes=(*analysis.notes, *scores.notes, *explained),
        coverage=scores.coverage,
        set_aside=reading.set_aside,
    )


def _explain_worst(
    model: TaskModel, cases: Sequence[ErrorCase], count: int | None, tokens: int
) -> tuple[tuple[ErrorCase, ...], tuple[str, ...]]:
    """Explain the worst cases, and say if half the work of the predictions (`tokens`) was too little for all."""
    left = float("inf") if count is not None else max(tokens / 2, _SMALL_BUDGET)
    asked = cases[: MAX_EXPLAINED if count is None else count]
    explained, skipped = [], 0
    for case in asked:
        cost = 0 if case.question is None else estimate_tokens(model.only, model.engine, case.question.example)
        if cost > left:
            skipped += 1
            explained.append(case)
        else:
            left -= cost
            explained.append(replace(case, why=_explain_case(model, case.question)))
    note = (
        f"{len(asked) - skipped} of the {len(asked)} worst examples are explained, as many as half of the work of the "
        f"predictions allows; --why {len(asked)} explains all."
    )
    return (*explained, *cases[len(asked) :]), (note,) if skipped else ()


def _explain_case(model: TaskModel, question: ErrorQuestion | None) -> Explanation | None:
    """Explain an error; none: its task, or this answer, has none to compare with."""
    if question is None:
        return None
    try:
        return explain_decision(
            model.only,
            model.engine,
            question.example,
            span=question.span,
            label=question.label,
            method="occlusion",
        )
    except UserError:
        return None


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
_CONFUSIONS: Final = "confusions"
"""The table that the confusion matrix has in another form."""
_COLOURS: Final[dict[MarkState, int]] = {"agreed": 2, "other": 3, "gold": 4, "guess": 1}


_OPEN_CASES: Final = 5
"""Examples that the page shows at once; the others open at a click."""


def render_errors_page(report: ErrorReport) -> str:
    title = f"Errors of {short_name(report.model)}"
    lead = [
        EXPLANATION_STYLE if any(case.why for case in report.worst) else "",
        f"<p>{escape(describe_source(report.model, report.task, report.files))}</p>",
        render_tiles({"examples": f"{report.examples:,}"} | {name: f"{n:,}" for name, n in report.totals.items()}),
        *(f"<p>{escape(line)}</p>" for line in (_summary_sentence(report), *report.notes)),
    ]
    return render_page(title, title, "\n".join(lead), list(_sections(report)))


def _sections(report: ErrorReport) -> Iterator[PageSection]:
    """Yield the kinds of errors, what is taken for what, the worst examples, and then everything else."""
    # A group that holds everything says nothing that the numbers above do not say.
    tables = [table for table in report.tables if len(table.rows) > 1 and table.name != _CONFUSIONS]
    first = [table for table in tables if table.stacked] or tables[:1]
    yield from map(_table_section, first)
    if report.confusion:
        yield PageSection("What is taken for what", _confusion_body(report, report.confusion))
    if report.worst:
        yield PageSection("The worst examples", "\n".join(_worst(report)))
    yield from (_table_section(table) for table in tables if table not in first)


def _table_section(table: Table) -> PageSection:
    return PageSection(table.title, render_drawn_table(table))


def _confusion_body(report: ErrorReport, confusion: ConfusionMatrix) -> str:
    text = "<p>Rows are right labels, columns are guesses; the shade is the share of the row.</p>"
    pairs = (render_details(table.title, table.html()) for table in report.tables if table.name == _CONFUSIONS)
    return "\n".join((text, render_confusion(confusion), *pairs))


def _worst(report: ErrorReport) -> Iterator[str]:
    if any(case.marks for case in report.worst):
        yield render_legend({STATE_NAMES[state]: colour for state, colour in _COLOURS.items()})
    if any(case.why for case in report.worst):
        yield (
            "<p>Why: words with a solid line speak for what the model answered, or for not answering what was right; those "
            "with a dashed line speak against it.</p>"
        )
    cases = [_render_case(number, case, report.files) for number, case in enumerate(report.worst, 1)]
    yield from cases[:_OPEN_CASES]
    if more := cases[_OPEN_CASES:]:
        yield render_details(f"{len(more)} more", "\n".join(more))


def errors_headline(report: ErrorReport) -> str:
    """Return one sentence on what was looked at and how much is wrong."""
    return f"{report.model}, task {report.task}, {_summary_sentence(report)}"


def _summary_sentence(report: ErrorReport) -> str:
    aside = f"; {len(report.set_aside):,} items were set aside" if report.set_aside else ""
    return f"{report.examples:,} examples: {report.summary}{aside}."


def _render_case(number: int, case: ErrorCase, files: Sequence[str]) -> str:
    first, *others = case.texts
    texts = [render_excerpts(first, case.marks, lambda run: _COLOURS[run.state])]
    texts += [Html(escape(text[:MAX_WHOLE_CHARACTERS])) for text in others]
    where = escape(shorten_paths(case.where or case.id, files))
    body = "\n".join(map(render_text, texts))
    why = "" if case.why is None else f"\n{render_explanation_summary(case.why)}"
    return f"<article>\n<h3>{number}. {where}</h3>\n<p>{escape(case.problem)}</p>\n{body}{why}\n</article>"
