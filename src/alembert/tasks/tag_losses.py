"""The losses of the heads that decide word by word or stretch by stretch; all are sums over the answers of a micro-batch."""

# P places, C tags
from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from alembert.nn.losses import (
    cross_entropy,
    partial_cross_entropy,
    soft_binary_cross_entropy,
    symmetric_binary_kl,
)
from alembert.nn.pointer import multilabel_cross_entropy, pointer_scores
from alembert.tasks.loss_settings import LossSettings
from alembert.tasks.targets import Target


def word_loss(outputs_PC: Tensor, target: Target, settings: LossSettings, weights: Sequence[float]) -> Tensor:
    """One decision a word; where several tags are allowed, any of them is right."""
    loss = partial_cross_entropy if target.labels.dtype == torch.bool else cross_entropy
    return loss(
        outputs_PC,
        target.labels,
        smoothing=settings.label_smoothing,
        focal=settings.focal,
        weights=torch.tensor(weights, device=outputs_PC.device) if weights else None,
    )


def span_divergence(one_PC: Tensor, other_PC: Tensor, target: Target, types: int) -> Tensor:
    """How far two passes are apart about which stretches are entities, a sum over rows."""
    total = one_PC.new_zeros(())
    for one_S, other_S in _scored_stretches(one_PC, other_PC, target, types):
        total = total + symmetric_binary_kl(one_S[None], other_S[None])
    return total


def span_imitation(student_PC: Tensor, teacher_PC: Tensor, target: Target, types: int, temperature: float) -> Tensor:
    """Add up how far a student is from its teacher about which stretches are entities of which type.

    It is a sum over the stretches of a row and not their mean: both leave almost all of them alone, and the few that
    matter would be lost among thousands.
    """
    total = student_PC.new_zeros(())
    for student_S, teacher_S in _scored_stretches(student_PC, teacher_PC, target, types):
        total = total + soft_binary_cross_entropy(student_S[:, None], teacher_S[:, None], temperature)
    return total


def _scored_stretches(one_PC: Tensor, other_PC: Tensor, target: Target, types: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give, for each row, the scores that two passes give to all stretches as all types."""
    for one_TC, other_TC in zip(target.by_row(one_PC), target.by_row(other_PC), strict=True):
        first, second = pointer_scores(one_TC, types), pointer_scores(other_TC, types)
        real = torch.isfinite(first)
        yield first[real], second[real]


def span_loss(outputs_PC: Tensor, target: Target, types: int) -> Tensor:
    """Right stretches of words score above zero, all others below, type by type."""
    total = outputs_PC.new_zeros(())
    for vectors_TC, lines_K3 in zip(target.by_row(outputs_PC), target.labels_by_row(), strict=True):
        scores = pointer_scores(vectors_TC, types)
        right = torch.zeros_like(scores, dtype=torch.bool)
        first, last, kind = lines_K3[lines_K3[:, 0] >= 0].unbind(-1)
        right[kind, first, last] = True
        annotated = torch.ones(types, dtype=torch.bool, device=scores.device)
        annotated[lines_K3[lines_K3[:, 0] < 0][:, 2]] = False
        total = total + multilabel_cross_entropy(scores[annotated], right[annotated])
    return total
