"""What a CRF has learnt about neighbouring tags, for decoding: best paths, probabilities, and their temperature.

numpy alone, texts of any length. Each place costs one vectorised step over all pairs of tags. Viterbi works with sums
of scores. The probabilities work with products that are scaled at each place, which is several times faster than sums
of logarithms.

A temperature divides the scores of whole paths, so that the best path stays the best. `fit_temperature` finds the one
at which the right paths are most likely: the slope of their likelihood is the score that a path has on average less
that of the right one, and the average is carried along with the sums over all paths (a derivative in forward mode).
Texts go through together, place by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting
from alembert.tasks.metrics.calibration import solve_temperature

# P places, C tags


TagIds = npt.NDArray[np.int64]
_SchemeName = Literal["bio", "bioes"]
ScoreArray = npt.NDArray[np.floating[Any]]
_Flags = npt.NDArray[np.bool_]
_PREFIXES: Final = {"bio": "BI", "bioes": "BIES"}
FORBIDDEN_SCORE: Final = -1e9
"""Below any sum of scores: a path breaks the rules only if all paths do, and then as rarely as possible."""
_SEARCH_MARGIN: Final = 8
"""Places on each side of an illegal move among which a better one is looked for first."""
_FORBIDDEN_FACTOR, _LEAST_FACTOR = 1e-100, 1e-90
"""The same among probabilities, and what any legal move is worth: next to nothing, yet no sum is ever zero."""


@dataclass(frozen=True, eq=False)
class AllowedTransitions:
    """Which moves a labelling scheme allows."""

    transitions: _Flags
    """(from, to)."""
    start: _Flags
    """Tags that a text may begin with."""
    end: _Flags
    """Tags that a text may end with."""


def build_allowed_transitions(labels: Sequence[str], scheme: _SchemeName) -> AllowedTransitions:
    """Mark which tags may follow each other.

    >>> build_allowed_transitions(["O", "B-x", "I-x"], "bio").transitions.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    """
    prefixes = np.array([_prefix(label, scheme) for label in labels])
    types = np.array([label[2:] for label in labels])
    opens_C = np.isin(prefixes, ["B", "I"])
    goes_on_C = np.isin(prefixes, ["I", "E"])
    may_stop_C = ~opens_C | (scheme == "bio")
    same_CC = types[:, None] == types
    transitions_CC = np.where(goes_on_C, opens_C[:, None] & same_CC, may_stop_C[:, None])
    return AllowedTransitions(transitions_CC, ~goes_on_C, may_stop_C)


def _prefix(label: str, scheme: _SchemeName) -> str:
    if scheme not in _PREFIXES:
        raise BadSetting(f"There is no tagging scheme {scheme!r}; expected one of {', '.join(_PREFIXES)}.")
    if label == "O" or (label[1:2] == "-" and label[0] in _PREFIXES[scheme]):
        return label[0]
    prefixes = ", ".join(f"{prefix}-..." for prefix in _PREFIXES[scheme])
    raise BadSetting(f"{label!r} is no tag of the scheme {scheme}; expected O, {prefixes}.")


def viterbi_decode(
    emissions_PC: ScoreArray,
    transitions_CC: ScoreArray,
    start_C: ScoreArray,
    end_C: ScoreArray,
    legal: AllowedTransitions,
) -> npt.NDArray[np.int64]:
    """Return the legal path with the highest score."""
    emissions_PC = np.asarray(emissions_PC, np.float64)
    if not len(emissions_PC):
        return np.empty(0, np.int64)
    # Rows are the tags that a step leads to: the best of a row is found in one stretch of memory.
    moves_CC = np.ascontiguousarray(np.where(legal.transitions, transitions_CC, FORBIDDEN_SCORE).T)
    came_from_PC = np.empty(emissions_PC.shape, np.int64)
    every_tag = np.arange(len(moves_CC))
    best_C = np.where(legal.start, start_C, FORBIDDEN_SCORE) + emissions_PC[0]
    for place in range(1, len(emissions_PC)):
        reached_CC = moves_CC + best_C
        before_C = reached_CC.argmax(1, out=came_from_PC[place])
        best_C = reached_CC[every_tag, before_C] + emissions_PC[place]
    return _backtrace(came_from_PC, int((best_C + np.where(legal.end, end_C, FORBIDDEN_SCORE)).argmax()))


def _backtrace(came_from_PC: npt.NDArray[np.int64], last: int) -> npt.NDArray[np.int64]:
    path = [last]
    for came_from_C in came_from_PC[:0:-1]:
        path.append(int(came_from_C[path[-1]]))
    return np.array(path[::-1], np.int64)


def find_best_path(emissions_PC: ScoreArray, legal: AllowedTransitions) -> npt.NDArray[np.int64]:
    """Return the legal path with the highest sum of emissions: of log-probabilities, if places are independent.

    The best tags of single places nearly always make a legal path, and then nothing has to be searched. Else the places
    around their illegal moves are searched, as if any tag could stand at the borders. No path does better there, and
    none does better than the best tags elsewhere; so if both fit together they are the best path.
    """
    best_P: npt.NDArray[np.int64] = emissions_PC.argmax(1)
    wrong = _find_violations(best_P, legal)
    if not len(wrong):
        return best_P
    window = slice(max(0, wrong[0] - _SEARCH_MARGIN), wrong[-1] + _SEARCH_MARGIN)
    anywhere = np.ones_like(legal.start)
    start = legal.start if window.start == 0 else anywhere
    end = legal.end if window.stop >= len(best_P) else anywhere
    best_P[window] = _decode_without_transitions(
        emissions_PC[window], AllowedTransitions(legal.transitions, start, end)
    )
    return _decode_without_transitions(emissions_PC, legal) if len(_find_violations(best_P, legal)) else best_P


def find_best_paths(emissions_WC: ScoreArray, lengths: Sequence[int], legal: AllowedTransitions) -> TagIds:
    """Return the paths of `find_best_path` for texts that stand one after the other."""
    best_W: npt.NDArray[np.int64] = emissions_WC.argmax(1)
    lengths_B = np.asarray(lengths, np.int64)
    ends_B = np.cumsum(lengths_B)
    wrong_W = _find_violations(best_W, legal, (ends_B - lengths_B)[lengths_B > 0])
    for text in np.unique(np.searchsorted(ends_B, wrong_W, side="right")).tolist():
        words = slice(ends_B[text] - lengths_B[text], ends_B[text])
        best_W[words] = find_best_path(emissions_WC[words], legal)
    return best_W


def _decode_without_transitions(emissions_PC: ScoreArray, legal: AllowedTransitions) -> npt.NDArray[np.int64]:
    """Search the best path where all legal moves cost nothing."""
    count = len(legal.start)
    return viterbi_decode(emissions_PC, np.zeros((count, count)), np.zeros(count), np.zeros(count), legal)


def _find_violations(
    path_P: npt.NDArray[np.int64], legal: AllowedTransitions, starts_B: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.int64]:
    """Name the places that must not come after the one before, begin a text or end it, in their order."""
    if not len(path_P):
        return path_P
    starts_B = np.zeros(1, np.int64) if starts_B is None else starts_B
    last_B = np.append(starts_B[1:], len(path_P)) - 1
    is_wrong_P = ~legal.transitions[np.roll(path_P, 1), path_P]
    is_wrong_P[starts_B] = ~legal.start[path_P[starts_B]]
    is_wrong_P[last_B] |= ~legal.end[path_P[last_B]]
    return np.flatnonzero(is_wrong_P)


def compute_marginals(
    emissions_PC: ScoreArray,
    transitions_CC: ScoreArray,
    start_C: ScoreArray,
    end_C: ScoreArray,
    legal: AllowedTransitions,
) -> npt.NDArray[np.float64]:
    """Return the probability of each tag at each place (P, C), over all legal paths."""
    emissions_PC = np.asarray(emissions_PC, np.float64)
    if not len(emissions_PC):
        return np.empty((0, len(legal.start)))
    factors_PC = np.exp(emissions_PC - emissions_PC.max(1, keepdims=True))
    moves_CC = to_factors(transitions_CC, legal.transitions)
    forward_PC = _forward_sums(factors_PC, moves_CC, to_factors(start_C, legal.start))
    backward_PC = _forward_sums(factors_PC[::-1], moves_CC.T, to_factors(end_C, legal.end))[::-1]
    joint_PC = forward_PC * factors_PC * backward_PC
    found: npt.NDArray[np.float64] = joint_PC / joint_PC.sum(1, keepdims=True)
    return found


def to_factors(scores: ScoreArray, legal: _Flags) -> npt.NDArray[np.float64]:
    """Turn scores of moves into factors, the largest of which is 1."""
    factors = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return np.where(legal, np.maximum(factors, _LEAST_FACTOR), _FORBIDDEN_FACTOR)


def _forward_sums(
    factors_PC: npt.NDArray[np.float64], moves_CC: npt.NDArray[np.float64], start_C: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Sum over all paths that come to each place, without its own emission; each place is scaled to the sum of 1."""
    reached_PC = np.empty_like(factors_PC)
    reached_C = start_C
    for place, factors_C in enumerate(factors_PC):
        reached_PC[place] = reached_C / reached_C.sum()
        reached_C = (reached_PC[place] * factors_C) @ moves_CC
    return reached_PC


