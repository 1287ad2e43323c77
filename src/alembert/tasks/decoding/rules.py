"""What may come next in a text, and how one of the possible pieces is chosen.

In: a row of scores over the vocabulary (logits or log probabilities) and the tokens so far. Out: the scores with
penalties and bans, the probabilities to draw from, or a token. All is numpy and works on one row, in double precision.
The order of the steps and their borders are those of transformers: repetition penalty (CTRL, Keskar et al. 2019),
n-grams that may not repeat, the least length, then temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
"""One number for each piece of the vocabulary."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """Which pieces may follow, whatever the method that chooses among them."""

    end: int
    """The token that ends a text. If the rules leave nothing else it is allowed, so there is always a way on."""
    never: npt.NDArray[np.intp]
    """Ids that are no text."""
    repetition_penalty: float = 1.0
    """Above 1: what has occurred becomes less likely."""
    no_repeat: int | None = None
    """Length of the n-grams that may not occur twice."""
    shortest: int = 0
    """New tokens that a text has at least, before it ends."""

    def apply(self, scores: Scores, ids: Sequence[int], written: int = 0) -> Scores:
        """Return the scores of what may follow the ids, the last of which are `written`; minus infinity: it may not."""
        ruled = scores.copy()
        if self.repetition_penalty != 1:
            self._discourage(ruled, ids)
        ruled[self._repeats(ids)] = -np.inf
        ruled[self.never] = -np.inf
        if written < self.shortest:
            end, ruled[self.end] = ruled[self.end], -np.inf
            ruled[self.end] = -np.inf if np.isfinite(ruled).any() else end
        return ruled

    def _discourage(self, scores: Scores, ids: Sequence[int]) -> None:
        seen = np.unique(np.array(ids, np.intp))
        before = scores[seen]
        # Division would make a negative score larger.
        scores[seen] = np.where(before < 0, before * self.repetition_penalty, before / self.repetition_penalty)

    def _repeats(self, ids: Sequence[int]) -> list[int]:
        if self.no_repeat is None:
            return []
        tail = len(ids) - self.no_repeat + 1
        begun = list(ids[max(0, tail) :])
        starts = (i for i in range(tail) if list(ids[i : i + len(begun)]) == begun)
        return [token for i in starts if (token := ids[i + len(begun)]) != self.end]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampler:
    """Draws tokens at random, with a generator of its own."""

    rng: np.random.Generator
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __call__(self, scores: Scores) -> int:
        """Draw a token by its probability."""
        reached = np.cumsum(self.probabilities(scores))
        return int(np.searchsorted(reached / reached[-1], self.rng.random(), side="right"))

    def probabilities(self, scores: Scores) -> Scores:
        """Return what the sampler draws from; it sums to one."""
        scaled = scores / self.temperature
        if self.top_k is not None:
            place = max(0, scaled.size - self.top_k)
            scaled[scaled < np.partition(scaled, place)[place]] = -np.inf
        likely = np.exp(log_softmax(scaled))
        return likely if self.top_p is None else _nucleus(likely, self.top_p)


def most_likely(scores: Scores) -> int:
    """Return the token with the highest score, of equals the first."""
    return int(np.argmax(scores))


def log_softmax(scores: npt.NDArray[np.floating]) -> Scores:
    """Return the log probabilities that logits stand for."""
    shifted = np.asarray(scores, dtype=np.float64) - np.max(scores)
    logs: Scores = shifted - np.log(np.exp(shifted).sum())
    return logs


def _nucleus(likely: Scores, share: float) -> Scores:
    """Keep the likeliest pieces that together reach the share."""
    order = np.argsort(-likely, kind="stable")
    reached = np.cumsum(likely[order])
    kept = likely.copy()
    kept[order[reached - likely[order] >= share]] = 0
    kept /= kept.sum()
    return kept
