"""How weights follow gradients: AdamW, BERT's Adam and LAMB, clipping, rates by depth, and partial updates.

In: the gradients that a step has left in `parameter.grad`, and the scheduled rate. Out: changed parameters, and the
norm of the gradients. A parameter without a gradient, or frozen, stays exactly as it is: no decay, no change of its
moments. The update rules are functions over lists of tensors, so that a step is a few fused calls, and all state is
here, under the names of the parameters. AdamW also works on the sharded parameters of FSDP; LAMB, which needs the norm
of each matrix, does not.

LAMB is Adam for very large batches (You et al. 2020, https://arxiv.org/abs/1904.00962): each matrix moves by a step as
long as itself times the rate, in the direction that Adam with weight decay gives. Biases and layer norms, which do not
decay, take Adam's step as it is, as in the authors' code.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim.adamw import adamw

from alembert.errors import BadFile, BadSetting
from alembert.nn.model import Model
from alembert.train.parts import get_depth, has_weight_decay, view_by_head
from alembert.train.settings import OptimiserSettings


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


_UNCORRECTED_STEP: Final = 2.0**24
"""A step count that does not grow, since adding one to it in float32 changes nothing, and at which the corrections
of Adam's moments for their start at zero are exactly one: how an update rule goes without them."""
_OTHER_RUN: Final = "it belongs to another model or other settings. Continue with those, or begin anew."


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """What Adam remembers of one piece."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor

    @classmethod
    def at_start(cls, weights: Tensor, step: float) -> _Moments:
        count = torch.tensor(step, dtype=torch.float32, device=weights.device)
        return cls(torch.zeros_like(weights), torch.zeros_like(weights), count)


@dataclass(frozen=True, slots=True, eq=False)
class _ParameterSlice:
    """What is updated as one: a parameter, or a copy of half of its heads."""

    key: str
    name: str
    weights: Tensor
    gradient: Tensor
    home: Tensor | None = None
    """Where the copy belongs."""


class Optimiser:
    """Updates a model from the gradients of its parameters."""

    def __init__(self, model: Model, settings: OptimiserSettings) -> None:
        self._settings = settings
        self._heads = model.config.num_attention_heads
        if settings.half_heads and self._heads == 1:
            raise BadSetting("`half_heads` trains half of the attention heads, and the model has one. Switch it off.")
        self._parameters = dict(model.named_parameters())
        layers = len(model.encoder.blocks)
        depths = {name: get_depth(name, layers) for name in self._parameters}
        self._every = {name: settings.every(depth) for name, depth in depths.items()}
        self._groups = {
            name: (has_weight_decay(name, self._parameters[name]), settings.factor(depth, layers))
            for name, depth in depths.items()
        }
        """Whether a parameter decays, and the factor on its rate."""
        self._moments: dict[str, _Moments] = {}
        self._pending: dict[str, tuple[Tensor, int]] = {}
        """Gradients that are collecting: their sum, and how many."""

    @torch.no_grad()
    def step(self, number: int, rate: float) -> float:
        """Update the parameters at a rate, clear their gradients, and return the norm of what was due before clipping.

        `number` counts the steps of the run from 0. A norm that is not finite means that nothing was changed and the
        gradients of the step are lost. It is 0 if no layer was due.
        """
        gradients = self._take()
        if max(self._settings.update_every, default=1) > 1:
            norm = _norm(gradients.values())
            if not math.isfinite(norm):
                return norm
            gradients = self._collect(number, gradients)
        pieces = [self._piece(number, name, gradient) for name, gradient in gradients.items()]
        norm = _norm(piece.gradient for piece in pieces)
        if math.isfinite(norm):
            self._update(pieces, norm, rate)
        return norm

    def reset(self) -> None:
        """Forget all moments and gradients, as for a new run."""
        self._moments.clear()
        self._pending.clear()

    def state(self) -> dict[str, Tensor]:
        """Return what `load` needs to continue; the tensors are the optimiser's own, not copies.

        Halves of heads have keys of their own, such as `exp_avg/<parameter>#even`.
        """
        state = {}
        for key, moments in self._moments.items():
            state[f"exp_avg/{key}"] = moments.exp_avg
            state[f"exp_avg_sq/{key}"] = moments.exp_avg_sq
            state[f"step/{key}"] = moments.step
        for name, (total, count) in self._pending.items():
            state[f"pending/{name}"] = total
            state[f"collected/{name}"] = torch.tensor(count)
        return state

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state, which is copied."""
        kinds = [item.name for item in fields(_Moments)]
        self._moments = {
            key: _Moments(**{kind: self._copied(state, kind, key) for kind in kinds}) for key in _keys(state, "step")
        }
        self._pending = {
            name: (self._copied(state, "pending", name), int(self._copied(state, "collected", name)))
            for name in _keys(state, "pending")
        }

    def _copied(self, state: Mapping[str, Tensor], kind: str, key: str) -> Tensor:
        weights, saved = self._weights(key), state.get(f"{kind}/{key}")
        shape = () if kind in ("step", "collected") else weights.shape
        if saved is None or saved.shape != shape:
            problem = "missing" if saved is None else f"of the shape {tuple(saved.shape)}"
            raise BadFile(f"In the saved state of the optimiser, {kind}/{key} is {problem}; {_OTHER_RUN}")
        return saved.to(weights.device, copy=True) if shape == () else torch.empty_like(weights).copy_(saved)

    def _take(self) -> dict[str, Tensor]:
        """Take the gradients away from the parameters that train, in the order of the parameters."""
        taken = {}
        for name, parameter in self._parameters.items():
            if parameter.grad is not None and parameter.requires_grad:
                taken[name] = parameter.grad
            parameter.grad = None
        return taken

    def _collect(self, number: int, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add gradients to those that wait, and give the means of the layers whose turn it is."""
        due = {name: gradient for name, gradient in gradients.items() if self._every[name] == 1}
        for name, parameter in self._parameters.items():
            if name in gradients and name not in due:
                total, count = self._pending.get(name) or (torch.zeros_like(parameter), 0)
                self._pending[name] = (total.add_(gradients[name]), count + 1)
            its_turn = parameter.requires_grad and (number + 1) % self._every[name] == 0
            if its_turn and name in self._pending:
                total, count = self._pending.pop(name)
                due[name] = total.div_(count)
        return due

    def _piece(self, number: int, name: str, gradient: Tensor) -> _ParameterSlice:
        parameter = self._parameters[name]
        of_heads = view_by_head(name, gradient, self._heads) if self._settings.half_heads else None
        if of_heads is None:
            return _ParameterSlice(name, name, parameter, _match_layout(gradient, parameter))
        # Counted in updates, not in steps: a layer updated in every second step would always train the same half.
        odd = number // self._every[name] % 2
        key = f"{name}#{'odd' if odd else 'even'}"
        home = self._weights(key)
        return _ParameterSlice(key, name, home.contiguous(), of_heads[:, odd::2].contiguous(), home)

    def _weights(self, key: str) -> Tensor:
        """Return the weights that a key of the state stands for."""
        name, _, half = key.partition("#")
        weights: Tensor | None = self._parameters.get(name)
        if half and weights is not None:
            of_heads = view_by_head(name, weights, self._heads) if self._settings.half_heads else None
            weights = None if of_heads is None else of_heads[:, half == "odd" :: 2]
        if weights is None:
            raise BadFile(f"The saved state of the optimiser holds {key}, which is not trained here; {_OTHER_RUN}")
        return weights

    def _update(self, pieces: list[_ParameterSlice], norm: float, rate: float) -> None:
        clip = self._settings.clip
        excess = 1.0 if clip is None else max(1.0, norm / clip)
        groups: dict[tuple[bool, float], list[_ParameterSlice]] = defaultdict(list)
        for piece in pieces:
            groups[self._groups[piece.name]].append(piece)
        for (decayed, factor), members in groups.items():
            self._apply_rule(members, rate * factor, decayed, excess)
        for piece in pieces:
            if piece.home is not None:
                piece.home.copy_(piece.weights)

    def _apply_rule(self, pieces: list[_ParameterSlice], rate: float, decayed: bool, excess: float) -> None:
        moments = [self._moments_of(piece) for piece in pieces]
        lists = (
            [piece.weights for piece in pieces],
            [piece.gradient for piece in pieces],
            [moment.exp_avg for moment in moments],
            [moment.exp_avg_sq for moment in moments],
        )
        steps = [moment.step for moment in moments]
        of = self._settings
        decay = of.weight_decay if decayed else 0.0
        if of.name == "lamb":
            if excess > 1.0:
                torch._foreach_div_(lists[1], excess)
            lamb(
                *lists,
                steps,
                lr=rate,
                beta1=of.beta1,
                beta2=of.beta2,
                eps=of.epsilon,
                weight_decay=decay,
                trust=decayed,
            )
        else:
            adamw(
                *lists,
                [],
                steps,
                fused=True,
                # Divided inside the kernel: one pass less over all gradients.
                grad_scale=None if excess == 1.0 else torch.tensor(excess, device=steps[0].device),
                amsgrad=False,
                maximize=False,
                lr=rate,
                beta1=of.beta1,
                beta2=of.beta2,
                eps=of.epsilon,
                weight_decay=decay,
            )

    def _moments_of(self, piece: _ParameterSlice) -> _Moments:
        if piece.key not in self._moments:
            start = 0.0 if self._settings.corrects else _UNCORRECTED_STEP
            self._moments[piece.key] = _Moments.at_start(piece.weights, start)
        return self._moments[piece.key]


def _norm(gradients: Iterable[Tensor]) -> float:
    norm = get_total_norm(gradients)
    # With FSDP, what there is here is one process's share of it.
    whole = getattr(norm, "full_tensor", None)
    return float(norm if whole is None else whole())


def _match_layout(gradient: Tensor, parameter: Tensor) -> Tensor:
    """Copy a gradient into the memory layout of its parameter: fused kernels walk through both without a look at strides."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


def _keys(state: Mapping[str, Tensor], kind: str) -> list[str]:
    return [key.removeprefix(f"{kind}/") for key in state if key.startswith(f"{kind}/")]
