"""`alembert inspect why`: which words made a decision of a model, in the terminal or as a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from alembert.cli.options import MODEL_HELP, OUTPUT_PANEL, AsJson, OneTask, check_page, find_model, write_page
from alembert.errors import BadInput, BadSetting
from alembert.infer.explain.explain import choose_model_task, explain_decision
from alembert.infer.explain.page import render_explanations
from alembert.infer.explain.result import Explanation, Method
from alembert.infer.predictor_io import to_read_example
from alembert.infer.task_model import TaskModel
from alembert.terminal import escape_controls, print_json, read_stdin

_SPAN = re.compile(r"(\d+):(\d+)")


def why(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="A text as for `alembert predict`: parts of a pair are separated by a tab. - for stdin.",
        ),
    ],
    *,
    span: Annotated[
        str | None, typer.Option(metavar="START:END", help="Characters of the entity or answer to explain.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="Its type, or the label of the text.")] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="gradients (Checkpoints alone, and there by default) or occlusion."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Explain the same answer of a second model beside it.")
    ] = None,
    task: OneTask = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page.", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which words made a decision of a model, and how faithful that picture is."""
    check_page(out)
    place, given = parse_span(span), read_stdin().strip("\n") if text == "-" else text
    explanations = [_explain(model, given, place, label, method, task)]
    if against is not None:
        explanations.append(_explain_same(explanations[0], against, given, method, task))
    if out is not None:
        write_page(out, render_explanations(explanations))
    if as_json:
        first, *others = ({"model": each.model, "explanation": each.record()} for each in explanations)
        print_json({**first, "against": others[0]} if others else first)
    elif out is None:
        for each in explanations:
            print(*([each.model] if against is not None else []), *map(escape_controls, each.to_lines()), sep="\n")


def parse_span(span: str | None) -> tuple[int, int] | None:
    """Read START:END.

    >>> parse_span("0:8")
    (0, 8)
    """
    if span is None:
        return None
    match = _SPAN.fullmatch(span)
    if match is None or int(match[1]) >= int(match[2]):
        raise BadSetting(f"--span is {span!r}; expected START:END in characters, such as 0:8.")
    return int(match[1]), int(match[2])


def _explain(
    model: str, text: str, span: tuple[int, int] | None, label: str | None, method: str | None, task: str | None
) -> Explanation:
    opened, part = choose_model_task([TaskModel.open(find_model(model), task=task)], None)
    example = to_read_example(part.task, text, 1)
    chosen: Method | None = method  # type: ignore[assignment]
    return explain_decision(part, opened.engine, example, span=span, label=label, method=chosen, name=model)


def _explain_same(first: Explanation, model: str, text: str, method: str | None, task: str | None) -> Explanation:
    """Explain with a second model what was explained with the first; without the label if the second does not know it."""
    try:
        return _explain(model, text, first.span, first.label or None, method, task)
    except BadInput:
        return _explain(model, text, first.span, None, method, task)
