"""How far a student is from its teacher inside: attention, hidden states, relations between tokens, whole texts.

In: what both computed for one flat batch. Out: one sum, whose mean the caller takes over the tokens, pairs of tokens or
documents of a whole step. TinyBERT (Jiao et al. 2020) compares attention scores before the softmax and hidden states,
by squared error; MiniLM (Wang et al. 2021) the relations of tokens to each other as queries, keys and values see them,
which asks for neither the teacher's width nor its number of heads. Only real tokens count: the published code
averages over padding too, which makes its loss depend on what a text is batched with.
"""

# N tokens, B documents, T tokens of a document, D width, H heads, K head size
from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from alembert.nn.attention import Plan
from alembert.nn.batch import Batch, Group


def pairs_of(batch: Batch, attention: str = "bidirectional") -> int:
    """Count the pairs of tokens of which one looks at the other: what `attention_error` is a sum over.

    >>> pairs_of(Batch.packed([[5, 6, 7]])), pairs_of(Batch.packed([[5, 6, 7]]), "causal")
    (9, 6)
    """
    both_ways = {"bidirectional": batch.lengths, "prefix": batch.prefixes}.get(attention)
    return sum(map(_looks, batch.lengths, both_ways or [0] * len(batch.lengths)))


def _looks(length: int, both_ways: int) -> int:
    """Count the looks in a document whose first tokens see each other, and the others what is before them."""
    return both_ways**2 + (length * (length + 1) - both_ways * (both_ways + 1)) // 2


def attention_error(
    student_N3HK: Tensor, teacher_N2HK: Tensor, batch: Batch, attention: str = "bidirectional"
) -> Tensor:
    """Add up the squared differences of attention scores, the mean over heads, over all pairs of `pairs_of`."""
    total = student_N3HK.new_zeros((), dtype=torch.float32)
    plans = Plan.of(batch, attention).groups
    for plan, (group, ours, theirs) in zip(plans, _groups(batch, student_N3HK, teacher_N2HK), strict=True):
        apart_BHTT = _scores(ours) - _scores(theirs)
        if (allowed_B1TT := plan.mask(apart_BHTT.device)) is not None:
            apart_BHTT = apart_BHTT.masked_fill(~allowed_B1TT, 0)
        if group.real_BT is not None:
            apart_BHTT = apart_BHTT.masked_fill(~group.real_BT[:, None, :, None], 0)
        total = total + apart_BHTT.square().mean(1).sum()
    return total


def hidden_error(student_ND: Tensor, teacher_ND: Tensor, batch: Batch) -> Tensor:
    """Add up the squared differences of states of one width, the mean over the width, over all tokens."""
    apart_N = (student_ND.float() - teacher_ND.float()).square().mean(-1)
    is_padded = any(group.real_BT is not None for group in batch.groups)
    return torch.cat(batch.split(apart_N)).sum() if is_padded else apart_N.sum()


def relation_error(student_N3HK: Tensor, teacher_N3HK: Tensor, batch: Batch, heads: int) -> Tensor:
    """Add up KL(teacher || student) of how tokens relate, over queries, keys and values, the mean over relation heads.

    Both sides are cut into the same number of relation heads, whatever heads they attend with.
    """
    ours, theirs = (torch.unflatten(each.flatten(2), 2, (heads, -1)) for each in (student_N3HK, teacher_N3HK))
    total = student_N3HK.new_zeros((), dtype=torch.float32)
    for group, ours_B3HTK, theirs_B3HTK in _groups(batch, ours, theirs):
        student, teacher = (_relations(each, group) for each in (ours_B3HTK, theirs_B3HTK))
        each_B3HT = (teacher.exp() * (teacher - student)).nan_to_num().sum(-1)
        if group.real_BT is not None:
            each_B3HT = each_B3HT * group.real_BT[:, None, None]
        total = total + each_B3HT.mean(2).sum()
    return total


def contrastive_error(student_BD: Tensor, teacher_BD: Tensor, temperature: float) -> Tensor:
    """Add up how hard it is to tell, by the cosine, which of the teacher's vectors belongs to a student's (InfoNCE)."""
    ours, theirs = (functional.normalize(each.float(), dim=-1) for each in (student_BD, teacher_BD))
    right_B = torch.arange(len(ours), device=ours.device)
    return functional.cross_entropy(_times(ours, theirs.mT) / temperature, right_B, reduction="sum")


def _groups(batch: Batch, *flat: Tensor) -> Iterator[tuple[Group, Tensor, Tensor]]:
    """Yield each group with its part of two flat tensors (N, x, H, K), as (B, x, H, T, K)."""
    sizes = [group.stop - group.start for group in batch.groups]
    for group, *parts in zip(batch.groups, *(torch.split(each, sizes) for each in flat), strict=True):
        one, other = (torch.unflatten(part, 0, (group.rows, group.length)).permute(0, 2, 3, 1, 4) for part in parts)
        yield group, one, other


def _scores(qk_B2HTK: Tensor) -> Tensor:
    """Give attention scores (B, H, T, T) before the softmax, of queries and keys."""
    q, k = qk_B2HTK[:, 0].float(), qk_B2HTK[:, 1].float()
    return _times(q, k.mT) / math.sqrt(q.shape[-1])


def _relations(parts_B3HTK: Tensor, group: Group) -> Tensor:
    """Give logarithms (B, 3, H, T, T) of how tokens relate to each other by queries, by keys and by values."""
    parts = parts_B3HTK.float()
    scores = _times(parts, parts.mT) / math.sqrt(parts.shape[-1])
    if group.real_BT is not None:
        scores = scores.masked_fill(~group.real_BT[:, None, None, None, :], -math.inf)
    return scores.log_softmax(-1)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """Multiply as precisely as the numbers are, also where the products of a model are rounded (autocast)."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right
