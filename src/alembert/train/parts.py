"""The parts of a model: which parameter belongs to which, and which parts are trained first.

The parts are what people freeze (embeddings, layers, heads); the depth orders them from the input to the output.

The gradients of a fresh head would distort the encoder below it (Kumar et al. 2022, https://arxiv.org/abs/2202.10054),
so the head can be trained alone until its loss stops falling. In: settings, how far the run is and the losses of its
steps. Out: when this first step is over, which parts train, and the learning rate. With `restart`, the other parts then
begin like a run of their own: at the rate zero, without moments that were collected by others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

import torch
from torch import Tensor

from alembert.errors import BadSetting
from alembert.nn.model import Model
from alembert.train.settings import MODEL_PARTS, ModelSettings, RunSettings, get_rate_factor

_PART_PREFIXES: Final = {
    "encoder.embeddings.": "embeddings",
    "encoder.blocks.": "layers",
    "encoder.final_norm.": "layers",
    "pooler.": "heads",
    "heads.": "heads",
}


def get_model_part(name: str) -> str:
    """Return the part of a parameter: `embeddings`, `layers` or `heads`.

    >>> get_model_part("encoder.blocks.3.inner.weight"), get_model_part("pooler.dense.bias")
    ('layers', 'heads')
    """
    for beginning, part in _PART_PREFIXES.items():
        if name.startswith(beginning):
            return part
    raise ValueError(f"{name} is no parameter of a model")


def get_depth(name: str, layers: int) -> int:
    """Count how far a parameter is from the input: 0 embeddings, 1 the first block, `layers` + 1 pooler and heads.

    The norm after the last block has the block's depth. Blocks that are applied several times count once.

    >>> get_depth("encoder.blocks.3.inner.weight", 12), get_depth("heads.tags.linear.bias", 12)
    (4, 13)
    """
    part = get_model_part(name)
    if part == "embeddings":
        return 0
    if part == "heads":
        return layers + 1
    _, kind, number, *_ = name.split(".")
    return int(number) + 1 if kind == "blocks" else layers


def has_weight_decay(name: str, parameter: Tensor) -> bool:
    """Return whether weight decay applies: everywhere but on biases, layer norms (as in BERT) and the moves of a CRF.

    What has one dimension is a bias, or part of a layer norm or of a CRF. Scores of moves are biases too: decay would
    only make unlikely moves likelier.
    """
    return parameter.ndim > 1 and not name.endswith(("bias", ".crf.transitions"))


def view_by_head(name: str, tensor: Tensor, heads: int) -> Tensor | None:
    """View a parameter (or its gradient) of attention with the heads as second dimension; none: it has no heads.

    The bias of the output projection belongs to no head. Heads that have an encoder of their own are trained whole.
    """
    if not name.startswith("encoder."):
        return None
    if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
        return torch.unflatten(tensor, 0, (3, heads, -1))
    if name.endswith("attention.out.weight"):
        return torch.unflatten(tensor, 1, (heads, -1))
    return None


def set_trainable_parts(
    model: Model,
    parts: Collection[str] | None = None,
    *,
    frozen: Collection[str] = (),
    thawed: float = 1.0,
) -> None:
    """Let the named parts train (none: all of them), without those that are frozen or not thawed yet.

    Frozen are parts, or the lowest layers, such as `layers:4`. A model thaws from the top down: with nothing thawed the
    heads train alone, with the share 1 everything does, and in between all levels take equally long.
    """
    chosen = MODEL_PARTS if parts is None else parts
    _check_parts(chosen)
    deepest = _deepest_frozen(model, frozen)
    levels = len(model.encoder.blocks) + 1
    lowest = levels - int(min(thawed, 1.0) * levels)
    for name, parameter in model.named_parameters():
        part, depth = get_model_part(name), get_depth(name, levels - 1)
        held = part in frozen or depth < lowest or (part == "layers" and depth <= deepest)
        parameter.requires_grad_(part in chosen and not held)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadSetting(
            f"Nothing is left to train: the chosen parts are {', '.join(chosen)}, and they are frozen or come later. "
            "Look at `frozen`, `first` and `unfreeze_share` of the model."
        )


def _check_parts(parts: Collection[str]) -> None:
    unknown = sorted(set(parts) - set(MODEL_PARTS))
    if unknown or not parts:
        names = ", ".join(unknown) or "nothing"
        raise BadSetting(f"The parts to train are {names}; expected some of {', '.join(MODEL_PARTS)}.")


def _deepest_frozen(model: Model, frozen: Collection[str]) -> int:
    """Count how many layers, from the lowest up, are frozen by their number."""
    deepest = max((int(name.partition(":")[2]) for name in frozen if ":" in name), default=0)
    stored, applied = len(model.encoder.blocks), len(model.encoder.order)
    if deepest and stored < applied:
        raise BadSetting(
            f"`frozen` names the lowest {deepest} layers, and the {applied} layers of this model share their weights. "
            "Freeze `layers` as a whole, or none."
        )
    if deepest > stored:
        raise BadSetting(f"`frozen` names the lowest {deepest} layers, and the model has {stored}.")
    return deepest


def choose_parts(model: Model, settings: ModelSettings, progress: float, *, alone: bool) -> None:
    """Let those parts of a model train whose time has come; `alone`: the first ones alone."""
    thawed = progress / settings.unfreeze_share if settings.unfreeze_share else 1.0
    set_trainable_parts(model, settings.first if alone else None, frozen=settings.frozen, thawed=thawed)


def is_first_step_over(progress: float, losses: Sequence[float], settings: ModelSettings) -> bool:
    """Return whether all parts are to be trained, by the share of the run that is done or the losses of the first parts."""
    return progress >= settings.first_share or has_plateaued(
        losses, settings.first_plateau, settings.first_plateau_steps
    )


def add_first_loss(losses: list[float], loss: float, steps: int) -> None:
    """Add the loss of a step, and forget those that no comparison of so many steps needs any more."""
    losses.append(loss)
    del losses[: -2 * steps]


def has_plateaued(losses: Sequence[float], improvement: float | None, steps: int) -> bool:
    """Return whether the last losses are better than as many before them by less than this share; none: never.

    >>> has_plateaued([5.0, 5.0, 4.99, 4.99], 0.01, 2), has_plateaued([5.0, 5.0, 4.5, 4.5], 0.01, 2)
    (True, False)
    """
    if improvement is None or len(losses) < 2 * steps:
        return False
    before, after = fmean(losses[-2 * steps : -steps]), fmean(losses[-steps:])
    return before - after < improvement * before


def get_learning_rate(progress: float, freed: float | None, settings: RunSettings) -> float:
    """Return the rate of a step; `freed` is the progress at which all parts were freed, none: they are not yet."""
    schedule, model, peak = settings.schedule, settings.model, settings.optimiser.learning_rate
    if freed is not None:
        rest = (progress - freed) / (1 - freed) if schedule.restart and freed < 1 else progress
        return peak * get_rate_factor(rest, schedule)
    if schedule.restart:  # when the first step ends is not known, so its rate does not fall
        progress, schedule = progress / model.first_share, replace(schedule, kind="constant", final=0.0)
    return (model.first_learning_rate or peak) * get_rate_factor(progress, schedule)
