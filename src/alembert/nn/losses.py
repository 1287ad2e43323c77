"""Losses of heads against right answers, and of students against their teachers, as sums.

Sums and not means, because the answers of a step lie in several micro-batches and the mean is taken over all of them.
Where an answer is a row of yes-or-no labels, its loss is the mean over them, so that a rate suits any number of labels.
Everything is computed in float32, whatever the outputs are. Label smoothing and weights are torch's; focal loss (Lin et
al. 2017) multiplies the loss of an answer by (1 - p) to a power, p being the probability of the right answer. The
symmetric divergences are those of R-Drop (Liang et al. 2021): half of both directions of Kullback-Leibler. The soft
losses are those of distillation (Hinton et al. 2015) without the factor of the squared temperature, as in TinyBERT.
They are cross-entropies less the teacher's own entropy, which is a constant: the gradient is that of the cross-entropy,
and a student that equals its teacher has a loss of 0.

Losses inside a model compare what student and teacher computed for one flat batch: attention, hidden states, relations
between tokens, whole texts. The caller takes the mean over the tokens, pairs of tokens or documents of a step. TinyBERT
(Jiao et al. 2020) compares attention scores before the softmax and hidden states, by squared error; MiniLM (Wang et al.
2021) the relations of tokens to each other as queries, keys and values see them, which asks for neither the teacher's
width nor its number of heads. Only real tokens count: the published code averages over padding too, which makes its
loss depend on what a text is batched with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.attention import AttentionPlan
from alembert.nn.batch import Batch, DocumentGroup

# P answers, C labels, N tokens, B documents, T tokens of a document, D width, H heads, K head size

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
    losses_P = functional.cross_entropy(
        logits_PC, labels_P, weight=weights, reduction="none", label_smoothing=smoothing
    )
    if focal:
        right_P = logits_PC.log_softmax(-1).gather(-1, labels_P[:, None]).squeeze(-1)
        losses_P = losses_P * _one_minus_exp(right_P) ** focal
    return losses_P.sum()


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
    losses_P = (smoothing - 1) * weight_P * right_P - smoothing * smoothed_PC.mean(-1)
    return (losses_P * _one_minus_exp(right_P) ** focal if focal else losses_P).sum()


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
    losses_PC = functional.binary_cross_entropy_with_logits(
        logits_PC, labels_PC + smoothing * (0.5 - labels_PC), pos_weight=weights, reduction="none"
    )
    if focal:
        right_PC = functional.logsigmoid(logits_PC * (2 * labels_PC - 1))
        losses_PC = losses_PC * _one_minus_exp(right_PC) ** focal
    return losses_PC.mean(-1).sum()


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


def _one_minus_exp(logs: Tensor) -> Tensor:
    """Return 1 - p for log p, exactly where p is close to 1."""
    return (-torch.expm1(logs)).clamp_min(_LEAST)


def count_attention_pairs(batch: Batch, attention: str = "bidirectional") -> int:
    """Count the pairs of tokens of which one looks at the other: what `attention_loss` is a sum over.

    >>> count_attention_pairs(Batch.packed([[5, 6, 7]])), count_attention_pairs(Batch.packed([[5, 6, 7]]), "causal")
    (9, 6)
    """
    both_ways = {"bidirectional": batch.lengths, "prefix": batch.prefixes}.get(attention)
    return sum(map(_count_visible_pairs, batch.lengths, both_ways or [0] * len(batch.lengths)))


def _count_visible_pairs(length: int, both_ways: int) -> int:
    """Count the looks in a document whose first tokens see each other, and the others what is before them."""
    return both_ways**2 + (length * (length + 1) - both_ways * (both_ways + 1)) // 2


def attention_loss(
    student_N3HK: Tensor, teacher_N2HK: Tensor, batch: Batch, attention: str = "bidirectional"
) -> Tensor:
    """Add up the squared differences of attention scores, the mean over heads, over all pairs of `count_attention_pairs`."""
    total = student_N3HK.new_zeros((), dtype=torch.float32)
    plans = AttentionPlan.for_batch(batch, attention).groups
    for plan, (group, ours, theirs) in zip(plans, _groups(batch, student_N3HK, teacher_N2HK), strict=True):
        apart_BHTT = _scores(ours) - _scores(theirs)
        if (allowed_B1TT := plan.attention_mask(apart_BHTT.device)) is not None:
            apart_BHTT = apart_BHTT.masked_fill(~allowed_B1TT, 0)
        if group.mask_BT is not None:
            apart_BHTT = apart_BHTT.masked_fill(~group.mask_BT[:, None, :, None], 0)
        total = total + apart_BHTT.square().mean(1).sum()
    return total


def hidden_state_loss(student_ND: Tensor, teacher_ND: Tensor, batch: Batch) -> Tensor:
    """Add up the squared differences of states of one width, the mean over the width, over all tokens."""
    apart_N = (student_ND.float() - teacher_ND.float()).square().mean(-1)
    is_padded = any(group.mask_BT is not None for group in batch.groups)
    return torch.cat(batch.split(apart_N)).sum() if is_padded else apart_N.sum()


def relation_loss(student_N3HK: Tensor, teacher_N3HK: Tensor, batch: Batch, heads: int) -> Tensor:
    """Add up KL(teacher || student) of how tokens relate, over queries, keys and values, the mean over relation heads.

    Both sides are cut into the same number of relation heads, whatever heads they attend with.
    """
    ours, theirs = (torch.unflatten(states.flatten(2), 2, (heads, -1)) for states in (student_N3HK, teacher_N3HK))
    total = student_N3HK.new_zeros((), dtype=torch.float32)
    for group, ours_B3HTK, theirs_B3HTK in _groups(batch, ours, theirs):
        student, teacher = (_relations(states, group) for states in (ours_B3HTK, theirs_B3HTK))
        losses_B3HT = (teacher.exp() * (teacher - student)).nan_to_num().sum(-1)
        if group.mask_BT is not None:
            losses_B3HT = losses_B3HT * group.mask_BT[:, None, None]
        total = total + losses_B3HT.mean(2).sum()
    return total


def contrastive_distillation_loss(student_BD: Tensor, teacher_BD: Tensor, temperature: float) -> Tensor:
    """Sum the contrastive loss (InfoNCE) of matching each of the student's vectors with the teacher's, by cosine."""
    ours, theirs = (functional.normalize(vectors.float(), dim=-1) for vectors in (student_BD, teacher_BD))
    right_B = torch.arange(len(ours), device=ours.device)
    return functional.cross_entropy(_matmul_full_precision(ours, theirs.mT) / temperature, right_B, reduction="sum")


def _groups(batch: Batch, *flat: Tensor) -> Iterator[tuple[DocumentGroup, Tensor, Tensor]]:
    """Yield each group with its part of two flat tensors (N, x, H, K), as (B, x, H, T, K)."""
    sizes = [group.stop - group.start for group in batch.groups]
    for group, *parts in zip(batch.groups, *(torch.split(states, sizes) for states in flat), strict=True):
        one, other = (torch.unflatten(part, 0, (group.rows, group.length)).permute(0, 2, 3, 1, 4) for part in parts)
        yield group, one, other


def _scores(qk_B2HTK: Tensor) -> Tensor:
    """Return attention scores (B, H, T, T) before the softmax."""
    q, k = qk_B2HTK[:, 0].float(), qk_B2HTK[:, 1].float()
    return _matmul_full_precision(q, k.mT) / math.sqrt(q.shape[-1])


def _relations(parts_B3HTK: Tensor, group: DocumentGroup) -> Tensor:
    """Return logarithms (B, 3, H, T, T) of how tokens relate to each other by queries, by keys and by values."""
    parts = parts_B3HTK.float()
    scores = _matmul_full_precision(parts, parts.mT) / math.sqrt(parts.shape[-1])
    if group.mask_BT is not None:
        scores = scores.masked_fill(~group.mask_BT[:, None, None, None, :], -math.inf)
    return scores.log_softmax(-1)


def _matmul_full_precision(left: Tensor, right: Tensor) -> Tensor:
    """Multiply as precisely as the numbers are, also where the products of a model are rounded (autocast)."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right
