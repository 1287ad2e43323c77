"""The losses of the three heads that find entities; all are sums over the answers of a micro-batch."""

# P places, C tags
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alembert.nn.losses import cross_entropy, partial_cross_entropy, symmetric_binary_kl
from alembert.nn.pointer import multilabel_cross_entropy, pointer_scores
from alembert.tasks.loss_settings import LossSettings
from alembert.tasks.targets import Target
from alembert.tasks.viterbi import Legal


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


def crf_loss(head: nn.Module, outputs_PC: Tensor, target: Target, legal: Legal) -> Tensor:
    """The negative log-likelihood of the right path through each row, or of all paths that are allowed.

    A row may begin or end inside an entity, where one window hands over to the next, so any tag may stand there.
    """
    crf: Any = head.crf
    open_ended = replace(legal, start=np.ones_like(legal.start), end=np.ones_like(legal.end))
    found: Tensor = crf.log_likelihood(outputs_PC, target.labels, target.row_places, open_ended)
    return -found.sum()


def span_divergence(one_PC: Tensor, other_PC: Tensor, target: Target, types: int) -> Tensor:
    """How far two passes are apart about which stretches are entities, a sum over rows."""
    total = one_PC.new_zeros(())
    for one_TC, other_TC in zip(target.by_row(one_PC), target.by_row(other_PC), strict=True):
        first, second = pointer_scores(one_TC, types), pointer_scores(other_TC, types)
        real = torch.isfinite(first)
        total = total + symmetric_binary_kl(first[real][None], second[real][None])
    return total


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
