"""Features of the tokens of a row, as rows of an embedding table, and how matches among them are dropped in training.

A model that always sees the matches of a lexicon learns to lean on them. So in training each match is dropped with a
probability of its own, in a way that depends on the seed of the draw alone.
"""

# T tokens, F features, K matches
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def stack_features(features: Sequence[TokenFeatures | None], lengths: Sequence[int]) -> list[IntArray] | None:
    """Return the features of rows, each of so many tokens, equally many for each token; none: no row has any.

    Row 0 of the table, which is always zero, fills up.
    """
    columns = max((one.rows_TF.shape[1] for one in features if one is not None), default=0)
    if not columns:
        return None
    stacked = [np.zeros((length, columns), np.int64) for length in lengths]
    for rows_TF, one in zip(stacked, features, strict=True):
        if one is not None:
            rows_TF[:, : one.rows_TF.shape[1]] = one.rows_TF
    return stacked


def _no_matches() -> IntArray:
    return np.zeros((0, 3), np.int64)


@dataclass(frozen=True, eq=False)
class TokenFeatures:
    """The features of each token of a row."""

    rows_TF: IntArray
    """Rows of the embedding table."""
    nothing_F: IntArray
    """The rows of a token that there is nothing to say of."""
    matches_K3: IntArray = field(default_factory=_no_matches)
    """First token, end and feature of each match that may be dropped."""
    dropout_K: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """The probability with which training drops each match."""

    def cut(self, start: int, end: int) -> TokenFeatures:
        """Return the features of a window of tokens, with a special token before and after it."""
        rows_TF = np.concatenate((self.nothing_F[None], self.rows_TF[start:end], self.nothing_F[None]))
        inside_K = (self.matches_K3[:, 0] < end) & (self.matches_K3[:, 1] > start)
        matches_K3 = self.matches_K3[inside_K]
        matches_K3[:, :2] = matches_K3[:, :2].clip(start, end) - start + 1
        return TokenFeatures(rows_TF, self.nothing_F, matches_K3, self.dropout_K[inside_K])

    def drop_matches(self, seed: int) -> TokenFeatures:
        """Drop matches at random."""
        dropped_K = np.random.default_rng(seed).random(len(self.dropout_K)) < self.dropout_K
        if not dropped_K.any():
            return self
        rows_TF = self.rows_TF.copy()
        for first, end, feature in self.matches_K3[dropped_K].tolist():
            rows_TF[first:end, feature] = self.nothing_F[feature]
        return TokenFeatures(rows_TF, self.nothing_F, self.matches_K3, self.dropout_K)
