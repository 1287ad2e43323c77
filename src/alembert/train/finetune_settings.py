"""What `finetune` can be told, whatever the task; each task has settings of its own beside these.

`EpochSettings` are what distillation for a task shares with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from alembert.errors import BadSetting
from alembert.settings import changed
from alembert.tasks.settings import LossSettings
from alembert.tasks.task import get_task_class
from alembert.train.regularise_settings import RegulariseSettings
from alembert.train.schedule import ScheduleSettings
from alembert.train.settings import BatchSettings, EvaluationSettings, RunSettings, SavingSettings
from alembert.train.several_settings import MaskedLMSettings, SeveralSettings


@dataclass(frozen=True, kw_only=True)
class EpochSettings(RunSettings):
    """How a model learns from labelled examples, in passes over them."""

    epochs: float = 5.0
    """Passes over the training data, unless hours, tokens or steps are given."""
    looks: float = 1.0
    """How often in a pass the model is judged on the development data."""
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(tokens=512, micro_tokens=256))
    """The size of a step."""
    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(warmup=0.06))
    """How the rate changes over the run."""
    evaluation: EvaluationSettings = field(default_factory=lambda: EvaluationSettings(at_start=False))
    """What follows from judging; `times` is found from `looks`."""
    saving: SavingSettings = field(default_factory=lambda: SavingSettings(keep="best"))
    """How often the state is saved, and which weights are written."""
    loss: LossSettings = field(default_factory=LossSettings)
    """What is added to the plain loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "looks"):
            if not 0 < getattr(self, name) < 10_000:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected a positive number of passes.")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(EpochSettings):
    """How a model is fine-tuned."""

    regularise: RegulariseSettings = field(default_factory=RegulariseSettings)
    """R-Drop and adversarial training."""
    masked_lm: MaskedLMSettings = field(default_factory=MaskedLMSettings)
    """Masked LM on the same rows, beside the task."""
    several: SeveralSettings = field(default_factory=SeveralSettings)
    """How several tasks share a run."""
    forget_training: bool = False
    """Write no hashes of the training texts and entities, for a folder that is given away."""


def usual_settings(task: str) -> FinetuneSettings:
    """Give the settings of a run as they are usual for a task alone; several tasks have no habits in common."""
    return changed(FinetuneSettings(), get_task_class(task).usual, f"The task {task}")
