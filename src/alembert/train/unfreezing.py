"""Two steps of a run: some parts are trained alone at first, then everything is.

In: settings, how far the run is and the losses of its steps. Out: when the first step is over, which parts train, and the
learning rate. The gradients of a fresh head would distort the encoder below it (Kumar et al. 2022, https://arxiv.org/abs/2202.10054),
so the head is trained alone until its loss stops falling. With `restart`, the other parts then begin like a run of their
own: at the rate zero, without moments that were collected by others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from alembert.nn.model import Model
from alembert.train.parts import set_trainable_parts
from alembert.train.schedule import get_rate_factor
from alembert.train.settings import ModelSettings, RunSettings


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
