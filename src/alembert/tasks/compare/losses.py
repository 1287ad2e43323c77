"""Losses of the task `compare`: vectors of texts in, one sum over the examples out.

The contrastive one is SimCSE's (Gao et al. 2021): each anchor is to find its partner among the partners and the hard
negatives of all examples of the batch, by the cosine over a temperature, in this direction alone. That of scores is
the squared difference between the cosine and the score (Reimers and Gurevych 2019).
"""

# R rows, E examples, N candidates, D width
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.losses import cross_entropy, squared_difference, squared_error
from alembert.tasks.compare.rows import ANCHOR, NEGATIVE, PARTNER
from alembert.tasks.settings import LossSettings


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


def compute_divergence(one_RD: Tensor, other_RD: Tensor) -> Tensor:
    """Add up how far the directions of two passes are apart."""
    return squared_difference(normalise_vectors(one_RD), normalise_vectors(other_RD))


def compute_distillation_loss(student_RD: Tensor, teacher_RE: Tensor) -> Tensor:
    """Add up how far the directions of a student are from its teacher's, as far as they can be compared.

    Vectors of other widths have no directions in common: then it is how alike the rows of the batch are to each other
    that is imitated, by the squared difference of the cosines between each row and the others, the mean over these.
    """
    if student_RD.shape == teacher_RE.shape:
        return compute_divergence(student_RD, teacher_RE)
    alike_RR, taught_RR = (units @ units.T for units in (normalise_vectors(student_RD), normalise_vectors(teacher_RE)))
    return squared_difference(alike_RR, taught_RR) / max(len(alike_RR) - 1, 1)


def normalise_vectors(vectors_RD: Tensor) -> Tensor:
    """Scale vectors to length 1."""
    return functional.normalize(vectors_RD.float(), dim=-1)
