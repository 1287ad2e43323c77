"""Masked sequences and their counts as one HTML page that opens anywhere.

Masked sequences as text: pieces put together as far as they share their fate, for a terminal or a page.

Words are divided by spaces, in Chinese too, so that one can see what is masked as a whole; pieces of a word stand side
by side, with the `##` that WordPiece gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from typing import Final

from alembert.html import COLOURS, draw_bar_chart, render_figure, render_legend
from alembert.html import render_page as framed
from alembert.inspect.masks import PIECE_BARS, MaskAction, MaskedSequence, MaskedToken, MaskReport


@dataclass(frozen=True)
class MaskRun:
    """Neighbours of one unit with the same mark, or without any."""

    text: str
    seen: str
    """What stands in the place of `text`, for the mark `random`, whose runs have one piece."""
    mark: MaskAction | None
    unit: int | None
    spaced: bool
    """Whether a space comes before it."""


@dataclass(frozen=True)
class MaskGroup:
    """An entity, or what stands between two."""

    is_entity: bool
    runs: tuple[MaskRun, ...]


def group_segments(sequence: MaskedSequence) -> list[list[MaskGroup]]:
    """Give the text of a single sequence, or A and B of a pair, without special tokens."""
    found = groupby((p for p in sequence.pieces if not p.special), key=lambda piece: piece.segment)
    return [list(_groups(list(pieces))) for _, pieces in found]


def _groups(pieces: Sequence[MaskedToken]) -> Iterator[MaskGroup]:
    numbers = _group_numbers(pieces)
    for _, members in groupby(zip(numbers, range(len(pieces)), strict=True), key=lambda pair: pair[0]):
        places = [place for _, place in members]
        spaced = [(pieces[place], place > 0 and pieces[place].word) for place in places]
        yield MaskGroup(pieces[places[0]].entity is not None, tuple(_runs(spaced)))


def _group_numbers(pieces: Sequence[MaskedToken]) -> Iterator[int]:
    """Number the groups that pieces belong to."""
    number, was_inside = 0, False
    for piece in pieces:
        is_inside = piece.entity is not None
        number += piece.entity == "first" or is_inside != was_inside
        was_inside = is_inside
        yield number


def _runs(pieces: Sequence[tuple[MaskedToken, bool]]) -> list[MaskRun]:
    runs: list[MaskRun] = []
    for piece, spaced in pieces:
        last = runs[-1] if runs else None
        if last and last.mark != "random" and (last.mark, last.unit) == (piece.mark, piece.unit):
            runs[-1] = replace(last, text=f"{last.text}{' ' * spaced}{piece.text}")
        else:
            runs.append(MaskRun(piece.text, piece.seen, piece.mark, piece.unit, spaced))
    return runs


ACTION_NAMES: Final[dict[MaskAction, str]] = {"mask": "masked", "random": "replaced", "kept": "kept"}
_COLOURS: Final[dict[MaskAction, int]] = {"mask": 4, "random": 1, "kept": 2}
_ENTITY: Final = 3


def render_masks_page(survey: MaskReport, heading: str, note: str) -> str:
    """Return the page; `note` says what was looked at."""
    return framed("Masks", heading, "\n".join([f"<p>{escape(note)}</p>", *_body(survey)]))


def _body(survey: MaskReport) -> Iterator[str]:
    keys = {ACTION_NAMES[mark]: colour for mark, colour in _COLOURS.items()}
    yield render_legend({**keys, "entity (underlined)": _ENTITY})
    for number, sequence in enumerate(survey.sequences, 1):
        yield from _sequence(number, sequence, survey.labels)
    yield "<h2>Counts</h2>"
    rows = "\n".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in survey.statistics.rows(survey.labels)
    )
    yield f'<div class="wide"><table class="prose">\n{rows}\n</table></div>'
    plot = draw_bar_chart("Pieces of a unit", PIECE_BARS, {"units": survey.statistics.histogram()})
    yield render_figure(plot, "Share of the units to predict by their number of pieces")


def _sequence(number: int, sequence: MaskedSequence, labels: tuple[str, str]) -> Iterator[str]:
    label = "" if sequence.label is None else f": {labels[sequence.label]}"
    yield f"<h2>Sequence {number}{escape(label)}</h2>"
    yield f"<p>Document {sequence.document}, {len(sequence.pieces)} tokens, {sequence.chosen} to predict</p>"
    found = group_segments(sequence)
    for name, side in zip("AB", found, strict=False):
        title = f"<strong>{name}</strong> " if len(found) > 1 else ""
        # Long words, or a side of Chinese without spaces, must not widen the page.
        yield f'<div style="line-height:2;overflow-wrap:anywhere">{title}{"".join(map(_group, side))}</div>'


def _group(group: MaskGroup) -> str:
    text = "".join(map(_run, group.runs))
    if not group.is_entity:
        return text
    space = " " * group.runs[0].spaced
    line = f"border-bottom:2px solid var(--{COLOURS[_ENTITY]})"
    return f'{space}<span style="{line}">{text.removeprefix(" ")}</span>'


def _run(run: MaskRun) -> str:
    space = " " * run.spaced
    if run.mark is None:
        return f"{space}{escape(run.text)}"
    shown = f"{run.text} → {run.seen}" if run.mark == "random" else run.text
    style = f"background:var(--{COLOURS[_COLOURS[run.mark]]});color:var(--paper);padding:0 .2em"
    return f'{space}<mark style="{style}" title="{ACTION_NAMES[run.mark]}">{escape(shown)}</mark>'
