"""Spans scored as pairs of tokens (Efficient GlobalPointer, Su et al. 2022), nested ones too.

A token's vector holds a query and a key, both turned by the token's position, so that their product knows how far
apart two tokens are, and for each type how much it looks like a first and like a last token. The score of a span is
computed from the vectors of its two ends alone. So the head is one of tokens like any other, and the quadratic table
exists only while one row is learnt or decoded. One query serves all types; that is what makes it efficient.
"""

# N tokens, T tokens of a row, K width of queries and keys, Y types, C columns = 2 K + 2 Y
from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.attention import RotaryEmbedding

POINTER_WIDTH: Final = 64
"""K: the paper's."""


def count_pointer_columns(types: int) -> int:
    """Count the numbers of a token's vector.

    >>> count_pointer_columns(3)
    134
    """
    return 2 * POINTER_WIDTH + 2 * types


def rotate_queries_and_keys(vectors_NC: Tensor, positions_N: Tensor) -> Tensor:
    """Turn the queries and keys by the tokens' positions; the rest stays."""
    turning_NC, rest_NC = torch.split(vectors_NC, [2 * POINTER_WIDTH, vectors_NC.shape[1] - 2 * POINTER_WIDTH], dim=1)
    turned_N2K = RotaryEmbedding(positions_N, POINTER_WIDTH)(torch.unflatten(turning_NC, 1, (2, POINTER_WIDTH)))
    return torch.cat((turned_N2K.flatten(1), rest_NC), dim=1)


def pointer_scores(vectors_TC: Tensor, types: int) -> Tensor:
    """Score the span from i to j, both included, as each type: (types, T, T); minus infinity where i is after j."""
    vectors_TC = vectors_TC if vectors_TC.dtype == torch.float64 else vectors_TC.float()
    width = (vectors_TC.shape[1] - 2 * types) // 2
    query_TK, key_TK, first_TY, last_TY = torch.split(vectors_TC, [width, width, types, types], dim=1)
    near_TT = query_TK @ key_TK.mT / math.sqrt(width)
    scores_YTT = near_TT + first_TY.mT[:, :, None] + last_TY.mT[:, None, :]
    backwards_TT = torch.ones_like(near_TT, dtype=torch.bool).tril(-1)
    return scores_YTT.masked_fill(backwards_TT, -math.inf)


def multilabel_cross_entropy(scores_YTT: Tensor, right_YTT: Tensor) -> Tensor:
    """Add up, over the types, how far right spans fall below 0 and all others rise above it.

    For one type it is log(1 + sum of e^score of the wrong) + log(1 + sum of e^-score of the right): the best scores
    on each side count most, so that a handful of right spans is not drowned by thousands of wrong ones.
    """
    scores_YS, right_YS = scores_YTT.flatten(1), right_YTT.flatten(1)
    wrong_YS = scores_YS.masked_fill(right_YS, -math.inf)
    missed_YS = (-scores_YS).masked_fill(~right_YS, -math.inf)
    # The padding is the 1 in the logarithm: a threshold that scores 0.
    return functional.pad(torch.stack((wrong_YS, missed_YS)), (0, 1)).logsumexp(-1).sum()
