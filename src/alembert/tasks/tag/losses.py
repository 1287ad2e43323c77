"""The losses of `tag`: of heads that decide word by word or stretch by stretch, and of the CRF.

All are sums over the answers of a micro-batch, for right answers and for a teacher's. Moves that the tags forbid stay
forbidden, for teachers and students alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from alembert.nn.losses import (
    cross_entropy,
    partial_cross_entropy,
    soft_binary_cross_entropy,
    soft_cross_entropy,
    symmetric_binary_kl,
)
from alembert.nn.tag_outputs import Crf, multilabel_cross_entropy, pointer_scores
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import DistillLossSettings, LossSettings
from alembert.tasks.tag.crf import AllowedTransitions, viterbi_decode
from alembert.tasks.tag.rows import UNANNOTATED_TYPE, UNKNOWN_WORDS

# P places, C tags


def word_loss(outputs_PC: Tensor, target: TaskBatch, settings: LossSettings, weights: Sequence[float]) -> Tensor:
    """One decision a word; where several tags are allowed, any of them is right."""
    loss = partial_cross_entropy if target.labels.dtype == torch.bool else cross_entropy
    return loss(
        outputs_PC,
        target.labels,
        smoothing=settings.label_smoothing,
        focal=settings.focal,
        weights=torch.tensor(weights, device=outputs_PC.device) if weights else None,
    )


def span_divergence(one_PC: Tensor, other_PC: Tensor, target: TaskBatch, types: int) -> Tensor:
    """How far two passes are apart about which stretches are entities, a sum over rows."""
    total = one_PC.new_zeros(())
    for one_S, other_S in _score_spans(one_PC, other_PC, target, types):
        total = total + symmetric_binary_kl(one_S[None], other_S[None])
    return total


def span_distillation_loss(
    student_PC: Tensor, teacher_PC: Tensor, target: TaskBatch, types: int, temperature: float
) -> Tensor:
    """Add up how far a student is from its teacher about which stretches are entities of which type.

    It is a sum over the stretches of a row and not their mean: both leave almost all of them alone, and the few that
    matter would be lost among thousands.
    """
    total = student_PC.new_zeros(())
    for student_S, teacher_S in _score_spans(student_PC, teacher_PC, target, types):
        total = total + soft_binary_cross_entropy(student_S[:, None], teacher_S[:, None], temperature)
    return total


def _score_spans(one_PC: Tensor, other_PC: Tensor, target: TaskBatch, types: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give, for each row, the scores that two passes give to all stretches as all types."""
    for one_TC, other_TC in zip(target.split_by_row(one_PC), target.split_by_row(other_PC), strict=True):
        first, second = pointer_scores(one_TC, types), pointer_scores(other_TC, types)
        real = torch.isfinite(first)
        yield first[real], second[real]


def span_loss(outputs_PC: Tensor, target: TaskBatch, types: int) -> Tensor:
    """Right stretches of words score above zero, all others below, type by type."""
    total = outputs_PC.new_zeros(())
    for vectors_TC, lines_K3 in zip(target.split_by_row(outputs_PC), target.labels_by_row(), strict=True):
        scores = pointer_scores(vectors_TC, types)
        right = torch.zeros_like(scores, dtype=torch.bool)
        first, last, kind = lines_K3[lines_K3[:, 0] >= 0].unbind(-1)
        right[kind, first, last] = True
        annotated = torch.ones(types, dtype=torch.bool, device=scores.device)
        annotated[lines_K3[lines_K3[:, 0] == UNANNOTATED_TYPE][:, 2]] = False
        scores = _leave_out_unknown(scores, lines_K3[lines_K3[:, 0] == UNKNOWN_WORDS])
        total = total + multilabel_cross_entropy(scores[annotated], right[annotated])
    return total


def _leave_out_unknown(scores_YTT: Tensor, lines_K3: Tensor) -> Tensor:
    """Leave the stretches that hold an unknown word out of the loss, as if they could not be."""
    place_T = torch.arange(scores_YTT.shape[-1], device=scores_YTT.device)
    for _, first, last in lines_K3.tolist():
        shares_TT = (place_T[:, None] <= last) & (place_T >= first)
        scores_YTT = scores_YTT.masked_fill(shares_TT, -torch.inf)
    return scores_YTT


# P places, C tags, T places of a row


MIN_LOG_PROBABILITY: Final = -30.0
"""Least logarithm of a probability that is taught: next to nothing, and half precision holds it well."""


@dataclass(frozen=True, eq=False)
class CrfLoss:
    """The rows that paths of tags lead through."""

    crf: Crf
    lengths: Sequence[int]
    allowed: AllowedTransitions

    @classmethod
    def of(cls, head: nn.Module, target: TaskBatch, legal: AllowedTransitions) -> CrfLoss:
        """Take the CRF of a head to the rows of a target.

        A row may begin or end inside an entity, where one window hands over to the next, so any tag may stand there.
        """
        crf: Any = head.crf
        open_ended = replace(legal, start=np.ones_like(legal.start), end=np.ones_like(legal.end))
        return cls(crf, target.positions_per_row, open_ended)

    def loss(self, outputs_PC: Tensor, labels: Tensor) -> Tensor:
        """Add up the negative log-likelihood of the right path through each row, or of all paths that are allowed."""
        return -self.crf.log_likelihood(outputs_PC, labels, self.lengths, self.allowed).sum()

    def teacher_targets(self, outputs_PC: Tensor, settings: DistillLossSettings) -> Tensor:
        """Compute logarithms of how likely each tag of each word is, over all paths through its row or on the best of them."""
        if settings.crf == "path":
            best_P1 = self._best_path(outputs_PC)[:, None]
            return torch.full_like(outputs_PC, MIN_LOG_PROBABILITY).scatter(1, best_P1, 0.0)
        return self._log_marginals(outputs_PC, settings.temperature).clamp_min(MIN_LOG_PROBABILITY)

    def distillation_loss(self, outputs_PC: Tensor, taught_PC: Tensor, settings: DistillLossSettings) -> Tensor:
        """Add up how far the CRF of a student is from what its teacher's has taught.

        Of marginals it is KL(teacher || student) at each word. Of paths it is the negative log-likelihood of the
        teacher's best one, as if that were right: never zero, not even for a student that equals its teacher.
        """
        if settings.crf == "path":
            return self.loss(outputs_PC, taught_PC.argmax(-1))
        return soft_cross_entropy(self._log_marginals(outputs_PC, settings.temperature), taught_PC)

    def _log_marginals(self, outputs_PC: Tensor, temperature: float) -> Tensor:
        return self.crf.log_marginals(outputs_PC, self.lengths, self.allowed, temperature)

    def _best_path(self, outputs_PC: Tensor) -> Tensor:
        transitions_CC, start_C, end_C, emissions_PC = (
            each.detach().float().cpu().numpy()
            for each in (self.crf.transitions, self.crf.start, self.crf.end, outputs_PC)
        )
        paths = [
            viterbi_decode(row_TC, transitions_CC, start_C, end_C, self.allowed)
            for row_TC in np.split(emissions_PC, np.cumsum(self.lengths)[:-1])
        ]
        return torch.from_numpy(np.concatenate(paths)).to(outputs_PC.device)