# B texts, P places, C tags


_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CrfDecoder:
    """Scores of moves between tags, and of tags at both ends."""

    transitions_CC: ScoreArray
    start_C: ScoreArray
    end_C: ScoreArray

    def decode(self, emissions_PC: ScoreArray, legal: AllowedTransitions) -> TagIds:
        """Find the best legal path."""
        return viterbi_decode(emissions_PC, self.transitions_CC, self.start_C, self.end_C, legal)

    def marginals(self, emissions_PC: ScoreArray, legal: AllowedTransitions, temperature: float) -> _Floats:
        """Compute the probability of each tag at each place."""
        return compute_marginals(emissions_PC / temperature, *self.scaled(temperature), legal)

    def scaled(self, temperature: float) -> tuple[ScoreArray, ScoreArray, ScoreArray]:
        """Return the scores of moves, starts and ends at a temperature."""
        return self.transitions_CC / temperature, self.start_C / temperature, self.end_C / temperature

    def fit_temperature(
        self, emissions: Sequence[ScoreArray], right: Sequence[TagIds], legal: AllowedTransitions
    ) -> float:
        """Find the temperature at which the right paths are most likely; 1 if there are none."""
        texts = [(np.asarray(e, np.float64), path) for e, path in zip(emissions, right, strict=True) if len(e)]
        if not texts:
            return 1.0
        texts.sort(key=lambda text: -len(text[0]))  # those that go on stand first at every place
        moves = self._written_out(legal)
        scored = sum(moves.score(e, path) for e, path in texts)
        return solve_temperature(lambda scale: moves.expected([e for e, _ in texts], scale) - scored)

    def _written_out(self, legal: AllowedTransitions) -> _PathScores:
        parts = zip(
            (self.transitions_CC, self.start_C, self.end_C),
            (legal.transitions, legal.start, legal.end),
            strict=True,
        )
        return _PathScores(*(np.where(allowed, part, FORBIDDEN_SCORE).astype(np.float64) for part, allowed in parts))


