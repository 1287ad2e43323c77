"""The error atlas as one HTML page that opens anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from alembert.inspect.errors import Atlas, Case
from alembert.inspect.marked_page import framed_text, marked
from alembert.inspect.marked_text import WHOLE, Run, State
from alembert.plots import legend
from alembert.plots import page as framed

NAMES: Final[dict[State, str]] = {
    "agreed": "right and guessed, same label",
    "other": "right and guessed, another label",
    "gold": "right (line below)",
    "guess": "guessed (line above)",
}
_COLOURS: Final[dict[State, int]] = {"agreed": 2, "other": 3, "gold": 4, "guess": 1}


def page(atlas: Atlas) -> str:
    """Return the page."""
    return framed("Errors", f"Errors of {atlas.model}", "\n".join(_body(atlas)))


def _body(atlas: Atlas) -> Iterator[str]:
    yield f"<p>{escape(headline(atlas))}</p>"
    for note in atlas.notes:
        yield f"<p>{escape(note)}</p>"
    for table in atlas.tables:
        yield f"<h2>{escape(table.title)}</h2>"
        yield table.html()
    yield "<h2>The worst examples</h2>"
    if any(case.marks for case in atlas.worst):
        yield legend({NAMES[state]: colour for state, colour in _COLOURS.items()})
    for number, case in enumerate(atlas.worst, 1):
        yield from _case(number, case)


def headline(atlas: Atlas) -> str:
    """Say what was looked at, in one sentence."""
    aside = f"; {len(atlas.set_aside):,} items were set aside" if atlas.set_aside else ""
    return f"{atlas.model}, task {atlas.task}, {atlas.examples:,} examples: {atlas.told}{aside}."


def _case(number: int, case: Case) -> Iterator[str]:
    yield f"<h3>{number}. {escape(case.where or case.id)}</h3>\n<p>{escape(case.told)}</p>"
    for place, text in enumerate(case.texts):
        yield framed_text(marked(text, case.marks, _colour) if place == 0 else escape(text[:WHOLE]))


def _colour(run: Run) -> int:
    return _COLOURS[run.state]
