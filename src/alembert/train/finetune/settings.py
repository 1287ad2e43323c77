"""Settings of `finetune` for all tasks, beside which each task has settings of its own.

`EpochSettings` are what distillation for a task shares with it. Those of several tasks in one run, of masked LM beside
a task, of R-Drop and of adversarial training stand here and not beside the losses, so that they are checked before
torch is loaded.

Settings are put together from layers, and written as one file. A layer is a table of plain values, as a TOML file or
the arguments of a call give it; later layers win. The file is what `finetune --set help` prints, a run keeps, and
`--config` takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.settings import Assigned, apply_changes, pop_table, to_toml
from alembert.tasks.settings import LossSettings
from alembert.tasks.task import get_task_class
from alembert.train.settings import BatchSettings, EvaluationSettings, RunSettings, SavingSettings, ScheduleSettings


@dataclass(frozen=True, kw_only=True)
class MultiTaskSettings:
    """How several tasks share a run; without effect for one task."""

    mixing: Literal["size", "temperature"] = "size"
    """size: every example of every task once per epoch. temperature: tasks are sampled by size ^ (1 / temperature)."""
    temperature: float = 2.0
    """Sampling temperature: 1 samples by size; higher values sample the tasks more equally."""

    def __post_init__(self) -> None:
        if self.mixing not in ("size", "temperature"):
            raise BadSetting(f"`mixing` is {self.mixing!r}; expected size or temperature.")
        if not 1 <= self.temperature < float("inf"):
            raise BadSetting(
                f"`temperature` of [multitask] is {self.temperature}; expected 1 (by size) or more (2 is usual)."
            )

    @property
    def sharpness(self) -> float:
        """The temperature that turns are found by."""
        return self.temperature if self.mixing == "temperature" else 1.0


@dataclass(frozen=True, kw_only=True)
class MaskedLMSettings:
    """Masked LM as an auxiliary objective on the texts of the task."""

    weight: float = 0.0
    """Weight of the masked LM loss (such as 0.1); 0: off."""
    rate: float = 0.15
    """Masking rate."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < float("inf"):
            raise BadSetting(
                f"`weight` of [masked_lm] is {self.weight}; expected 0 (off) or a positive number (0.1 is usual)."
            )
        if not 0 < self.rate < 1:
            raise BadSetting(
                f"`rate` of [masked_lm] is {self.rate}; expected a share above 0, below 1 (0.15 is usual)."
            )


AdversarialMethod = Literal["none", "fgm", "pgd", "freelb"]


@dataclass(frozen=True)
class AscentSteps:
    """How a change of the embeddings is made: some steps up the loss, inside a ball."""

    size: float
    steps: int
    step_size: float


DEFAULT_ASCENTS: Final = {
    "fgm": AscentSteps(1.0, 1, 1.0),
    "pgd": AscentSteps(1.0, 3, 0.3),
    "freelb": AscentSteps(0.3, 3, 0.1),
}
"""What is usual with models of BERT's kind, whose token embeddings have a length of about 1."""


@dataclass(frozen=True, kw_only=True)
class AdversarialSettings:
    """Adversarial training on perturbed token embeddings. Norms are those of a whole document."""

    method: AdversarialMethod = "none"
    """fgm: one ascent step (Miyato et al. 2017; a training step takes about 2.3 times as long). pgd: several small ascent
    steps (Madry et al. 2018; three take about 4 times as long). freelb: gradients of every ascent step are used (Zhu et
    al. 2020; three take about 4 times as long, and three times the memory). none: off."""
    size: float | None = None
    """Maximum norm of the perturbation; none: 1 for fgm and pgd, 0.3 for freelb."""
    steps: int | None = None
    """Ascent steps of pgd and freelb; none: 3."""
    step_size: float | None = None
    """Step size of pgd and freelb; none: 0.3 for pgd, 0.1 for freelb."""
    weight: float = 1.0
    """Weight of the adversarial loss relative to the clean loss, for fgm and pgd; freelb has no clean loss."""

    def __post_init__(self) -> None:
        methods = get_args(AdversarialMethod)
        _check_adversarial("method", self.method, self.method in methods, f"one of {', '.join(methods)}")
        _check_adversarial("size", self.size, self.size is None or 0 <= self.size < math.inf, "0 or a positive number")
        _check_adversarial("steps", self.steps, self.steps is None or self.steps >= 1, "a whole number from 1 up")
        fits = self.step_size is None or 0 < self.step_size < math.inf
        _check_adversarial("step_size", self.step_size, fits, "a positive number")
        _check_adversarial("weight", self.weight, 0 < self.weight < math.inf, "a positive number")
        self._check_used()

    def _check_used(self) -> None:
        for name in ("steps", "step_size"):
            if self.method == "fgm" and getattr(self, name) is not None:
                raise BadSetting(f"fgm takes one step of the length `size`. Leave `{name}` out, or use pgd.")
        if self.method == "freelb" and self.weight != 1:
            raise BadSetting("freelb has no plain loss that `weight` could compare with. Leave it out.")

    @property
    def ascent(self) -> AscentSteps:
        """Return the steps of a method that is not `none`, with what was left out."""
        usual = DEFAULT_ASCENTS[self.method]
        size = usual.size if self.size is None else self.size
        if self.method == "fgm":
            return AscentSteps(size, 1, size)
        return AscentSteps(size, self.steps or usual.steps, self.step_size or usual.step_size)


