"""Masked sequences as text: pieces put together as far as they share their fate, for a terminal or a page.

Words are divided by spaces, in Chinese too, so that one can see what is masked as a whole; pieces of a word stand side
by side, with the `##` that WordPiece gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from alembert.inspect.masks import Mark, MaskedSequence, Piece


@dataclass(frozen=True)
class Run:
    """Neighbours of one unit with the same mark, or without any."""

    text: str
    seen: str
    """What stands in the place of `text`, for the mark `random`, whose runs have one piece."""
    mark: Mark | None
    unit: int | None
    spaced: bool
    """Whether a space comes before it."""


@dataclass(frozen=True)
class Group:
    """An entity, or what stands between two."""

    is_entity: bool
    runs: tuple[Run, ...]


def sides(sequence: MaskedSequence) -> list[list[Group]]:
    """Give the text of a single sequence, or A and B of a pair, without special tokens."""
    found = groupby((p for p in sequence.pieces if not p.special), key=lambda piece: piece.segment)
    return [list(_groups(list(pieces))) for _, pieces in found]


def _groups(pieces: Sequence[Piece]) -> Iterator[Group]:
    numbers = _numbered(pieces)
    for _, members in groupby(zip(numbers, range(len(pieces)), strict=True), key=lambda pair: pair[0]):
        places = [place for _, place in members]
        spaced = [(pieces[place], place > 0 and pieces[place].word) for place in places]
        yield Group(pieces[places[0]].entity is not None, tuple(_runs(spaced)))


def _numbered(pieces: Sequence[Piece]) -> Iterator[int]:
    """Number the groups that pieces belong to."""
    number, was_inside = 0, False
    for piece in pieces:
        is_inside = piece.entity is not None
        number += piece.entity == "first" or is_inside != was_inside
        was_inside = is_inside
        yield number


def _runs(pieces: Sequence[tuple[Piece, bool]]) -> list[Run]:
    runs: list[Run] = []
    for piece, spaced in pieces:
        last = runs[-1] if runs else None
        if last and last.mark != "random" and (last.mark, last.unit) == (piece.mark, piece.unit):
            runs[-1] = replace(last, text=f"{last.text}{' ' * spaced}{piece.text}")
        else:
            runs.append(Run(piece.text, piece.seen, piece.mark, piece.unit, spaced))
    return runs
