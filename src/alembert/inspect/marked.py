"""Right and guessed entities in a text: the excerpts worth showing, and brackets for terminals.

Right answers stand in [brackets], guesses in {braces}, each followed by its label; where both end together with the same
label it is written once. So they can be told apart without colours.

>>> marks = [EntityMark(0, 13, "Disease", "gold", "boundary"), EntityMark(7, 13, "Disease", "guess", "boundary")]
>>> "".join(format_run(run) for run in split_runs("breast cancer again", marks))
'[breast {cancer]}Disease again'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from alembert.html import ColourFunction, EntityMark, Html, TextRun, render_runs, split_runs

MAX_WHOLE_CHARACTERS: Final = 1500
"""Characters up to which a text is shown whole; of longer ones what is around the errors."""
CONTEXT_CHARACTERS: Final = 120


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
    """Return what stands before and after a run."""
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


def render_excerpts(text: str, marks: Sequence[EntityMark], colour: ColourFunction) -> Html:
    """Return a text with its marks for a page; of a long one, what is around the errors."""
    excerpts = choose_excerpts(text, marks)
    shown = [render_runs(split_runs(text, marks, low, high), colour) for low, high in excerpts]
    before = "… " if excerpts[0][0] else ""
    after = " …" if excerpts[-1][1] < len(text) else ""
    return Html(f"{before}{' … '.join(shown)}{after}")
