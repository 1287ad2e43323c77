"""The losses of `classify`, `relate`, `compare`, `choose` and `answer`: outputs in, one sum over the examples out.

`classify` and `relate`: outputs are pooled over the windows of each text.

`compare`: the contrastive loss is SimCSE's (Gao et al. 2021): each anchor is to find its partner among the partners
and the hard negatives of all examples of the batch, by the cosine over a temperature, in this direction alone. That of
scores is the squared difference between the cosine and the score (Reimers and Gurevych 2019).

`choose`: a softmax over the choices of each example, however many each has, without padding.

`answer` with a span: where answers start and where they end, each a choice among the places of a row.

Rows have different numbers of places and lie behind each other, so a softmax is taken over each stretch of them; all
rows are computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.errors import BadSetting
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
from alembert.tasks.compare.data import ANCHOR, NEGATIVE, PARTNER
from alembert.tasks.runtime.torch import TaskBatch
from alembert.tasks.settings import LossSettings

# R rows, A answers, C outputs


def pool_rows(outputs_RC: Tensor, example_of_row: Sequence[int], pool: str) -> Tensor:
    """Put the outputs for the rows of each example together, in the order in which examples begin."""
    place = {example: number for number, example in enumerate(dict.fromkeys(example_of_row))}
    if len(place) == len(example_of_row):
        return outputs_RC
    owners_R = torch.tensor([place[example] for example in example_of_row], device=outputs_RC.device)
    empty_AC = outputs_RC.new_zeros(len(place), outputs_RC.shape[1])
    reduce = "amax" if pool == "max" else "mean"
    return empty_AC.scatter_reduce(0, owners_R[:, None].expand_as(outputs_RC), outputs_RC, reduce, include_self=False)


def label_loss(
    outputs_AC: Tensor, gold: Tensor, kind: ClassifyKind, settings: LossSettings, weights: Sequence[float]
) -> Tensor:
    """Add up the loss over answers; `weights` count only if they are to be balanced."""
    if kind == "number":
        return squared_error(outputs_AC, gold)
    is_balanced = settings.class_weights == "balanced" and len(weights) > 0
    by_label = torch.tensor(weights, device=outputs_AC.device) if is_balanced else None
    loss = cross_entropy if kind == "single" else binary_cross_entropy
    return loss(outputs_AC, gold, smoothing=settings.label_smoothing, focal=settings.focal, weights=by_label)


def label_divergence(one_AC: Tensor, other_AC: Tensor, kind: ClassifyKind) -> Tensor:
    """Add up how far two passes are apart."""
    apart = {"single": symmetric_kl, "multi": symmetric_binary_kl, "number": squared_difference}
    return apart[kind](one_AC, other_AC)


def label_distillation_loss(student_AC: Tensor, teacher_AC: Tensor, kind: ClassifyKind, temperature: float) -> Tensor:
    """Add up how far a student is from its teacher: from its probabilities, or from its numbers as they are."""
    if kind == "number":
        return squared_difference(student_AC, teacher_AC)
    apart = soft_cross_entropy if kind == "single" else soft_binary_cross_entropy
    return apart(student_AC, teacher_AC, temperature)


# R rows, E examples, N candidates, D width


def contrastive_loss(vectors_RD: Tensor, roles_R: Tensor, temperature: float, settings: LossSettings) -> Tensor:
    """Add up how surprising the partner of each anchor is; the examples' rows come one example after the other."""
    units_RD = normalise_vectors(vectors_RD)
    anchors_ED = units_RD[roles_R == ANCHOR]
    candidates_ND = torch.cat([units_RD[roles_R == PARTNER], units_RD[roles_R == NEGATIVE]])
    logits_EN = anchors_ED @ candidates_ND.T / temperature
    right_E = torch.arange(len(anchors_ED), device=logits_EN.device)
    return cross_entropy(logits_EN, right_E, smoothing=settings.label_smoothing, focal=settings.focal)


def score_loss(vectors_RD: Tensor, scores_E: Tensor) -> Tensor:
    """Add up the squared differences between scores and cosines; two rows are an example."""
    units_E2D = normalise_vectors(vectors_RD).unflatten(0, (-1, 2))  # type: ignore[no-untyped-call]
    cosines_E = (units_E2D[:, 0] * units_E2D[:, 1]).sum(-1)
    return squared_error(cosines_E[:, None], scores_E)


def vector_divergence(one_RD: Tensor, other_RD: Tensor) -> Tensor:
    """Add up how far the directions of two passes are apart."""
    return squared_difference(normalise_vectors(one_RD), normalise_vectors(other_RD))


def vector_distillation_loss(student_RD: Tensor, teacher_RE: Tensor) -> Tensor:
    """Add up how far the directions of a student are from its teacher's, as far as they can be compared.

    Vectors of other widths have no directions in common: then it is how alike the rows of the batch are to each other
    that is imitated, by the squared difference of the cosines between each row and the others, the mean over these.
    """
    if student_RD.shape == teacher_RE.shape:
        return vector_divergence(student_RD, teacher_RE)
    alike_RR, taught_RR = (units @ units.T for units in (normalise_vectors(student_RD), normalise_vectors(teacher_RE)))
    return squared_difference(alike_RR, taught_RR) / max(len(alike_RR) - 1, 1)


def normalise_vectors(vectors_RD: Tensor) -> Tensor:
    """Scale vectors to length 1."""
    return functional.normalize(vectors_RD.float(), dim=-1)


# R rows, C choices of all examples, E examples


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


def choice_loss(probabilities: ChoiceLogProbs, is_right_C: Tensor, settings: LossSettings) -> Tensor:
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


def choice_divergence(one: ChoiceLogProbs, other: ChoiceLogProbs) -> Tensor:
    """Add up how far two passes over the same rows are apart: both directions of KL, halved."""
    return ((one.logs_C.exp() - other.logs_C.exp()) * (one.logs_C - other.logs_C)).sum() / 2


def choice_distillation_loss(student: ChoiceLogProbs, teacher: ChoiceLogProbs) -> Tensor:
    """Add up, over examples, how far a student is from its teacher: KL over the choices."""
    return functional.kl_div(student.logs_C, teacher.logs_C, reduction="sum", log_target=True)


# P places, R rows, 2: start and end


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
