"""Presets of distillation: settings that belong together, each a function that returns them.

`tinybert` is the published procedure, stage by stage; `fast` does it in a fraction of the time.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from alembert.errors import BadSetting
from alembert.files.student_shape import StudentSettings
from alembert.train.augment_settings import AugmentSettings
from alembert.train.distill_settings import (
    DistillSettings,
    GeneralSettings,
    InsideWeights,
    StageSettings,
    StageWeights,
)
from alembert.train.finetune_settings import usual_settings
from alembert.train.optim_settings import OptimiserSettings
from alembert.train.schedule import ScheduleSettings
from alembert.train.settings import BatchSettings, EvaluationSettings, SavingSettings


def tinybert() -> DistillSettings:
    """TinyBERT as published: twenty copies; attention, states and embeddings at a constant 5e-5, then answers at 3e-5."""
    return DistillSettings(
        student=StudentSettings(start="scratch"),
        augment=AugmentSettings(copies=20),
        intermediate=StageSettings(
            epochs=10.0,
            losses=StageWeights(attention=1.0, hidden=1.0, embeddings=1.0, projection="shared", fitted=False),
            optimiser=OptimiserSettings(rate=5e-5),
            schedule=ScheduleSettings(kind="constant", warmup=0.0),
            saving=SavingSettings(keep="last"),
        ),
        prediction=StageSettings(
            epochs=3.0,
            losses=StageWeights(prediction=1.0),
            optimiser=OptimiserSettings(rate=3e-5),
            schedule=ScheduleSettings(warmup=0.1),
        ),
    )


def fast() -> DistillSettings:
    """A student that begins as its teacher: states for a few passes at a high rate, then answers."""
    return DistillSettings(
        intermediate=StageSettings(
            epochs=3.0,
            losses=StageWeights(hidden=1.0),
            optimiser=OptimiserSettings(rate=5e-4),
            schedule=ScheduleSettings(warmup=0.06),
            saving=SavingSettings(keep="last"),
            evaluation=EvaluationSettings(at_start=False),
        ),
        prediction=StageSettings(
            epochs=5.0,
            losses=StageWeights(prediction=1.0, hard=0.5),
            optimiser=OptimiserSettings(rate=2e-4),
        ),
    )


PRESETS: Final[dict[str, Callable[[], DistillSettings]]] = {"fast": fast, "tinybert": tinybert}


def preset_for(name: str, task: str) -> DistillSettings:
    """Give a preset whose steps are as large as they are usual for a task."""
    settings, batch = PRESETS[name](), usual_settings(task).batch
    return replace(
        settings,
        intermediate=replace(settings.intermediate, batch=batch),
        prediction=replace(settings.prediction, batch=batch),
    )


def general_tinybert() -> GeneralSettings:
    """TinyBERT's general stage: attention, states and embeddings on plain text, a student from nothing."""
    return GeneralSettings(
        student=StudentSettings(start="scratch"),
        losses=InsideWeights(attention=1.0, hidden=1.0, embeddings=1.0, projection="shared", fitted=False),
        batch=BatchSettings(tokens=256 * 128),
        optimiser=OptimiserSettings(rate=1e-4),
        schedule=ScheduleSettings(warmup=0.1),
    )


def general_fast() -> GeneralSettings:
    """A student that begins as its teacher and learns its states on plain text."""
    return GeneralSettings(
        losses=InsideWeights(hidden=1.0),
        batch=BatchSettings(tokens=2048, micro_tokens=1024),
        optimiser=OptimiserSettings(rate=5e-4),
        schedule=ScheduleSettings(warmup=0.06),
    )


GENERAL: Final[dict[str, Callable[[], GeneralSettings]]] = {
    "fast": general_fast,
    "tinybert": general_tinybert,
}


@dataclass(frozen=True)
class Control:
    """A run that a student is compared with."""

    settings: DistillSettings
    has_texts: bool
    """Whether plain text that was given is labelled by the teacher here too."""


def controls(settings: DistillSettings, *, has_texts: bool = False) -> dict[str, Control]:
    """Give the runs that a student is compared with: the same student without its teacher, and without new texts."""
    plain = replace(settings.prediction, losses=StageWeights(hard=1.0))
    alone = replace(settings, intermediate=replace(settings.intermediate, skip=True), prediction=plain)
    uncopied = replace(settings.augment, copies=0)
    found = {"without distillation": Control(replace(alone, augment=uncopied), False)}
    if settings.augment.copies:
        found["without augmentation"] = Control(replace(settings, augment=uncopied), has_texts)
    if has_texts:
        found["without plain text"] = Control(settings, False)
    return found


def check_preset(name: str) -> str:
    """Refuse a name that is no preset."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadSetting(f"There is no preset {name!r}; expected {' or '.join(PRESETS)}.{hint}")
    return name
