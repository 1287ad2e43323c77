"""A text with right and guessed entities marked in it, for a page.

A right entity has a line below it and a guess a line above it, each with its label, so that the two are told apart
without colours as well. What the colours say is up to the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from alembert.inspect.marked_text import Mark, Run, excerpts, runs
from alembert.plots import COLOURS

Colour = Callable[[Run], int]
"""Gives the number of a colour of the page's style for a stretch inside marks."""


def marked(text: str, marks: Sequence[Mark], colour: Colour) -> str:
    """Write a text with its marks; of a long one, what is around the errors."""
    parts = excerpts(text, marks)
    shown = ["".join(_run(run, colour) for run in runs(text, marks, low, high)) for low, high in parts]
    before = "… " if parts[0][0] else ""
    after = " …" if parts[-1][1] < len(text) else ""
    return f"{before}{' … '.join(shown)}{after}"


def framed_text(shown: str, language: str = "") -> str:
    """Give a marked text its room; long words, or Chinese without spaces, must not widen the page."""
    spoken = f' lang="{escape(language)}"' if language else ""
    return f'<div{spoken} style="line-height:2.6;overflow-wrap:anywhere;white-space:pre-wrap">{shown}</div>'


def _run(run: Run, colour: Colour) -> str:
    if run.state == "plain":
        return escape(run.text)
    ink = f"var(--{COLOURS[colour(run) % len(COLOURS)]})"
    sides = {mark.side for mark in run.inside}
    below = f"border-bottom:3px solid {ink};" if "gold" in sides else ""
    above = f"border-top:3px double {ink};" if "guess" in sides else ""
    title = "; ".join(map(_told, run.inside))
    labels = "".join(_labels(run))
    style = f"{below}{above}color:{ink}"
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