@dataclass(frozen=True, eq=False)
class _PathScores:
    """The scores of a path, with those of illegal moves far below all others."""

    between_CC: _Floats
    start_C: _Floats
    end_C: _Floats

    def score(self, emissions_PC: _Floats, path_P: TagIds) -> float:
        moves = self.between_CC[path_P[:-1], path_P[1:]].sum()
        ends = self.start_C[path_P[0]] + self.end_C[path_P[-1]]
        return float(emissions_PC[np.arange(len(path_P)), path_P].sum() + moves + ends)

    def expected(self, emissions: Sequence[_Floats], scale: float) -> float:
        """Compute what paths score on average if all scores are multiplied by `scale`, added over texts, longest first."""
        lengths_B = np.array([len(each) for each in emissions])
        mean_BC = self.start_C + np.stack([each[0] for each in emissions])
        weight_BC = scale * mean_BC
        for place in range(1, lengths_B[0]):
            here = slice(0, int((lengths_B > place).sum()))
            own_BC = np.stack([each[place] for each in emissions[here]])
            shares_BCC, total_BC = _softmax_and_logsumexp(weight_BC[here, :, None] + scale * self.between_CC)
            reached_BC = (shares_BCC * (mean_BC[here, :, None] + self.between_CC)).sum(1)
            weight_BC[here], mean_BC[here] = total_BC + scale * own_BC, reached_BC + own_BC
        shares_BC, _ = _softmax_and_logsumexp(weight_BC + scale * self.end_C)
        return float((shares_BC * (mean_BC + self.end_C)).sum())


def _softmax_and_logsumexp(logarithms: npt.NDArray[Any]) -> tuple[_Floats, _Floats]:
    """Return what each has of the sum over the second axis, and the logarithm of that sum."""
    highest = logarithms.max(1, keepdims=True)
    powers = np.exp(logarithms - highest)
    total = powers.sum(1, keepdims=True)
    return powers / total, (highest + np.log(total)).squeeze(1)
