"""Losses of classifying, tagging and scoring heads: outputs and right answers in, one sum over the answers out.

Sums and not means, because the answers of a step lie in several micro-batches and the mean is taken over all of them.
Where an answer is a row of yes-or-no labels, its loss is the mean over them, so that a rate suits any number of labels.
Everything is computed in float32, whatever the outputs are. Label smoothing and weights are torch's; focal loss
(Lin et al. 2017) multiplies the loss of an answer by (1 - p) to a power, p being the probability of the right answer.
The symmetric divergences are those of R-Drop (Liang et al. 2021): half of both directions of Kullback-Leibler.
The soft losses are those of distillation (Hinton et al. 2015) without the factor of the squared temperature, as in
TinyBERT. They are cross-entropies less the teacher's own entropy, which is a constant: the gradient is that of the
cross-entropy, and a student that equals its teacher has none to pay.
"""

# P answers, C labels
from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_LEAST: Final = 1e-12
"""Least doubt: below it the slope of a power under 1 is more than float32 holds."""


def cross_entropy(
    logits_PC: Tensor,
    labels_P: Tensor,
    *,
    smoothing: float = 0.0,
    focal: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Add up -log p of the right label of each answer; `weights` (C) are those of the labels."""
    logits_PC = logits_PC.float()
    each_P = functional.cross_entropy(logits_PC, labels_P, weight=weights, reduction="none", label_smoothing=smoothing)
    if focal:
        right_P = logits_PC.log_softmax(-1).gather(-1, labels_P[:, None]).squeeze(-1)
        each_P = each_P * _doubt(right_P) ** focal
    return each_P.sum()


def partial_cross_entropy(
    logits_PC: Tensor,
    allowed_PC: Tensor,
    *,
    smoothing: float = 0.0,
    focal: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Add up -log of the probability that all allowed labels of an answer have together; at least one is allowed.

    With one allowed label it is `cross_entropy`; with all of them it is 0. The share of smoothing that falls on allowed
    labels counts for all of them together. The weight of several labels is that of each in proportion to its present
    probability, through which no gradient flows.
    """
    logs_PC = logits_PC.float().log_softmax(-1)
    within_PC = logs_PC.masked_fill(~allowed_PC, -torch.inf)
    right_P = torch.where(allowed_PC.all(-1), 0.0, within_PC.logsumexp(-1))
    smoothed_PC = torch.where(allowed_PC, right_P[:, None], logs_PC)
    weight_P: Tensor | float = 1.0
    if weights is not None:
        smoothed_PC = smoothed_PC * weights
        weight_P = (within_PC.detach().softmax(-1) * weights).sum(-1)
    each_P = (smoothing - 1) * weight_P * right_P - smoothing * smoothed_PC.mean(-1)
    return (each_P * _doubt(right_P) ** focal if focal else each_P).sum()


def binary_cross_entropy(
    logits_PC: Tensor,
    labels_PC: Tensor,
    *,
    smoothing: float = 0.0,
    focal: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Add up the loss of yes-or-no labels (0 or 1), the mean over the labels of each answer.

    `weights` (C) count a label where it is there (`pos_weight` of torch), which is what rare labels need. Smoothing
    moves labels that share of the way to one half.
    """
    logits_PC, labels_PC = logits_PC.float(), labels_PC.float()
    each_PC = functional.binary_cross_entropy_with_logits(
        logits_PC, labels_PC + smoothing * (0.5 - labels_PC), pos_weight=weights, reduction="none"
    )
    if focal:
        right_PC = functional.logsigmoid(logits_PC * (2 * labels_PC - 1))
        each_PC = each_PC * _doubt(right_PC) ** focal
    return each_PC.mean(-1).sum()


def squared_error(logits_P1: Tensor, values_P: Tensor) -> Tensor:
    """Add up the squared distances between scores and right values."""
    return functional.mse_loss(logits_P1.float().squeeze(-1), values_P.float(), reduction="sum")


def symmetric_kl(one: Tensor, other: Tensor) -> Tensor:
    """Add up how far the distributions of two passes over the labels (last dimension) are apart."""
    one, other = one.float().log_softmax(-1), other.float().log_softmax(-1)
    return ((one.exp() - other.exp()) * (one - other)).sum() / 2


def symmetric_binary_kl(one: Tensor, other: Tensor) -> Tensor:
    """Add up how far the yes-or-no labels of two passes are apart, the mean over the labels of each answer."""
    one, other = one.float(), other.float()
    return ((one.sigmoid() - other.sigmoid()) * (one - other)).mean(-1).sum() / 2


def squared_difference(one: Tensor, other: Tensor) -> Tensor:
    """Add up the squared distances between the scores of two passes."""
    return (one.float() - other.float()).square().sum()


def soft_cross_entropy(student_PC: Tensor, teacher_PC: Tensor, temperature: float = 1.0) -> Tensor:
    """Add up, over answers, how far a student's distribution over the labels (last dimension) is from its teacher's.

    It is a sum over the labels of each answer, KL(teacher || student), and not their mean.
    """
    student_PC = (student_PC.float() / temperature).log_softmax(-1)
    teacher_PC = (teacher_PC.float() / temperature).log_softmax(-1)
    return functional.kl_div(student_PC, teacher_PC, reduction="sum", log_target=True)


def soft_binary_cross_entropy(student_PC: Tensor, teacher_PC: Tensor, temperature: float = 1.0) -> Tensor:
    """Add up how far a student's yes-or-no labels are from its teacher's, the mean over the labels of each answer."""
    student_PC, teacher_PC = student_PC.float() / temperature, teacher_PC.float() / temperature
    likely_PC = teacher_PC.sigmoid()
    yes_PC = functional.logsigmoid(teacher_PC) - functional.logsigmoid(student_PC)
    no_PC = functional.logsigmoid(-teacher_PC) - functional.logsigmoid(-student_PC)
    return (likely_PC * yes_PC + (1 - likely_PC) * no_PC).mean(-1).sum()


def _doubt(logs: Tensor) -> Tensor:
    """Give 1 - p for log p, exactly where p is close to 1."""
    return (-torch.expm1(logs)).clamp_min(_LEAST)
