"""A text with what is right and what was guessed marked in it, cut into runs that a terminal or a page can colour.

Right answers stand in [brackets], guesses in {braces}, each followed by its label; where both end together with the same
label it is written once. So they can be told apart without colours.

>>> marks = [EntityMark(0, 13, "Disease", "gold", "boundary"), EntityMark(7, 13, "Disease", "guess", "boundary")]
>>> "".join(format_run(run) for run in split_runs("breast cancer again", marks))
'[breast {cancer]}Disease again'

A text with right and guessed entities marked in it, for a page.

A right entity has a line below it and a guess a line above it, each with its label, so that the two are told apart
without colours as well. What the colours say is up to the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final, Literal

from alembert.html import COLOURS

MarkSide = Literal["gold", "guess"]
MarkState = Literal["plain", "agreed", "other", "gold", "guess"]
"""Of a stretch: no entity, both sides with the same label, both with different ones, only right, only guessed."""

MAX_WHOLE_CHARACTERS: Final = 1500
"""Characters up to which a text is shown whole; of longer ones what is around the errors."""
CONTEXT_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class EntityMark:
    """An entity of one side, and what became of it."""

    start: int
    end: int
    label: str
    side: MarkSide
    kind: str
    score: float | None = None
    """How sure the model is of a guess."""


@dataclass(frozen=True, slots=True)
class TextRun:
    """A stretch of text inside the same marks."""

    text: str
    inside: tuple[EntityMark, ...]
    opens: tuple[EntityMark, ...]
    closes: tuple[EntityMark, ...]

    @property
    def state(self) -> MarkState:
        gold, guess = ({mark.label for mark in self.inside if mark.side == side} for side in ("gold", "guess"))
        if gold and guess:
            return "agreed" if gold & guess else "other"
        return "gold" if gold else "guess" if guess else "plain"


def split_runs(text: str, marks: Sequence[EntityMark], start: int = 0, end: int | None = None) -> Iterator[TextRun]:
    """Cut text[start:end] at the borders of marks."""
    end = len(text) if end is None else end
    here = [mark for mark in marks if mark.start < end and mark.end > start]
    borders = {border for mark in here for border in (mark.start, mark.end) if start < border < end}
    cuts = sorted({start, end, *borders})
    for low, high in pairwise(cuts):
        inside = tuple(mark for mark in here if mark.start <= low and mark.end >= high)
        yield TextRun(
            text[low:high],
            inside,
            tuple(mark for mark in inside if mark.start == low),
            tuple(mark for mark in inside if mark.end == high),
        )


def choose_excerpts(text: str, marks: Sequence[EntityMark]) -> list[tuple[int, int]]:
    """Choose what to show: all of a short text, and what is around the errors of a long one."""
    if len(text) <= MAX_WHOLE_CHARACTERS:
        return [(0, len(text))]
    chosen: list[tuple[int, int]] = []
    for mark in sorted((mark for mark in marks if mark.kind != "right"), key=lambda mark: mark.start):
        low, high = _with_whole_marks(
            max(0, mark.start - CONTEXT_CHARACTERS), min(len(text), mark.end + CONTEXT_CHARACTERS), marks
        )
        if chosen and low <= chosen[-1][1]:
            chosen[-1] = (min(low, chosen[-1][0]), max(high, chosen[-1][1]))
        else:
            chosen.append((low, high))
    return chosen or [(0, MAX_WHOLE_CHARACTERS)]


def _with_whole_marks(low: int, high: int, marks: Sequence[EntityMark]) -> tuple[int, int]:
    touched = [mark for mark in marks if mark.start < high and mark.end > low]
    return min([low, *(mark.start for mark in touched)]), max([high, *(mark.end for mark in touched)])


def format_run(run: TextRun) -> str:
    """Write a run with the brackets of the marks that begin and end at it."""
    opening, closing = run_brackets(run)
    return f"{opening}{run.text}{closing}"


def run_brackets(run: TextRun) -> tuple[str, str]:
    """Give what stands before and after a run."""
    opening = "".join("[" if mark.side == "gold" else "{" for mark in _sorted(run.opens))
    guessed = [mark.label for mark in run.closes if mark.side == "guess"]
    closing = []
    for mark in run.closes:
        if mark.side == "gold" and mark.label in guessed:
            guessed.remove(mark.label)
            closing.append(f"]}}{mark.label}")
        elif mark.side == "gold":
            closing.append(f"]{mark.label}")
    return opening, "".join([*closing, *(f"}}{label}" for label in guessed)])


def _sorted(marks: Sequence[EntityMark]) -> list[EntityMark]:
    return sorted(marks, key=lambda mark: (mark.side, -mark.end))


ColourFunction = Callable[[TextRun], int]
"""Gives the number of a colour of the page's style for a stretch inside marks."""


def render_marked_text(text: str, marks: Sequence[EntityMark], colour: ColourFunction) -> str:
    """Write a text with its marks; of a long one, what is around the errors."""
    parts = choose_excerpts(text, marks)
    shown = ["".join(_run(run, colour) for run in split_runs(text, marks, low, high)) for low, high in parts]
    before = "… " if parts[0][0] else ""
    after = " …" if parts[-1][1] < len(text) else ""
    return f"{before}{' … '.join(shown)}{after}"


def render_text_box(shown: str, language: str = "") -> str:
    """Give a marked text its room; long words, or Chinese without spaces, must not widen the page."""
    spoken = f' lang="{escape(language)}"' if language else ""
    return f'<div{spoken} style="line-height:2.6;overflow-wrap:anywhere;white-space:pre-wrap">{shown}</div>'


def _run(run: TextRun, colour: ColourFunction) -> str:
    if run.state == "plain":
        return escape(run.text)
    ink = f"var(--{COLOURS[colour(run) % len(COLOURS)]})"
    sides = {mark.side for mark in run.inside}
    below = f"border-bottom:3px solid {ink};" if "gold" in sides else ""
    above = f"border-top:3px double {ink};" if "guess" in sides else ""
    title = "; ".join(map(_tooltip, run.inside))
    labels = "".join(_labels(run))
    style = f"{below}{above}color:{ink}"
    return f'<span style="{style}" title="{escape(title)}">{escape(run.text)}</span>{labels}'


def _tooltip(mark: EntityMark) -> str:
    sure = "" if mark.score is None else f" ({mark.score:.2f})"
    side = "right" if mark.side == "gold" else "guessed"
    return f"{side}: {mark.label}{sure}, {mark.kind}"


def _labels(run: TextRun) -> Iterator[str]:
    """Write the labels of what ends here, right ones below and guesses above; the same label once."""
    gold = [mark.label for mark in run.closes if mark.side == "gold"]
    guess = [mark.label for mark in run.closes if mark.side == "guess" and mark.label not in gold]
    for tag, labels in (("sub", gold), ("sup", guess)):
        for label in labels:
            yield f'<{tag} style="font-size:.65rem;line-height:0">{escape(label)}</{tag}>'
