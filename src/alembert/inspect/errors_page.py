"""The error atlas as one HTML page that opens anywhere.

A right entity has a line below it and a guess a line above it, each with its label, so that the two are told apart
without colours as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from alembert.inspect.errors import Atlas, Case
from alembert.inspect.marked_text import WHOLE, Mark, Run, State, excerpts, runs
from alembert.plots import COLOURS, legend
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
        shown = _marked(text, case.marks) if place == 0 else escape(text[:WHOLE])
        # Long words, or Chinese without spaces, must not widen the page.
        yield f'<div style="line-height:2.6;overflow-wrap:anywhere;white-space:pre-wrap">{shown}</div>'


def _marked(text: str, marks: tuple[Mark, ...]) -> str:
    parts = excerpts(text, marks)
    shown = ["".join(_run(run) for run in runs(text, marks, low, high)) for low, high in parts]
    before = "… " if parts[0][0] else ""
    after = " …" if parts[-1][1] < len(text) else ""
    return f"{before}{' … '.join(shown)}{after}"


def _run(run: Run) -> str:
    if run.state == "plain":
        return escape(run.text)
    colour = f"var(--{COLOURS[_COLOURS[run.state]]})"
    sides = {mark.side for mark in run.inside}
    below = f"border-bottom:3px solid {colour};" if "gold" in sides else ""
    above = f"border-top:3px double {colour};" if "guess" in sides else ""
    title = "; ".join(map(_told, run.inside))
    labels = "".join(_labels(run))
    style = f"{below}{above}color:{colour}"
    return f'<span style="{style}" title="{escape(title)}">{escape(run.text)}</span>{labels}'


def _told(mark: Mark) -> str:
    sure = "" if mark.score is None else f" ({mark.score:.2f})"
    side = "right" if mark.side == "gold" else "guessed"
    return f"{side}: {mark.label}{sure}, {mark.kind}"


def _labels(run: Run) -> Iterator[str]:
    """Write the labels of what ends here, right ones below and guesses above; the same label once."""
    gold = [mark.label for mark in run.closes if mark.side == "gold"]
    guess = [mark.label for mark in run.closes if mark.side == "guess" and mark.label not in gold]
    for tag, labels in (("sub", gold), ("sup", guess)):
        for label in labels:
            yield f'<{tag} style="font-size:.65rem;line-height:0">{escape(label)}</{tag}>'
