"""The best legal path of tags through a text, and how sure a CRF is of each tag; numpy alone, texts of any length.

Each place costs one vectorised step over all pairs of tags. Viterbi works with sums of scores. The probabilities work
with products that are scaled at each place, which is several times faster than sums of logarithms.
"""

# P places, C tags
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from alembert.errors import BadSetting

Scheme = Literal["bio", "bioes"]
Scores = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
_PREFIXES: Final = {"bio": "BI", "bioes": "BIES"}
FORBIDDEN: Final = -1e9
"""Below any sum of scores: a path breaks the rules only if all paths do, and then as rarely as possible."""
_AROUND: Final = 8
"""Places on each side of an illegal move among which a better one is looked for first."""
_FORBIDDEN_FACTOR, _LEAST_FACTOR = 1e-100, 1e-90
"""The same among probabilities, and what any legal move is worth: next to nothing, yet no sum is ever zero."""


@dataclass(frozen=True, eq=False)
class Legal:
    """Which moves a labelling scheme allows."""

    transitions: Flags
    """(from, to)."""
    start: Flags
    """Tags that a text may begin with."""
    end: Flags
    """Tags that a text may end with."""


def legal_moves(labels: Sequence[str], scheme: Scheme) -> Legal:
    """Tell which tags may follow each other.

    >>> legal_moves(["O", "B-x", "I-x"], "bio").transitions.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    """
    prefixes = np.array([_prefix(label, scheme) for label in labels])
    types = np.array([label[2:] for label in labels])
    opens_C = np.isin(prefixes, ["B", "I"])
    goes_on_C = np.isin(prefixes, ["I", "E"])
    may_stop_C = ~opens_C | (scheme == "bio")
    same_CC = types[:, None] == types
    transitions_CC = np.where(goes_on_C, opens_C[:, None] & same_CC, may_stop_C[:, None])
    return Legal(transitions_CC, ~goes_on_C, may_stop_C)


def _prefix(label: str, scheme: Scheme) -> str:
    if scheme not in _PREFIXES:
        raise BadSetting(f"There is no tagging scheme {scheme!r}; expected one of {', '.join(_PREFIXES)}.")
    if label == "O" or (label[1:2] == "-" and label[0] in _PREFIXES[scheme]):
        return label[0]
    known = ", ".join(f"{prefix}-..." for prefix in _PREFIXES[scheme])
    raise BadSetting(f"{label!r} is no tag of the scheme {scheme}; expected O, {known}.")


def viterbi(
    emissions_PC: Scores, transitions_CC: Scores, start_C: Scores, end_C: Scores, legal: Legal
) -> npt.NDArray[np.int64]:
    """Return the legal path with the highest score."""
    emissions_PC = np.asarray(emissions_PC, np.float64)
    if not len(emissions_PC):
        return np.empty(0, np.int64)
    # Rows are the tags that a step leads to: the best of a row is found in one stretch of memory.
    moves_CC = np.ascontiguousarray(np.where(legal.transitions, transitions_CC, FORBIDDEN).T)
    came_from_PC = np.empty(emissions_PC.shape, np.int64)
    every_tag = np.arange(len(moves_CC))
    best_C = np.where(legal.start, start_C, FORBIDDEN) + emissions_PC[0]
    for place in range(1, len(emissions_PC)):
        reached_CC = moves_CC + best_C
        before_C = reached_CC.argmax(1, out=came_from_PC[place])
        best_C = reached_CC[every_tag, before_C] + emissions_PC[place]
    return _traced(came_from_PC, int((best_C + np.where(legal.end, end_C, FORBIDDEN)).argmax()))


def _traced(came_from_PC: npt.NDArray[np.int64], last: int) -> npt.NDArray[np.int64]:
    path = [last]
    for came_from_C in came_from_PC[:0:-1]:
        path.append(int(came_from_C[path[-1]]))
    return np.array(path[::-1], np.int64)


def best_legal(emissions_PC: Scores, legal: Legal) -> npt.NDArray[np.int64]:
    """Return the legal path with the highest sum of emissions: of log-probabilities, if places are independent.

    The best tags of single places nearly always make a legal path, and then nothing has to be searched. Else the places
    around their illegal moves are searched, as if any tag could stand at the borders. No path does better there, and none does
    better than the best tags elsewhere; so if both fit together they are the best path.
    """
    best_P: npt.NDArray[np.int64] = emissions_PC.argmax(1)
    wrong = _illegal(best_P, legal)
    if not len(wrong):
        return best_P
    around = slice(max(0, wrong[0] - _AROUND), wrong[-1] + _AROUND)
    anywhere = np.ones_like(legal.start)
    start = legal.start if around.start == 0 else anywhere
    end = legal.end if around.stop >= len(best_P) else anywhere
    best_P[around] = _free(emissions_PC[around], Legal(legal.transitions, start, end))
    return _free(emissions_PC, legal) if len(_illegal(best_P, legal)) else best_P


def _free(emissions_PC: Scores, legal: Legal) -> npt.NDArray[np.int64]:
    """Search the best path where all legal moves cost nothing."""
    count = len(legal.start)
    return viterbi(emissions_PC, np.zeros((count, count)), np.zeros(count), np.zeros(count), legal)


def _illegal(path_P: npt.NDArray[np.int64], legal: Legal) -> npt.NDArray[np.int64]:
    """Name the places that must not come after the one before, begin the text or end it, in their order."""
    if not len(path_P):
        return path_P
    is_wrong_P = ~legal.transitions[np.roll(path_P, 1), path_P]
    is_wrong_P[0] = not legal.start[path_P[0]]
    is_wrong_P[-1] |= not legal.end[path_P[-1]]
    return np.flatnonzero(is_wrong_P)


def marginals(
    emissions_PC: Scores, transitions_CC: Scores, start_C: Scores, end_C: Scores, legal: Legal
) -> npt.NDArray[np.float64]:
    """Return the probability of each tag at each place (P, C), over all legal paths."""
    emissions_PC = np.asarray(emissions_PC, np.float64)
    if not len(emissions_PC):
        return np.empty((0, len(legal.start)))
    factors_PC = np.exp(emissions_PC - emissions_PC.max(1, keepdims=True))
    moves_CC = _factors(transitions_CC, legal.transitions)
    forward_PC = _reached(factors_PC, moves_CC, _factors(start_C, legal.start))
    backward_PC = _reached(factors_PC[::-1], moves_CC.T, _factors(end_C, legal.end))[::-1]
    joint_PC = forward_PC * factors_PC * backward_PC
    found: npt.NDArray[np.float64] = joint_PC / joint_PC.sum(1, keepdims=True)
    return found


def _factors(scores: Scores, legal: Flags) -> npt.NDArray[np.float64]:
    factors = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return np.where(legal, np.maximum(factors, _LEAST_FACTOR), _FORBIDDEN_FACTOR)


def _reached(
    factors_PC: npt.NDArray[np.float64], moves_CC: npt.NDArray[np.float64], start_C: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Sum over all paths that come to each place, without its own emission; each place is scaled to the sum of 1."""
    reached_PC = np.empty_like(factors_PC)
    reached_C = start_C
    for place, factors_C in enumerate(factors_PC):
        reached_PC[place] = reached_C / reached_C.sum()
        reached_C = (reached_PC[place] * factors_C) @ moves_CC
    return reached_PC
