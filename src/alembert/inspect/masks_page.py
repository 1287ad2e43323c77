"""Masked sequences and their counts as one HTML page that opens anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from alembert.inspect.mask_runs import Group, Run, sides
from alembert.inspect.mask_statistics import BARS
from alembert.inspect.masks import Mark, MaskedSequence, Survey
from alembert.plots import COLOURS, bar_chart, figure, legend
from alembert.plots import page as framed

NAMES: Final[dict[Mark, str]] = {"mask": "masked", "random": "replaced", "kept": "kept"}
_COLOURS: Final[dict[Mark, int]] = {"mask": 4, "random": 1, "kept": 2}
_ENTITY: Final = 3


def page(survey: Survey, heading: str, note: str) -> str:
    """Return the page; `note` says what was looked at."""
    return framed("Masks", heading, "\n".join([f"<p>{escape(note)}</p>", *_body(survey)]))


def _body(survey: Survey) -> Iterator[str]:
    keys = {NAMES[mark]: colour for mark, colour in _COLOURS.items()}
    yield legend({**keys, "entity (underlined)": _ENTITY})
    for number, sequence in enumerate(survey.sequences, 1):
        yield from _sequence(number, sequence, survey.labels)
    yield "<h2>Counts</h2>"
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in survey.statistics.rows(survey.labels)
    )
    yield f'<div class="wide"><table class="prose">\n{rows}\n</table></div>'
    plot = bar_chart("Pieces of a unit", BARS, {"units": survey.statistics.histogram()})
    yield figure(plot, "Share of the units to predict by their number of pieces")


def _sequence(number: int, sequence: MaskedSequence, labels: tuple[str, str]) -> Iterator[str]:
    label = "" if sequence.label is None else f": {labels[sequence.label]}"
    yield f"<h2>Sequence {number}{escape(label)}</h2>"
    yield f"<p>Document {sequence.document}, {len(sequence.pieces)} tokens, {sequence.chosen} to predict</p>"
    found = sides(sequence)
    for name, side in zip("AB", found, strict=False):
        title = f"<strong>{name}</strong> " if len(found) > 1 else ""
        # Long words, or a side of Chinese without spaces, must not widen the page.
        yield f'<div style="line-height:2;overflow-wrap:anywhere">{title}{"".join(map(_group, side))}</div>'


def _group(group: Group) -> str:
    text = "".join(map(_run, group.runs))
    if not group.is_entity:
        return text
    space = " " * group.runs[0].spaced
    line = f"border-bottom:2px solid var(--{COLOURS[_ENTITY]})"
    return f'{space}<span style="{line}">{text.removeprefix(" ")}</span>'


def _run(run: Run) -> str:
    space = " " * run.spaced
    if run.mark is None:
        return f"{space}{escape(run.text)}"
    shown = f"{run.text} → {run.seen}" if run.mark == "random" else run.text
    style = f"background:var(--{COLOURS[_COLOURS[run.mark]]});color:var(--paper);padding:0 .2em"
    return f'{space}<mark style="{style}" title="{NAMES[run.mark]}">{escape(shown)}</mark>'
