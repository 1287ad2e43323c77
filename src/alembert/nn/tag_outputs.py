"""Outputs of taggers: a conditional random field over paths of labels, and spans scored as pairs of tokens.

`Crf` is a linear-chain conditional random field (Lafferty et al. 2001). In: emissions of all rows one after the other
(P, C), and how many of them each row has. Out: one number a row, or how likely each label is at each position. Rows are
laid side by side, the longest first, and the recursion goes over time with the rows that still last, so that no padding
is computed. The caller passes the transitions that the labelling scheme forbids with each call: they are constants
without a gradient, whatever the weights say.

Spans, nested ones too, are scored as in Efficient GlobalPointer (Su et al. 2022). A token's vector holds a query and a
key, both turned by the token's position, so that their product knows how far apart two tokens are, and for each type
how much it looks like a first and like a last token. The score of a span is computed from the vectors of its two ends
alone. So the head is one of tokens like any other, and the quadratic table exists only while one row is learnt or
decoded. One query serves all types; that is what makes it efficient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence

from alembert.errors import BadInput
from alembert.nn.attention import RotaryEmbedding

# P positions of all rows, R rows, C labels


FORBIDDEN: Final = -1e4
"""Score of what must not be: no sum of real scores makes up for it, and its gradients stay finite."""


class TransitionConstraints(Protocol):
    """Which labels may follow each other, begin and end: `alembert.tasks.tag.crf.AllowedTransitions` is one."""

    @property
    def transitions(self) -> npt.NDArray[np.bool_]:
        """(from, to)."""

    @property
    def start(self) -> npt.NDArray[np.bool_]: ...

    @property
    def end(self) -> npt.NDArray[np.bool_]: ...


class Crf(nn.Module):
    """Scores of a label after another, at the start and at the end."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        """(from, to)."""
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def log_likelihood(
        self, emissions_PC: Tensor, labels: Tensor, lengths: Sequence[int], legal: TransitionConstraints | None = None
    ) -> Tensor:
        """Return, for each row, the logarithm of the probability of its right path.

        Labels are numbers (P,), or which ones are allowed (P, C): then any path through these is right.
        """
        # The likelihood stays the same, and sums over long rows stay small enough for 32 bits.
        emissions_PC = _at_least_float32(emissions_PC).log_softmax(-1)
        everything = self.log_partition(emissions_PC, lengths, legal=legal)
        if labels.dtype == torch.bool:
            return self.log_partition(emissions_PC, lengths, labels, legal) - everything
        return self.path_score(emissions_PC, labels, lengths, legal) - everything

    def log_partition(
        self,
        emissions_PC: Tensor,
        lengths: Sequence[int],
        allowed_PC: Tensor | None = None,
        legal: TransitionConstraints | None = None,
    ) -> Tensor:
        """Return, for each row, the log-sum of the scores of all paths, or of those through allowed labels; empty: 0."""
        _check(emissions_PC, lengths)
        emissions_PC = _at_least_float32(emissions_PC)
        if allowed_PC is not None:
            emissions_PC = emissions_PC.masked_fill(~allowed_PC, FORBIDDEN)
        result_R = emissions_PC.new_zeros(len(lengths))
        if not len(emissions_PC):
            return result_R + emissions_PC.sum()  # zero, and part of the graph
        transitions_CC, start_C, end_C = self._moves(legal)
        paths_PC = _forward_scores(emissions_PC, lengths, transitions_CC, start_C) + emissions_PC
        lengths_R = torch.tensor(lengths, device=emissions_PC.device)
        filled = lengths_R.nonzero()[:, 0]
        last = lengths_R.cumsum(0)[filled] - 1
        return result_R.index_copy(0, filled, (paths_PC[last] + end_C).logsumexp(1))

    def log_marginals(
        self,
        emissions_PC: Tensor,
        lengths: Sequence[int],
        legal: TransitionConstraints | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        """Return the logarithm of the probability of each label at each position, over all paths of its row.

        The temperature divides the scores of whole paths: emissions and moves alike.
        """
        _check(emissions_PC, lengths)
        # As for the likelihood: the probabilities stay the same, and sums over long rows stay small.
        emissions_PC = (_at_least_float32(emissions_PC) / temperature).log_softmax(-1)
        if not len(emissions_PC):
            return emissions_PC
        transitions_CC, start_C, end_C = self._moves(legal, temperature)
        before_PC = _forward_scores(emissions_PC, lengths, transitions_CC, start_C)
        after_PC = _forward_scores(emissions_PC, lengths, transitions_CC.T, end_C, backwards=True)
        return (before_PC + emissions_PC + after_PC).log_softmax(-1)

    def path_score(
        self, emissions_PC: Tensor, labels_P: Tensor, lengths: Sequence[int], legal: TransitionConstraints | None = None
    ) -> Tensor:
        """Return, for each row, the score of one path: its emissions and its moves; empty: 0."""
        _check(emissions_PC, lengths)
        emissions_PC = _at_least_float32(emissions_PC)
        transitions_CC, start_C, end_C = self._moves(legal)
        row_P = torch.repeat_interleave(torch.tensor(lengths, device=labels_P.device))
        scores_P = emissions_PC.gather(1, labels_P[:, None])[:, 0]
        begins_P = torch.ones_like(row_P, dtype=torch.bool)
        begins_P[1:] = row_P[1:] != row_P[:-1]
        before_P = labels_P.roll(1)
        scores_P = scores_P + torch.where(begins_P, start_C[labels_P], transitions_CC[before_P, labels_P])
        scores_P = scores_P + torch.where(begins_P.roll(-1), end_C[labels_P], 0.0)
        return scores_P.new_zeros(len(lengths)).index_add(0, row_P, scores_P)

    def _moves(self, legal: TransitionConstraints | None, temperature: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        transitions_CC, start_C, end_C = (
            _at_least_float32(weight) / temperature for weight in (self.transitions, self.start, self.end)
        )
        if legal is None:
            return transitions_CC, start_C, end_C
        masks = (torch.from_numpy(mask).to(self.start.device) for mask in (legal.transitions, legal.start, legal.end))
        transitions_CC, start_C, end_C = (
            weight.masked_fill(~mask, FORBIDDEN)
            for weight, mask in zip((transitions_CC, start_C, end_C), masks, strict=True)
        )
        return transitions_CC, start_C, end_C


def _forward_scores(
    emissions_PC: Tensor,
    lengths: Sequence[int],
    moves_CC: Tensor,
    start_C: Tensor,
    *,
    backwards: bool = False,
) -> Tensor:
    """Sum over the paths that lead to each label of each position, without its own emission, for one position at least."""
    order_P, lasting = _time_order(lengths, backwards=backwards)
    order_P = order_P.to(emissions_PC.device)
    reached_RC = start_C.expand(lasting[0], -1)
    scores = [reached_RC]
    for emissions_RC, count in zip(torch.split(emissions_PC[order_P], lasting), lasting[1:], strict=False):
        paths_RC = (reached_RC + emissions_RC)[:count]
        reached_RC = (paths_RC[:, :, None] + moves_CC).logsumexp(1)
        scores.append(reached_RC)
    return torch.cat(scores)[order_P.argsort()]


def _time_order(lengths: Sequence[int], *, backwards: bool) -> tuple[Tensor, list[int]]:
    """Order the positions by time, the longest row first, and count the rows that last at each time."""
    rows = [row for row in torch.split(torch.arange(sum(lengths)), list(lengths)) if len(row)]
    packed = pack_sequence([row.flip(0) if backwards else row for row in rows], enforce_sorted=False)
    return packed.data, packed.batch_sizes.tolist()


def _at_least_float32(values: Tensor) -> Tensor:
    """Sums over hundreds of positions need more than the 8 or 11 bits of the short types."""
    return values if values.dtype == torch.float64 else values.float()


def _check(emissions_PC: Tensor, lengths: Sequence[int]) -> None:
    if sum(lengths) != len(emissions_PC):
        raise BadInput(
            f"The rows have {sum(lengths)} places together, and there are emissions for {len(emissions_PC)}."
        )


# N tokens, T tokens of a row, K width of queries and keys, Y types, C columns = 2 K + 2 Y


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
