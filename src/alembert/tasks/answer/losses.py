"""The loss of the head `span`: where answers start and where they end, each a choice among the places of a row.

Rows have different numbers of places and lie behind each other, so a softmax is taken over each stretch of them; all rows
are computed at once.
"""

# P places, R rows, 2: start and end
from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import LossSettings

_MIN_DOUBT: Final = 1e-12
"""Least doubt of focal loss, as in `nn.losses`."""


def span_loss(outputs_P2: Tensor, target: TaskBatch, settings: LossSettings) -> Tensor:
    """Add up, over rows, the mean of -log p of the right start and of the right end."""
    logs_P2, owners_P, counts_R = _log_softmax(outputs_P2, target)
    firsts_R = torch.cumsum(counts_R, 0) - counts_R
    right_R2 = logs_P2.gather(0, firsts_R[:, None] + target.labels)
    each_R2 = -right_R2
    if settings.label_smoothing:
        means_R2 = _sum_by_row(logs_P2, owners_P, len(counts_R)) / counts_R[:, None]
        each_R2 = (1 - settings.label_smoothing) * each_R2 - settings.label_smoothing * means_R2
    if settings.focal:
        doubt_R2 = (-torch.expm1(right_R2)).clamp_min(_MIN_DOUBT)
        each_R2 = each_R2 * doubt_R2**settings.focal
    return each_R2.mean(-1).sum()


def span_divergence(one_P2: Tensor, other_P2: Tensor, target: TaskBatch) -> Tensor:
    """Add up how far two passes are apart about starts and ends: both directions of KL, halved, the mean of the two."""
    one, other = _log_softmax(one_P2, target)[0], _log_softmax(other_P2, target)[0]
    return ((one.exp() - other.exp()) * (one - other)).sum() / 4


def span_distillation_loss(student_P2: Tensor, teacher_P2: Tensor, target: TaskBatch, temperature: float) -> Tensor:
    """Add up, over rows, how far a student is from its teacher: KL over the places, the mean of start and end."""
    student = _log_softmax(student_P2.float() / temperature, target)[0]
    teacher = _log_softmax(teacher_P2.float() / temperature, target)[0]
    return functional.kl_div(student, teacher, reduction="sum", log_target=True) / 2


def _log_softmax(outputs_P2: Tensor, target: TaskBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Take the softmax over the places of each row; give also the row of each place, and how many each row has."""
    values_P2 = outputs_P2.float()
    counts_R = torch.tensor(target.positions_per_row, device=values_P2.device)
    owners_P = torch.repeat_interleave(torch.arange(len(counts_R), device=values_P2.device), counts_R)
    index_P2 = owners_P[:, None].expand_as(values_P2)
    lowest_R2 = values_P2.new_full((len(counts_R), 2), -torch.inf)
    highest_R2 = lowest_R2.scatter_reduce(0, index_P2, values_P2.detach(), "amax")
    shifted_P2 = values_P2 - highest_R2[owners_P]
    totals_R2 = _sum_by_row(shifted_P2.exp(), owners_P, len(counts_R))
    return shifted_P2 - totals_R2.log()[owners_P], owners_P, counts_R


def _sum_by_row(values_P2: Tensor, owners_P: Tensor, rows: int) -> Tensor:
    return values_P2.new_zeros(rows, 2).index_add(0, owners_P, values_P2)
