"""Where the labels of points in a plot stand so that none covers another: greedy, by the least cost.

In: points, the width of each label (two lines high), what should stay visible, and the frame. Out: a box for each label.
Eight points in one place can be told apart; there is no promise for dozens.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

LINE: Final = 14
"""Height of a line of text."""
_LETTER, _WIDE = 6.8, 12.5
"""Width of a letter, on the safe side, and of a Chinese character."""
_ASIDE: Final = (5, 30, 90, 180)
_STEPS: Final = 22
"""How far a label may be from its point: to the side, in pixels, and up or down, in lines."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def shared(self, other: Box) -> float:
        """Give the area that two boxes have in common."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)

    def nearest(self, point: Point) -> Point:
        """Give the point of the box that is nearest to another.

        >>> Box(0, 0, 10, 10).nearest((15, 4))
        (10, 4)
        """
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


def text_width(text: str) -> float:
    """Guess how wide a line is when it is drawn."""
    return sum(_WIDE if unicodedata.east_asian_width(letter) in "WF" else _LETTER for letter in text)


def place_labels(
    points: Sequence[Point],
    radii: Sequence[float],
    widths: Sequence[float],
    bars: Sequence[Box],
    frame: Box,
) -> list[Box]:
    """Choose a box for the label of each point, the highest points first; `bars` should stay visible."""
    discs = [Box(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    dots = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    placed: dict[int, Box] = {}
    for number in sorted(range(len(points)), key=lambda n: points[n][1]):
        taken = [([frame], -1000.0), (list(placed.values()), 1000.0), (dots, 20.0), (bars, 2.0), (discs, 0.5)]
        choices = _around(points[number], radii[number], widths[number])
        placed[number] = min(choices, key=partial(_cost, points[number], points, taken))
    return [placed[number] for number in range(len(points))]


def _around(point: Point, radius: float, width: float) -> Iterator[Box]:
    """Offer boxes to the right, to the left, above and below, near ones first."""
    (x, y), height = point, 2 * LINE
    for step in sorted(range(-_STEPS, _STEPS + 1), key=abs):
        top = y - LINE + step * LINE
        for aside in _ASIDE:
            for left in (x + radius + aside, x - radius - aside - width):
                yield Box(left, top, left + width, top + height)
    for top in (y - radius - 4 - height, y + radius + 4):
        yield Box(x - width / 2, top, x + width / 2, top + height)


def _cost(point: Point, points: Sequence[Point], taken: Sequence[tuple[Sequence[Box], float]], box: Box) -> float:
    hidden = sum(weight * box.shared(other) for others, weight in taken for other in others)
    away = math.dist(box.nearest(point), point)
    # A label that is nearer to another point would be read as the name of that one.
    astray = away - min(math.dist(box.nearest(other), other) for other in points)
    return hidden + away + 5 * astray
