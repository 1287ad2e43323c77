"""Losses of the task `choose`: a softmax over the choices of each example, however many each has, without padding."""

# R rows, C choices of all examples, E examples
from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from alembert.errors import BadSetting
from alembert.tasks.classify.losses import pool_rows
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import LossSettings


@dataclass(frozen=True, eq=False)
class ChoiceLogProbs:
    """How likely each choice is among those of its example."""

    logs_C: Tensor
    owners_C: Tensor
    """Which example each choice belongs to, from 0 up."""
    examples: int

    @classmethod
    def of(cls, outputs_R1: Tensor, target: TaskBatch, pool: str) -> ChoiceLogProbs:
        """Pool the windows of each choice, and compare the choices of each example."""
        choice_of_row = list(accumulate(target.labels_per_row))  # a label stands where a choice begins
        scores_C = pool_rows(outputs_R1.float(), choice_of_row, pool).squeeze(-1)
        rows = zip(target.example_of_row, target.labels_per_row, strict=True)
        example_of_choice = [example for example, labels in rows if labels]
        place = {example: number for number, example in enumerate(dict.fromkeys(example_of_choice))}
        owners_C = torch.tensor([place[example] for example in example_of_choice], device=scores_C.device)
        return cls(grouped_log_softmax(scores_C, owners_C, len(place)), owners_C, len(place))

    def mean_E(self, values_C: Tensor) -> Tensor:
        """Average over the choices of each example."""
        sums_E = values_C.new_zeros(self.examples).index_add(0, self.owners_C, values_C)
        return sums_E / torch.bincount(self.owners_C, minlength=self.examples)


def grouped_log_softmax(scores_C: Tensor, owners_C: Tensor, count: int) -> Tensor:
    """Compute log softmax over the scores that have the same owner."""
    highest_E = scores_C.new_full((count,), -torch.inf)
    highest_E = highest_E.scatter_reduce(0, owners_C, scores_C.detach(), "amax")
    shifted_C = scores_C - highest_E[owners_C]
    sums_E = scores_C.new_zeros(count).index_add(0, owners_C, shifted_C.exp())
    return shifted_C - sums_E.log()[owners_C]


def compute_loss(probabilities: ChoiceLogProbs, is_right_C: Tensor, settings: LossSettings) -> Tensor:
    """Add up -log p of the right choices; smoothing spreads a share over the choices of the example."""
    if settings.class_weights != "equal":
        raise BadSetting(
            "`class_weights` of the loss is balanced, and choices have no labels that could be rare. Leave it out."
        )
    right_E = probabilities.logs_C[is_right_C > 0]
    smoothing = settings.label_smoothing
    loss_E = (smoothing - 1) * right_E - smoothing * probabilities.mean_E(probabilities.logs_C)
    if settings.focal:
        loss_E = loss_E * (-torch.expm1(right_E)).clamp_min(1e-12) ** settings.focal
    return loss_E.sum()


def compute_divergence(one: ChoiceLogProbs, other: ChoiceLogProbs) -> Tensor:
    """Add up how far two passes over the same rows are apart: both directions of KL, halved."""
    return ((one.logs_C.exp() - other.logs_C.exp()) * (one.logs_C - other.logs_C)).sum() / 2


def compute_distillation_loss(student: ChoiceLogProbs, teacher: ChoiceLogProbs) -> Tensor:
    """Add up, over examples, how far a student is from its teacher: KL over the choices."""
    return functional.kl_div(student.logs_C, teacher.logs_C, reduction="sum", log_target=True)
