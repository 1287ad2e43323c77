"""Losses of the task `classify`, over outputs that were pooled over the windows of each text."""

# R rows, A answers, C outputs
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alembert.nn.losses import (
    binary_cross_entropy,
    cross_entropy,
    soft_binary_cross_entropy,
    soft_cross_entropy,
    squared_difference,
    squared_error,
    symmetric_binary_kl,
    symmetric_kl,
)
from alembert.tasks.classify.data import ClassifyKind
from alembert.tasks.settings import LossSettings


def pool_rows(outputs_RC: Tensor, example_of_row: Sequence[int], pool: str) -> Tensor:
    """Put the outputs for the rows of each example together, in the order in which examples begin."""
    place = {example: number for number, example in enumerate(dict.fromkeys(example_of_row))}
    if len(place) == len(example_of_row):
        return outputs_RC
    owners_R = torch.tensor([place[example] for example in example_of_row], device=outputs_RC.device)
    empty_AC = outputs_RC.new_zeros(len(place), outputs_RC.shape[1])
    reduce = "amax" if pool == "max" else "mean"
    return empty_AC.scatter_reduce(0, owners_R[:, None].expand_as(outputs_RC), outputs_RC, reduce, include_self=False)


def compute_loss(
    outputs_AC: Tensor, gold: Tensor, kind: ClassifyKind, settings: LossSettings, weights: Sequence[float]
) -> Tensor:
    """Add up the loss over answers; `weights` count only if they are to be balanced."""
    if kind == "number":
        return squared_error(outputs_AC, gold)
    is_balanced = settings.class_weights == "balanced" and len(weights) > 0
    by_label = torch.tensor(weights, device=outputs_AC.device) if is_balanced else None
    loss = cross_entropy if kind == "single" else binary_cross_entropy
    return loss(outputs_AC, gold, smoothing=settings.label_smoothing, focal=settings.focal, weights=by_label)


def compute_divergence(one_AC: Tensor, other_AC: Tensor, kind: ClassifyKind) -> Tensor:
    """Add up how far two passes are apart."""
    apart = {"single": symmetric_kl, "multi": symmetric_binary_kl, "number": squared_difference}
    return apart[kind](one_AC, other_AC)


def compute_distillation_loss(student_AC: Tensor, teacher_AC: Tensor, kind: ClassifyKind, temperature: float) -> Tensor:
    """Add up how far a student is from its teacher: from its probabilities, or from its numbers as they are."""
    if kind == "number":
        return squared_difference(student_AC, teacher_AC)
    apart = soft_cross_entropy if kind == "single" else soft_binary_cross_entropy
    return apart(student_AC, teacher_AC, temperature)
