"""What a CRF has learnt about neighbouring tags, for decoding: best paths, probabilities, and their temperature.

A temperature divides the scores of whole paths, so that the best path stays the best. `fit_temperature` finds the one at
which the right paths are most likely: the slope of their likelihood is the score that a path has on average less that of the
right one, and the average is carried along with the sums over all paths (a derivative in forward mode). Texts go through
together, place by place. numpy alone.
"""

# B texts, P places, C tags
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from alembert.tasks.metrics.calibration import temperature_at
from alembert.tasks.viterbi import FORBIDDEN, Legal, Scores, marginals, viterbi

Tags = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TagPath:
    """Scores of moves between tags, and of tags at both ends."""

    transitions_CC: Scores
    start_C: Scores
    end_C: Scores

    def best(self, emissions_PC: Scores, legal: Legal) -> Tags:
        """Give the best legal path."""
        return viterbi(emissions_PC, self.transitions_CC, self.start_C, self.end_C, legal)

    def sure(self, emissions_PC: Scores, legal: Legal, temperature: float) -> Floats:
        """Give the probability of each tag at each place."""
        moves, start, end = (part / temperature for part in (self.transitions_CC, self.start_C, self.end_C))
        return marginals(emissions_PC / temperature, moves, start, end, legal)

    def fit_temperature(self, emissions: Sequence[Scores], right: Sequence[Tags], legal: Legal) -> float:
        """Find the temperature at which the right paths are most likely; 1 if there are none."""
        texts = [(np.asarray(e, np.float64), path) for e, path in zip(emissions, right, strict=True) if len(e)]
        if not texts:
            return 1.0
        texts.sort(key=lambda text: -len(text[0]))  # those that go on stand first at every place
        moves = self._written_out(legal)
        scored = sum(moves.score(e, path) for e, path in texts)
        return temperature_at(lambda scale: moves.expected([e for e, _ in texts], scale) - scored)

    def _written_out(self, legal: Legal) -> _Moves:
        parts = zip(
            (self.transitions_CC, self.start_C, self.end_C),
            (legal.transitions, legal.start, legal.end),
            strict=True,
        )
        return _Moves(*(np.where(allowed, part, FORBIDDEN).astype(np.float64) for part, allowed in parts))


@dataclass(frozen=True, eq=False)
class _Moves:
    """The scores of a path, with those of illegal moves far below all others."""

    between_CC: Floats
    start_C: Floats
    end_C: Floats

    def score(self, emissions_PC: Floats, path_P: Tags) -> float:
        moves = self.between_CC[path_P[:-1], path_P[1:]].sum()
        ends = self.start_C[path_P[0]] + self.end_C[path_P[-1]]
        return float(emissions_PC[np.arange(len(path_P)), path_P].sum() + moves + ends)

    def expected(self, emissions: Sequence[Floats], scale: float) -> float:
        """Give what paths score on average if all scores are multiplied by `scale`, added over texts, longest first."""
        lengths_B = np.array([len(each) for each in emissions])
        mean_BC = self.start_C + np.stack([each[0] for each in emissions])
        weight_BC = scale * mean_BC
        for place in range(1, lengths_B[0]):
            here = slice(0, int((lengths_B > place).sum()))
            own_BC = np.stack([each[place] for each in emissions[here]])
            shares_BCC, total_BC = _shares(weight_BC[here, :, None] + scale * self.between_CC)
            reached_BC = (shares_BCC * (mean_BC[here, :, None] + self.between_CC)).sum(1)
            weight_BC[here], mean_BC[here] = total_BC + scale * own_BC, reached_BC + own_BC
        shares_BC, _ = _shares(weight_BC + scale * self.end_C)
        return float((shares_BC * (mean_BC + self.end_C)).sum())


def _shares(logarithms: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Give what each has of the sum over the second axis, and the logarithm of that sum."""
    highest = logarithms.max(1, keepdims=True)
    powers = np.exp(logarithms - highest)
    total = powers.sum(1, keepdims=True)
    return powers / total, (highest + np.log(total)).squeeze(1)
