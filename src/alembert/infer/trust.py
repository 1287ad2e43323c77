"""How far a model's own confidence can be trusted, and what is gained by leaving unsure answers to a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from alembert.tasks.judged import Judged
from alembert.tasks.metrics.calibration import Abstaining, Bin, abstaining, ece, reliability

_MOST_POINTS: Final = 101
"""Points of a curve that are kept: a test set has as many thresholds as answers."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What remains if answers below a threshold are withheld."""

    threshold: float
    coverage: float
    """Share of the answers that remains."""
    accuracy: float
    """Share of those that is right; of entities it is called precision."""


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How well confidence fits."""

    what: str
    """What an answer is, in the plural."""
    answers: int
    ece: float
    """How far confidence is from accuracy, on average over answers."""
    bins: tuple[Bin, ...]
    curve: tuple[Kept, ...]
    """Most sure first."""

    def kept_at(self, accuracy: float) -> Kept | None:
        """Find the point that withholds least at this accuracy or better; none if no threshold reaches it."""
        good = [point for point in self.curve if point.accuracy >= accuracy]
        return good[-1] if good else None


def trust_of(answers: Judged) -> Trust:
    """Compute how well the confidence of answers fits."""
    bins = reliability(answers.sure_N, answers.right_N)
    return Trust(
        what=answers.what,
        answers=len(answers),
        ece=ece(bins),
        bins=tuple(bins),
        curve=_points(abstaining(answers.sure_N, answers.right_N)),
    )


def _points(found: Abstaining) -> tuple[Kept, ...]:
    """Keep points at even steps of coverage, and the last one, which withholds nothing."""
    wanted = np.linspace(0, 1, _MOST_POINTS)
    places = np.unique(np.searchsorted(found.coverage, wanted).clip(max=len(found.coverage) - 1))
    return tuple(
        Kept(
            threshold=float(found.threshold[place]),
            coverage=float(found.coverage[place]),
            accuracy=float(found.accuracy[place]),
        )
        for place in places
    )
