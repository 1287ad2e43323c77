"""Best paths and probabilities of many texts at once; numpy alone.

The recursions of `crf` cost a few calls of numpy a place, whatever the number of texts. Here all texts take a step
together: the first places of all texts stand side by side, then the second places of those that have one, and so on,
the longest text first. Nothing is padded. Paths are exactly those of `viterbi_decode`; probabilities are those of
`compute_marginals` but for the last digits.
"""

# B texts, W places of all texts, C tags
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alembert.tasks.tag.crf import FORBIDDEN_SCORE, AllowedTransitions, ScoreArray, TagIds, to_factors

ChainScores = tuple[ScoreArray, ScoreArray, ScoreArray]
"""Of moves (from, to), and of tags at the start and at the end."""
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedTexts:
    """Texts that stand one after the other, in an order in which they take their steps together."""

    forward_W: _Ints
    """Where the places stand, from the first places of all texts to the last of the longest text."""
    backward_W: _Ints
    """The same from the last places of all texts to the first."""
    stops: list[int]
    """Where the places of each step end."""

    @classmethod
    def of(cls, lengths: Sequence[int]) -> PackedTexts:
        """Arrange texts of these lengths.

        >>> packed = PackedTexts.of([1, 3])
        >>> packed.forward_W.tolist(), packed.backward_W.tolist(), packed.stops
        ([1, 0, 2, 3], [3, 0, 2, 1], [2, 3, 4])
        """
        lengths_B = np.asarray(lengths, np.int64)
        by_length_B = np.argsort(-lengths_B, kind="stable")
        starts_B = (np.cumsum(lengths_B) - lengths_B)[by_length_B]
        lengths_B = lengths_B[by_length_B]
        text_W = np.repeat(np.arange(len(lengths_B)), lengths_B)
        place_W = np.arange(len(text_W)) - np.repeat(np.cumsum(lengths_B) - lengths_B, lengths_B)
        order_W = np.argsort(place_W, kind="stable")
        text_W, place_W = text_W[order_W], place_W[order_W]
        starts_W = starts_B[text_W]
        stops: list[int] = np.cumsum(np.bincount(place_W)).tolist() if len(place_W) else []
        return cls(starts_W + place_W, starts_W + lengths_B[text_W] - 1 - place_W, stops)

    def steps(self) -> list[tuple[int, int]]:
        """Return where each step begins and ends."""
        return list(zip([0, *self.stops], self.stops, strict=False))


def viterbi_decode_batch(
    emissions_WC: ScoreArray,
    lengths: Sequence[int],
    scores: ChainScores,
    legal: AllowedTransitions,
) -> TagIds:
    """Return the legal paths with the highest score, of texts that stand one after the other."""
    transitions_CC, start_C, end_C = scores
    packed = PackedTexts.of(lengths)
    moves_CC = np.where(legal.transitions, transitions_CC, FORBIDDEN_SCORE)
    # Tags are lines: a step adds and compares long stretches of memory.
    scores_CW = np.ascontiguousarray(np.asarray(emissions_WC, np.float64)[packed.forward_W].T)
    steps = packed.steps()
    for (before, _), (begin, end) in zip([(0, 0), *steps], steps, strict=False):
        if begin == 0:
            scores_CW[:, :end] += np.where(legal.start, start_C, FORBIDDEN_SCORE)[:, None]
        else:
            reached_CCB = moves_CC[:, :, None] + scores_CW[:, None, before : before + end - begin]
            scores_CW[:, begin:end] += reached_CCB.max(0)
    best_W = np.empty(len(emissions_WC), np.int64)
    best_W[packed.forward_W] = _backtrace(scores_CW, moves_CC, np.where(legal.end, end_C, FORBIDDEN_SCORE), steps)
    return best_W


def _backtrace(scores_CW: _Floats, moves_CC: _Floats, end_C: _Floats, steps: Sequence[tuple[int, int]]) -> TagIds:
    """Follow the best paths back: the move that was best is found again, for the tags on the path alone."""
    path_W = np.empty(scores_CW.shape[1], np.int64)
    to_CC = np.ascontiguousarray(moves_CC.T)
    next_B = np.empty(0, np.int64)
    for begin, end in reversed(steps):
        scores_BC, going_on = scores_CW[:, begin:end].T, len(next_B)
        path_W[begin : begin + going_on] = (to_CC[next_B] + scores_BC[:going_on]).argmax(1)
        path_W[begin + going_on : end] = (scores_BC[going_on:] + end_C).argmax(1)
        next_B = path_W[begin:end]
    return path_W


def compute_marginals_batch(
    emissions_WC: ScoreArray,
    lengths: Sequence[int],
    scores: ChainScores,
    legal: AllowedTransitions,
) -> _Floats:
    """Return the probability of each tag at each place (W, C), over all legal paths of its text."""
    transitions_CC, start_C, end_C = scores
    packed = PackedTexts.of(lengths)
    emissions_WC = np.asarray(emissions_WC, np.float64)
    factors_WC = np.exp(emissions_WC - emissions_WC.max(1, keepdims=True))
    moves_CC = to_factors(transitions_CC, legal.transitions)
    joint_WC = factors_WC.copy()
    for order_W, between_CC, first_C in (
        (packed.forward_W, moves_CC, to_factors(start_C, legal.start)),
        (packed.backward_W, np.ascontiguousarray(moves_CC.T), to_factors(end_C, legal.end)),
    ):
        joint_WC[order_W] *= _forward_sums(factors_WC[order_W], between_CC, first_C, packed.steps())
    found: _Floats = joint_WC / joint_WC.sum(1, keepdims=True)
    return found


def _forward_sums(
    factors_WC: _Floats, moves_CC: _Floats, start_C: _Floats, steps: Sequence[tuple[int, int]]
) -> _Floats:
    """Sum over all paths that come to each place, without its own emission; each place is scaled to the sum of 1."""
    reached_WC = np.empty_like(factors_WC)
    coming_BC = np.broadcast_to(start_C, (steps[0][1] if steps else 0, len(start_C)))
    for begin, end in steps:
        reached_BC = coming_BC[: end - begin]
        reached_WC[begin:end] = reached_BC / reached_BC.sum(1, keepdims=True)
        coming_BC = (reached_WC[begin:end] * factors_WC[begin:end]) @ moves_CC
    return reached_WC