@dataclass(frozen=True, kw_only=True)
class RegulariseSettings:
    """Regularisation: R-Drop and adversarial training."""

    r_drop: float = 0.0
    """R-Drop: weight of the divergence between predictions under two dropout masks (Liang et al. 2021: 0.5 to 5); 0: off.
    A training step takes twice as long."""
    adversarial: AdversarialSettings = field(default_factory=AdversarialSettings)
    """Adversarial training."""

    def __post_init__(self) -> None:
        if not 0 <= self.r_drop < math.inf:
            raise BadSetting(f"`r_drop` is {self.r_drop}; expected 0 (off) or a positive weight, such as 1.")
        if self.r_drop and self.adversarial.method != "none":
            raise BadSetting(
                f"`r_drop` compares two passes that differ in dropout alone, and {self.adversarial.method} changes the "
                "input. Choose one of them."
            )


def _check_adversarial(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise BadSetting(f"`{name}` of adversarial training is {value!r}; expected {expected}.")


@dataclass(frozen=True, kw_only=True)
class EpochSettings(RunSettings):
    """Training on labelled examples, in epochs."""

    epochs: float = 5.0
    """Passes over the training data; `hours`, `tokens` or `steps` replace it."""
    evals_per_epoch: float = 1.0
    """Evaluations on the development data in each epoch."""
    batch: BatchSettings = field(default_factory=lambda: BatchSettings(tokens=512, micro_tokens=256))
    """Batch size."""
    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(warmup=0.06))
    """Learning-rate schedule."""
    evaluation: EvaluationSettings = field(default_factory=lambda: EvaluationSettings(at_start=False))
    """Evaluation and early stopping; `times` follows from `evals_per_epoch`."""
    saving: SavingSettings = field(default_factory=lambda: SavingSettings(keep="best"))
    """How often the training state is saved, and which weights are kept."""
    loss: LossSettings = field(default_factory=LossSettings)
    """Label smoothing, focal loss and class weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epochs", "evals_per_epoch"):
            if not 0 < getattr(self, name) < 10_000:
                raise BadSetting(f"`{name}` is {getattr(self, name)}; expected a positive number of passes.")


@dataclass(frozen=True, kw_only=True)
class WarmUpSettings:
    """How the files of --warm-up are learnt from, before the training files; without effect if there are none."""

    epochs: float = 1.0
    """Passes over the warm-up files."""
    learning_rate: float = 1e-4
    """Peak learning rate of these passes, which have a warm-up and a decay of their own."""
    min_score: float = 0.5
    """Labels of a model that was less sure than this count as unknown, if the files have scores."""
    shared: bool = False
    """Warm up once for all seeds, instead of once for each."""

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadSetting(f"`{name}` of [warm_up] is {getattr(self, name)}; expected a positive number.")
        if not 0 <= self.min_score <= 1:
            raise BadSetting(f"`min_score` of [warm_up] is {self.min_score}; expected a share from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(EpochSettings):
    """Settings of fine-tuning."""

    regularise: RegulariseSettings = field(default_factory=RegulariseSettings)
    """R-Drop and adversarial training."""
    masked_lm: MaskedLMSettings = field(default_factory=MaskedLMSettings)
    """Masked LM as an auxiliary objective."""
    multitask: MultiTaskSettings = field(default_factory=MultiTaskSettings)
    """How several tasks share a run."""
    warm_up: WarmUpSettings = field(default_factory=WarmUpSettings)
    """Learning from silver labels first."""
    forget_training: bool = False
    """Write no hashes of the training texts and entities, so that the model can be shared."""


def get_default_settings(task: str) -> FinetuneSettings:
    """Return the settings of a run as they are usual for a task alone; several tasks have no habits in common."""
    return apply_changes(FinetuneSettings(), get_task_class(task).default_settings, f"The task {task}")


@dataclass(frozen=True)
class TaskRunSettings:
    """What was decided about one task."""

    of_task: Any
    reading: ReadOptions
    weight: float = 1.0


def format_finetune_toml(settings: FinetuneSettings, tasks: Mapping[str, TaskRunSettings]) -> str:
    """Write the settings of a run and of its tasks; the tables of an only task need no name."""
    tables = [to_toml(settings)]
    for name, task in tasks.items():
        of_task, read, weight = "task", "read", ""
        if len(tasks) > 1:
            of_task, read = f"task.{name}", f"task.{name}.read"
            weight = f"# How much its loss counts beside those of the other tasks.\nweight = {task.weight!r}\n"
        tables += [f"[{of_task}]\n{weight}{to_toml(task.of_task, of_task)}", f"[{read}]\n{to_toml(task.reading)}"]
    return "\n".join(tables)


def resolve_settings(
    kinds: Mapping[str, str], layers: Mapping[str, Mapping[str, Any]]
) -> tuple[FinetuneSettings, dict[str, TaskRunSettings]]:
    """Change the usual settings by layers, given by where they come from; return those of each task apart.

    `kinds` has the kind of each task by its name. Each of several has a table `[task.NAME]`; that of an only one may be
    `[task]`.
    """
    settings = FinetuneSettings() if len(kinds) > 1 else get_default_settings(*kinds.values())
    tasks = {
        name: TaskRunSettings(get_task_class(kind).settings_class(), ReadOptions()) for name, kind in kinds.items()
    }
    for where, layer in layers.items():
        own = dict(layer)
        tasks = _update_tasks(tasks, own, where)
        if own.keys() & {"hours", "tokens", "steps", "epochs"}:
            settings = replace(settings, hours=None, tokens=None, steps=None)
        settings = apply_changes(settings, own, where)
    return settings, tasks


def build_lexicon_layer(kinds: Mapping[str, str], lexicons: Sequence[str]) -> dict[str, Any]:
    """Return the layer of settings that has all taggers read lexicons, given as LABEL=FILE; none: it changes nothing."""
    taggers = [name for name, kind in kinds.items() if kind == "tag"]
    if lexicons and not taggers:
        raise BadSetting(
            f"Lexicons are read by the task tag, and the task is {', '.join(kinds.values())}. Leave them out."
        )
    if not lexicons:
        return {}
    own = {"lexicons": list(lexicons)}
    return {"task": own if len(kinds) == 1 else dict.fromkeys(taggers, own)}


def _update_tasks(
    tasks: Mapping[str, TaskRunSettings], table: dict[str, Any], where: str
) -> dict[str, TaskRunSettings]:
    """Take the tables [task] and [read] out of a layer, and change the settings of the tasks by them."""
    of_tasks, reading = dict(pop_table(table, "task", where)), pop_table(table, "read", where)
    is_named = len(tasks) > 1 or isinstance(of_tasks.get(next(iter(tasks))), Mapping)
    result = {}
    for name, old in tasks.items():
        own = dict(pop_table(of_tasks, name, f"{where}, `task`")) if is_named else of_tasks
        place = f"{where}, `task.{name}`" if is_named else f"{where}, `task`"
        weight = _check_weight(own.pop("weight", old.weight), place)
        columns = pop_table(own, "read", place)
        read = apply_changes(apply_changes(old.reading, reading, f"{where}, `read`"), columns, f"{place}, `read`")
        result[name] = TaskRunSettings(apply_changes(old.of_task, own, place), read, weight)
    if is_named and of_tasks:
        raise BadSetting(
            f"{where} has [task.{next(iter(of_tasks))}]; with several tasks each has a table of its own, and they are "
            f"{', '.join(f'[task.{name}]' for name in tasks)}."
        )
    return result


def _check_weight(value: Any, where: str) -> float:
    if isinstance(value, Assigned):
        value = value.parse(float)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadSetting(f"{where}, `weight` is {value!r}; expected a positive number.")
    return float(value)
