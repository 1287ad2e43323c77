"""Masked sequences as runs of pieces for a terminal or a page, and the page with their counts.

Words are divided by spaces, in Chinese too, so that one can see what is masked as a whole; pieces of a word stand side
by side, with the `##` that WordPiece gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from typing import Final

from alembert.charts import build_bar_chart, render_figure
from alembert.html import (
    Html,
    PageSection,
    colour_name,
    render_beside,
    render_legend,
    render_page,
    render_table,
    render_text,
)
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
    """Group the pieces of a single sequence, or of A and B of a pair, without special tokens."""
    segments = groupby((p for p in sequence.pieces if not p.special), key=lambda piece: piece.segment)
    return [list(_groups(list(pieces))) for _, pieces in segments]


def _groups(pieces: Sequence[MaskedToken]) -> Iterator[MaskGroup]:
    numbers = _group_numbers(pieces)
    for _, members in groupby(zip(numbers, range(len(pieces)), strict=True), key=lambda pair: pair[0]):
        indices = [index for _, index in members]
        spaced = [(pieces[index], index > 0 and pieces[index].word) for index in indices]
        yield MaskGroup(pieces[indices[0]].entity is not None, tuple(_runs(spaced)))


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


def render_masks_page(report: MaskReport, heading: str, note: str) -> str:
    """Return the page; `note` says what was looked at."""
    return render_page("Masks", heading, f"<p>{escape(note)}</p>", list(_sections(report)))


def _sections(report: MaskReport) -> Iterator[PageSection]:
    keys = {ACTION_NAMES[mark]: colour for mark, colour in _COLOURS.items()}
    legend = render_legend({**keys, "entity (underlined)": _ENTITY})
    sequences = (
        part
        for number, sequence in enumerate(report.sequences, 1)
        for part in _render_sequence(number, sequence, report.labels)
    )
    yield PageSection("Sequences", "\n".join((legend, *sequences)))
    chart = build_bar_chart("Pieces of a unit", PIECE_BARS, {"units": report.statistics.histogram()})
    figure = render_figure(chart, "Share of the units to predict by their number of pieces")
    table = render_table((), report.statistics.rows(report.labels), {0, 1}, "counts")
    yield PageSection("Counts", render_beside(figure, table))


def _render_sequence(number: int, sequence: MaskedSequence, labels: tuple[str, str]) -> Iterator[str]:
    label = "" if sequence.label is None else f": {labels[sequence.label]}"
    yield f"<h3>Sequence {number}{escape(label)}</h3>"
    yield f"<p>Document {sequence.document}, {len(sequence.pieces)} tokens, {sequence.chosen} to predict</p>"
    segments = group_segments(sequence)
    for name, groups in zip("AB", segments, strict=False):
        title = f"<strong>{name}</strong> " if len(segments) > 1 else ""
        yield render_text(Html(title + "".join(map(_render_group, groups))))


def _render_group(group: MaskGroup) -> str:
    text = "".join(map(_render_run, group.runs))
    if not group.is_entity:
        return text
    space = " " * group.runs[0].spaced
    return f'{space}<span class="underlined {colour_name(_ENTITY)}">{text.removeprefix(" ")}</span>'


def _render_run(run: MaskRun) -> str:
    space = " " * run.spaced
    if run.mark is None:
        return f"{space}{escape(run.text)}"
    shown = f"{run.text} → {run.seen}" if run.mark == "random" else run.text
    colour = colour_name(_COLOURS[run.mark])
    return f'{space}<mark class="{colour}" title="{ACTION_NAMES[run.mark]}">{escape(shown)}</mark>'
