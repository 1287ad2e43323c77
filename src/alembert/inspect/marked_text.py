"""A text with what is right and what was guessed marked in it, cut into runs that a terminal or a page can colour.

Right answers stand in [brackets], guesses in {braces}, each followed by its label; where both end together with the same
label it is written once. So they can be told apart without colours.

>>> marks = [Mark(0, 13, "Disease", "gold", "boundary"), Mark(7, 13, "Disease", "guess", "boundary")]
>>> "".join(bracketed(run) for run in runs("breast cancer again", marks))
'[breast {cancer]}Disease again'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

Side = Literal["gold", "guess"]
State = Literal["plain", "agreed", "other", "gold", "guess"]
"""Of a stretch: no entity, both sides with the same label, both with different ones, only right, only guessed."""

WHOLE: Final = 1500
"""Characters up to which a text is shown whole; of longer ones what is around the errors."""
AROUND: Final = 120


@dataclass(frozen=True, slots=True)
class Mark:
    """An entity of one side, and what became of it."""

    start: int
    end: int
    label: str
    side: Side
    kind: str
    score: float | None = None
    """How sure the model is of a guess."""


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of text inside the same marks."""

    text: str
    inside: tuple[Mark, ...]
    opens: tuple[Mark, ...]
    closes: tuple[Mark, ...]

    @property
    def state(self) -> State:
        gold, guess = ({mark.label for mark in self.inside if mark.side == side} for side in ("gold", "guess"))
        if gold and guess:
            return "agreed" if gold & guess else "other"
        return "gold" if gold else "guess" if guess else "plain"


def runs(text: str, marks: Sequence[Mark], start: int = 0, end: int | None = None) -> Iterator[Run]:
    """Cut text[start:end] at the borders of marks."""
    end = len(text) if end is None else end
    here = [mark for mark in marks if mark.start < end and mark.end > start]
    borders = {border for mark in here for border in (mark.start, mark.end) if start < border < end}
    cuts = sorted({start, end, *borders})
    for low, high in pairwise(cuts):
        inside = tuple(mark for mark in here if mark.start <= low and mark.end >= high)
        yield Run(
            text[low:high],
            inside,
            tuple(mark for mark in inside if mark.start == low),
            tuple(mark for mark in inside if mark.end == high),
        )


def excerpts(text: str, marks: Sequence[Mark]) -> list[tuple[int, int]]:
    """Choose what to show: all of a short text, and what is around the errors of a long one."""
    if len(text) <= WHOLE:
        return [(0, len(text))]
    chosen: list[tuple[int, int]] = []
    for mark in sorted((mark for mark in marks if mark.kind != "right"), key=lambda mark: mark.start):
        low, high = _with_whole_marks(max(0, mark.start - AROUND), min(len(text), mark.end + AROUND), marks)
        if chosen and low <= chosen[-1][1]:
            chosen[-1] = (min(low, chosen[-1][0]), max(high, chosen[-1][1]))
        else:
            chosen.append((low, high))
    return chosen or [(0, WHOLE)]


def _with_whole_marks(low: int, high: int, marks: Sequence[Mark]) -> tuple[int, int]:
    touched = [mark for mark in marks if mark.start < high and mark.end > low]
    return min([low, *(mark.start for mark in touched)]), max([high, *(mark.end for mark in touched)])


def bracketed(run: Run) -> str:
    """Write a run with the brackets of the marks that begin and end at it."""
    opening, closing = brackets(run)
    return f"{opening}{run.text}{closing}"


def brackets(run: Run) -> tuple[str, str]:
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


def _sorted(marks: Sequence[Mark]) -> list[Mark]:
    return sorted(marks, key=lambda mark: (mark.side, -mark.end))
