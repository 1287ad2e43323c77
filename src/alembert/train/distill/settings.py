"""Settings of `distill`: which losses bind a student to its teacher, in which stages, and how the student begins.

A preset is a function that returns settings that belong together: `tinybert` is the published procedure, stage by
stage; `fast` does it in a fraction of the time.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from alembert.errors import BadSetting
from alembert.files.student_shape import StudentSettings
from alembert.tasks.settings import DistillLossSettings
from alembert.train.augment import AugmentSettings
from alembert.train.finetune.settings import EpochSettings, get_default_settings
from alembert.train.pretrain.settings import HeldOutSettings, SequenceSettings
from alembert.train.settings import (
    BatchSettings,
    EvaluationSettings,
    OptimiserSettings,
    RunSettings,
    SavingSettings,
    ScheduleSettings,
)

LAYER_LOSSES: Final = ("attention", "hidden", "embeddings", "relations", "contrastive")
"""Losses that compare the layers of both models."""
ANSWER_LOSSES: Final = ("prediction", "labels")
"""Losses of what the student's head answers."""


@dataclass(frozen=True, kw_only=True)
class LayerLossWeights:
    """How much each loss between layers counts; 0 leaves it out."""

    attention: float = 0.0
    """Attention scores before the softmax, layer by layer (TinyBERT); needs the teacher's number of heads."""
    hidden: float = 0.0
    """Hidden states after each layer, projected to the teacher's hidden size (TinyBERT)."""
    embeddings: float = 0.0
    """Output of the embeddings, projected to the teacher's hidden size (TinyBERT)."""
    relations: float = 0.0
    """Query, key and value relations of one layer (MiniLM); for any hidden size and number of heads."""
    contrastive: float = 0.0
    """Contrastive loss between the mean hidden states of student and teacher over the texts of a batch."""
    layer_map: Literal["uniform", "last", "given"] = "uniform"
    """Teacher layers that the student's layers are matched with: uniform, last, or given (those of `layers`)."""
    layers: tuple[int, ...] = ()
    """For given: one teacher layer, from 1, for each of the student's layers, in ascending order."""
    projection: Literal["auto", "each", "shared"] = "auto"
    """Projections to the teacher's hidden size: each (one per layer) or shared (one for all, as in the first TinyBERT);
    auto: each if the hidden sizes differ, else none."""
    fitted: bool = True
    """Initialise projections by least squares on the first texts; false: at random (TinyBERT)."""
    relation_heads: int = 12
    """Number of relation heads of `relations`; divides both hidden sizes."""
    relation_layer: int | None = None
    """Teacher layer, from 1, whose relations the student's last layer is matched with; none: the last."""
    temperature: float = 0.05
    """Temperature of `contrastive`."""

    def __post_init__(self) -> None:
        for name in self.names:
            weight = getattr(self, name)
            if not 0 <= weight < float("inf"):
                raise BadSetting(f"The weight of `{name}` is {weight}; expected 0 (leave it out) or a positive number.")
        if (self.layer_map == "given") != bool(self.layers):
            raise BadSetting('`layers` and layer_map = "given" belong together: give both, or neither.')
        if self.relation_heads < 1 or self.temperature <= 0:
            raise BadSetting("`relation_heads` and `temperature` of the losses are positive numbers.")

    @property
    def names(self) -> tuple[str, ...]:
        """The losses that there are."""
        return LAYER_LOSSES

    def chosen(self) -> dict[str, float]:
        """Return the losses that have a weight."""
        return {name: getattr(self, name) for name in self.names if getattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class StageLossWeights(LayerLossWeights):
    """Weights of the losses of a stage; 0: off."""

    prediction: float = 0.0
    """Soft labels: the teacher's predictions."""
    labels: float = 0.0
    """Gold labels of the training data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.chosen():
            raise BadSetting("All losses of a stage have the weight 0. Give at least one, or epochs = 0.")

    @property
    def names(self) -> tuple[str, ...]:
        return (*LAYER_LOSSES, *ANSWER_LOSSES)


@dataclass(frozen=True, kw_only=True)
class StageSettings(EpochSettings):
    """One stage of distillation for a task."""

    skip: bool = False
    """Skip this stage; epochs = 0 does the same."""
    losses: StageLossWeights = field(default_factory=lambda: StageLossWeights(prediction=1.0))
    """Weights of the losses."""
    imitation: DistillLossSettings = field(default_factory=DistillLossSettings)
    """How the teacher's predictions are distilled."""

    def __post_init__(self) -> None:
        if self.epochs == 0:
            object.__setattr__(self, "skip", True)
            object.__setattr__(self, "epochs", type(self).epochs)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TeacherCacheSettings:
    """Cache of the teacher's outputs on disk."""

    use: Literal["auto", "never"] = "auto"
    """auto: compute the teacher's outputs once, if they fit into `gigabytes`; never: compute them in every epoch."""
    gigabytes: float = 20.0
    """Maximum size of the cache, at most half of the free disk space."""

    def __post_init__(self) -> None:
        if self.use not in ("auto", "never") or not self.gigabytes > 0:
            raise BadSetting(
                f"The cache is used {self.use!r}, up to {self.gigabytes} GB; expected auto or never, and a positive number."
            )


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    """Distillation for a task: first layers (intermediate stage), then predictions."""

    seed: int = 1
    """Random seed."""
    student: StudentSettings = field(default_factory=StudentSettings)
    """Initialisation of the student."""
    lexicons: bool = False
    """Whether the student of a tagger reads the lexicons of its teacher; letter case it reads if the teacher does."""
    augment: AugmentSettings = field(default_factory=lambda: AugmentSettings(copies=0))
    """Augmentation of the training examples; copies = 0: none."""
    forget_training: bool = False
    """Write no hashes of the training texts and entities, so that the model can be shared."""
    max_texts: int = 20_000
    """Maximum sentences of plain text (--texts) that the teacher labels."""
    intermediate: StageSettings = field(default_factory=StageSettings)
    """The intermediate stage, which distils layers."""
    prediction: StageSettings = field(default_factory=StageSettings)
    """The prediction stage, which distils predictions."""
    cache: TeacherCacheSettings = field(default_factory=TeacherCacheSettings)
    """Cache of the teacher's outputs."""
    teacher_precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of the teacher's matrix products; auto: the fastest on this machine, as for the student."""

    def __post_init__(self) -> None:
        if self.max_texts < 1:
            raise BadSetting(f"`max_texts` is {self.max_texts}; expected 1 or more.")
        if self.prediction.skip:
            raise BadSetting("The stage `prediction` makes the model for the task; it cannot be skipped.")
        if not self.prediction.losses.chosen().keys() & set(ANSWER_LOSSES):
            raise BadSetting("The stage `prediction` needs a weight for `prediction` or `labels`.")

    def without_right_answers(self) -> DistillSettings:
        """Return the settings for texts of which nobody knows the right answers."""
        stages = {
            name: replace(stage, losses=replace(stage.losses, labels=0.0))
            for name, stage in (("intermediate", self.intermediate), ("prediction", self.prediction))
            if stage.losses.labels
        }
        return replace(self, **stages)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class GeneralDistillSettings(RunSettings):
    """Distillation on plain text."""

    student: StudentSettings = field(default_factory=StudentSettings)
    """Initialisation of the student."""
    losses: LayerLossWeights = field(default_factory=LayerLossWeights)
    """Weights of the losses."""
    sequences: SequenceSettings = field(default_factory=SequenceSettings)
    """How documents become training sequences."""
    evaluation: HeldOutSettings = field(default_factory=HeldOutSettings)
    """Held-out data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.losses.chosen():
            raise BadSetting("All losses have the weight 0. Give at least one, such as hidden = 1.")


def tinybert() -> DistillSettings:
    """TinyBERT as published: twenty copies; attention, states and embeddings at a constant 5e-5, then answers at 3e-5."""
    return DistillSettings(
        student=StudentSettings(start="scratch"),
        augment=AugmentSettings(copies=20),
        intermediate=StageSettings(
            epochs=10.0,
            losses=StageLossWeights(attention=1.0, hidden=1.0, embeddings=1.0, projection="shared", fitted=False),
            optimiser=OptimiserSettings(learning_rate=5e-5),
            schedule=ScheduleSettings(kind="constant", warmup=0.0),
            saving=SavingSettings(keep="last"),
        ),
        prediction=StageSettings(
            epochs=3.0,
            losses=StageLossWeights(prediction=1.0),
            optimiser=OptimiserSettings(learning_rate=3e-5),
            schedule=ScheduleSettings(warmup=0.1),
        ),
    )


def fast() -> DistillSettings:
    """A student that begins as its teacher: states for a few passes at a high rate, then answers."""
    return DistillSettings(
        intermediate=StageSettings(
            epochs=3.0,
            losses=StageLossWeights(hidden=1.0),
            optimiser=OptimiserSettings(learning_rate=5e-4),
            schedule=ScheduleSettings(warmup=0.06),
            saving=SavingSettings(keep="last"),
            evaluation=EvaluationSettings(at_start=False),
        ),
        prediction=StageSettings(
            epochs=5.0,
            losses=StageLossWeights(prediction=1.0, labels=0.5),
            optimiser=OptimiserSettings(learning_rate=2e-4),
        ),
    )


PRESETS: Final[dict[str, Callable[[], DistillSettings]]] = {"fast": fast, "tinybert": tinybert}


def get_preset(name: str, task: str) -> DistillSettings:
    """Return a preset whose steps are as large as they are usual for a task."""
    settings, batch = PRESETS[name](), get_default_settings(task).batch
    return replace(
        settings,
        intermediate=replace(settings.intermediate, batch=batch),
        prediction=replace(settings.prediction, batch=batch),
    )


def general_tinybert() -> GeneralDistillSettings:
    """TinyBERT's general stage: attention, states and embeddings on plain text, a student from nothing."""
    return GeneralDistillSettings(
        student=StudentSettings(start="scratch"),
        losses=LayerLossWeights(attention=1.0, hidden=1.0, embeddings=1.0, projection="shared", fitted=False),
        batch=BatchSettings(tokens=256 * 128),
        optimiser=OptimiserSettings(learning_rate=1e-4),
        schedule=ScheduleSettings(warmup=0.1),
    )


def general_fast() -> GeneralDistillSettings:
    """A student that begins as its teacher and learns its states on plain text."""
    return GeneralDistillSettings(
        losses=LayerLossWeights(hidden=1.0),
        batch=BatchSettings(tokens=2048, micro_tokens=1024),
        optimiser=OptimiserSettings(learning_rate=5e-4),
        schedule=ScheduleSettings(warmup=0.06),
    )


GENERAL_PRESETS: Final[dict[str, Callable[[], GeneralDistillSettings]]] = {
    "fast": general_fast,
    "tinybert": general_tinybert,
}


@dataclass(frozen=True)
class ControlRun:
    """A run that a student is compared with."""

    settings: DistillSettings
    has_texts: bool
    """Whether plain text that was given is labelled by the teacher here too."""


def build_controls(settings: DistillSettings, *, has_texts: bool = False) -> dict[str, ControlRun]:
    """Return the runs that a student is compared with: the same student without its teacher, and without new texts."""
    plain = replace(settings.prediction, losses=StageLossWeights(labels=1.0))
    alone = replace(settings, intermediate=replace(settings.intermediate, skip=True), prediction=plain)
    uncopied = replace(settings.augment, copies=0)
    controls = {"without distillation": ControlRun(replace(alone, augment=uncopied), False)}
    if settings.augment.copies:
        controls["without augmentation"] = ControlRun(replace(settings, augment=uncopied), has_texts)
    if has_texts:
        controls["without plain text"] = ControlRun(settings, False)
    return controls


def check_preset(name: str) -> str:
    """Refuse a name that is no preset."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadSetting(f"There is no preset {name!r}; expected {' or '.join(PRESETS)}.{hint}")
    return name
