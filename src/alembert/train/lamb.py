"""LAMB, Adam for very large batches (You et al. 2020, https://arxiv.org/abs/1904.00962).

Each matrix moves by a step as long as itself times the rate, in the direction that Adam with weight decay gives. Biases
and layer norms, which do not decay, take Adam's step as it is, as in the authors' code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def lamb(
    weights: list[Tensor],
    gradients: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    steps: list[Tensor],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    trust: bool,
) -> None:
    """Make one step in place; every tensor of `steps` counts the steps of its weights. `trust`: scale the step."""
    torch._foreach_add_(steps, 1.0)
    torch._foreach_lerp_(exp_avgs, gradients, 1 - beta1)
    torch._foreach_mul_(exp_avg_sqs, beta2)
    torch._foreach_addcmul_(exp_avg_sqs, gradients, gradients, value=1 - beta2)
    counts = torch.stack(steps).tolist()
    update = list(torch._foreach_div(exp_avgs, [1 - beta1**count for count in counts]))
    size = torch._foreach_sqrt(exp_avg_sqs)
    torch._foreach_div_(size, [math.sqrt(1 - beta2**count) for count in counts])
    torch._foreach_add_(size, eps)
    torch._foreach_div_(update, size)
    if weight_decay:
        torch._foreach_add_(update, weights, alpha=weight_decay)
    if trust:
        torch._foreach_mul_(update, _trust(weights, update))
    torch._foreach_add_(weights, update, alpha=-lr)


def _trust(weights: list[Tensor], update: list[Tensor]) -> list[float]:
    """Return the ratio of lengths of weights and step; 1 where one of them is zero."""
    lengths = torch.stack(torch._foreach_norm(weights)).tolist()
    of_update = torch.stack(torch._foreach_norm(update)).tolist()
    return [length / step if length and step else 1.0 for length, step in zip(lengths, of_update, strict=True)]
