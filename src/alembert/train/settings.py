"""Settings of training, and the schedule of the learning rate.

The learning rate is a factor from 0 to 1 for a progress from 0 to 1. What progress means (steps, tokens, time) is
the caller's affair. `linear` is the published schedule of BERT: its decay is counted from the beginning of the run, not
from the end of warm-up, so the rate steps down a little there.

Settings are the same in Python, in a TOML file (`--set help` prints one) and in the manifest of the result. Which
files a run reads is not a setting: inputs are known by their content. Nothing here loads torch, so that settings are
checked before it is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from alembert.errors import BadSetting

ScheduleKind = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """How the rate changes over the run."""

    kind: ScheduleKind = "linear"
    """Shape after warm-up: linear (as in BERT), cosine or constant."""
    warmup: float = 0.01
    """Warm-up: share of the run in which the learning rate rises from zero."""
    final: float = 0.0
    """Final learning rate as a share of the peak; without effect for constant."""
    restart: bool = False
    """Begin anew, with warm-up and without the optimiser's moments, when the parts that come after `first` of the model
    are trained; the rate of `first` itself stays constant after its warm-up."""

    def __post_init__(self) -> None:
        kinds = get_args(ScheduleKind)
        if self.kind not in kinds:
            raise BadSetting(f"The schedule is {self.kind!r}; expected one of {', '.join(kinds)}.")
        for name in ("warmup", "final"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise BadSetting(f"`{name}` is {share}; expected a share from 0 to 1.")
        if self.kind == "constant" and self.final:
            raise BadSetting(
                f"A constant rate does not fall to `final` = {self.final}. Leave it out, or use linear or cosine."
            )


def get_rate_factor(progress: float, settings: ScheduleSettings) -> float:
    """Return the share of the full rate; progress beyond the run counts as its end.

    >>> get_rate_factor(0.005, ScheduleSettings()), get_rate_factor(0.5, ScheduleSettings())
    (0.5, 0.5)
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < settings.warmup:
        return progress / settings.warmup
    if settings.kind == "constant":
        return 1.0
    left = 1 - progress
    if settings.kind == "cosine":
        length = 1 - settings.warmup
        left = 0.5 * (1 - math.cos(math.pi * left / length)) if length else 0.0
    return settings.final + (1 - settings.final) * left


OptimiserName = Literal["adamw", "bert_adam", "lamb"]
_LARGEST_BETA: Final = 0.99999


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """The optimiser."""

    name: OptimiserName = "adamw"
    """adamw, bert_adam (as published: no bias correction) or lamb (for large batches)."""
    learning_rate: float = 1e-4
    """Peak learning rate (BERT: 1e-4; continued pre-training: about 2e-5)."""
    weight_decay: float = 0.01
    """Weight decay; not applied to biases and layer norms."""
    beta1: float = 0.9
    """Decay of the running mean of gradients."""
    beta2: float = 0.999
    """Decay of the running mean of squared gradients."""
    epsilon: float = 1e-6
    """Added to the denominator for numerical stability."""
    bias_correction: bool = True
    """Whether lamb applies bias correction; adamw always does, bert_adam never."""
    clip: float | None = 1.0
    """Gradient clipping: maximum norm of the gradient; none: no clipping."""
    layer_decay: float = 1.0
    """Layer-wise decay of the learning rate, from each layer to the one below it (such as 0.9); 1: none."""
    head_factor: float = 1.0
    """Factor on the learning rate of the pooler and the heads; new heads, especially a CRF, often need 5 or more."""
    update_every: tuple[int, ...] = ()
    """Steps between the updates of each layer, from the embeddings up; gradients are averaged in between. The last number
    holds for all layers above. Empty: every layer in every step."""
    half_heads: bool = False
    """Update the even attention heads of each layer in one step, the odd ones in the next."""

    def __post_init__(self) -> None:
        rules = get_args(OptimiserName)
        _check_optimiser("name", self.name, self.name in rules, f"one of {', '.join(rules)}")
        _check_optimiser("learning_rate", self.learning_rate, 0 < self.learning_rate < math.inf, "a positive number")
        _check_optimiser("weight_decay", self.weight_decay, 0 <= self.weight_decay < math.inf, "0 or a positive number")
        _check_optimiser("beta1", self.beta1, 0 <= self.beta1 < 1, "a number from 0, below 1")
        _check_optimiser("beta2", self.beta2, 0 <= self.beta2 < 1, "a number from 0, below 1")
        _check_optimiser("epsilon", self.epsilon, 0 < self.epsilon < math.inf, "a positive number")
        _check_optimiser("clip", self.clip, self.clip is None or self.clip > 0, "a positive number, or none")
        _check_optimiser("layer_decay", self.layer_decay, 0 < self.layer_decay <= 1, "a number above 0, at most 1")
        _check_optimiser("head_factor", self.head_factor, 0 < self.head_factor < math.inf, "a positive number")
        whole = all(isinstance(every, int) and every > 0 for every in self.update_every)
        _check_optimiser("update_every", self.update_every, whole, "whole numbers from 1 up")
        if not self.corrects:
            fits = max(self.beta1, self.beta2) <= _LARGEST_BETA
            expected = f"betas up to {_LARGEST_BETA} where moments are not corrected"
            _check_optimiser("beta2", self.beta2, fits, expected)

    @property
    def corrects(self) -> bool:
        """Whether moments are corrected for their start at zero."""
        return self.name == "adamw" or (self.name == "lamb" and self.bias_correction)

    def factor(self, depth: int, layers: int) -> float:
        """Return the factor on the rate at a depth, from the embeddings (0) to the heads (`layers` + 1)."""
        return self.head_factor if depth > layers else self.layer_decay ** (layers + 1 - depth)

    def every(self, depth: int) -> int:
        """Count the steps over which a layer collects gradients."""
        return self.update_every[min(depth, len(self.update_every) - 1)] if self.update_every else 1


def _check_optimiser(name: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise BadSetting(f"`{name}` of the optimiser is {value!r}; expected {expected}.")


MODEL_PARTS = ("embeddings", "layers", "heads")


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """The batch size."""

    tokens: int = 8192
    """Approximate number of tokens per optimiser step."""
    micro_tokens: int = 2048
    """Maximum tokens of one forward pass; gradients are accumulated over `tokens` / `micro_tokens` passes."""
    padded: bool = False
    """Pad sequences instead of packing them; slower, for comparison only."""

    def __post_init__(self) -> None:
        if not 1 <= self.micro_tokens <= self.tokens:
            raise BadSetting(
                f"`micro_tokens` is {self.micro_tokens} and `tokens` {self.tokens}: a step holds at least one micro-batch."
            )

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""
        return max(1, round(self.tokens / self.micro_tokens))


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Dropout, frozen parts and precision."""

    dropout: float | None = None
    """Hidden dropout; none: as in the model's configuration (BERT: 0.1)."""
    attention_dropout: float | None = None
    """Attention dropout; none: as in the model's configuration (BERT: 0.1)."""
    first: tuple[str, ...] = ()
    """Parts that are trained on their own at the start of the run: embeddings, layers, heads."""
    first_share: float = 0.1
    """Share of the run in which only `first` is trained, at most."""
    first_learning_rate: float | None = None
    """Peak learning rate while only `first` is trained; none: that of the optimiser."""
    first_plateau: float | None = None
    """Train everything as soon as the training loss has fallen by less than this share (such as 0.01); none: after `first_share`."""
    first_plateau_steps: int = 200
    """Steps whose mean loss is compared with that of as many steps before, to find the plateau."""
    frozen: tuple[str, ...] = ()
    """Frozen parts: embeddings, layers or the lowest of them (layers:4), heads."""
    unfreeze_share: float = 0.0
    """Gradual unfreezing (Howard and Ruder 2018): share of the run over which layers are unfrozen, from the heads down to the
    embeddings; 0: all weights are trained from the start."""
    recompute: bool = False
    """Gradient checkpointing: recompute activations in the backward pass to save memory."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the matrix products; auto: what `alembert doctor` found to be the fastest for training."""

    def __post_init__(self) -> None:
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise BadSetting(f"`{name}` is {value}; expected a number from 0 up to, not including, 1.")
        for part in self.first:
            if part not in MODEL_PARTS:
                raise BadSetting(f"`first` names {part!r}; the parts of a model are {', '.join(MODEL_PARTS)}.")
        for name in self.frozen:
            if name not in MODEL_PARTS and not re.fullmatch(r"layers:[1-9][0-9]*", name):
                raise BadSetting(
                    f"`frozen` names {name!r}; expected {', '.join(MODEL_PARTS)}, or the lowest layers, such as layers:4."
                )
        if self.first_learning_rate is not None and not 0 < self.first_learning_rate < math.inf:
            raise BadSetting(
                f"`first_learning_rate` is {self.first_learning_rate}; expected a positive number, or none."
            )
        if self.first_plateau_steps < 1:
            raise BadSetting(f"`first_plateau_steps` is {self.first_plateau_steps}; expected 1 or more.")
        check_share("first_plateau", self.first_plateau or 0.0)
        check_share("first_share", self.first_share)
        check_share("unfreeze_share", self.unfreeze_share)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """How often the model is evaluated, and early stopping."""

    times: int = 10
    """Number of evaluations in a run, not counting the one at the start."""
    at_start: bool = True
    """Evaluate before the first step."""
    patience: int | None = None
    """Early stopping: stop after this many evaluations without improvement; none: off."""

    def __post_init__(self) -> None:
        if self.times < 0:
            raise BadSetting(f"`times` of the evaluation is {self.times}; expected 0 or more.")
        if self.patience is not None and self.patience < 1:
            raise BadSetting(f"`patience` is {self.patience}; expected 1 or more, or leave it out.")


@dataclass(frozen=True, kw_only=True)
class SavingSettings:
    """How often the training state is saved, and which weights are kept."""

    minutes: float = 10.0
    """Minutes between saves of the training state; a run that is stopped saves it at once."""
    steps: int | None = None
    """Steps between saves of the training state, instead of minutes."""
    log_every: int = 10
    """Steps between log lines."""
    keep: Literal["last", "best"] = "last"
    """Weights to keep: the last ones, or the best on held-out data."""
    ema_decay: float | None = None
    """Decay of an exponential moving average of the weights (such as 0.999), which is then evaluated and saved; none: off."""

    towards_start: float = 0.0
    """How far the weights of embeddings and layers that are evaluated and written lie back towards the start of the run,
    from 0 (as they were trained) to 1; see `alembert mix`."""

    def __post_init__(self) -> None:
        check_share("towards_start", self.towards_start)
        if not self.minutes > 0 or self.log_every < 1 or (self.steps is not None and self.steps < 1):
            raise BadSetting("`minutes`, `steps` and `log_every` of saving are positive numbers.")
        if self.keep not in ("last", "best"):
            raise BadSetting(f"`keep` is {self.keep!r}; expected last or best.")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise BadSetting(f"`ema_decay` is {self.ema_decay}; expected a decay between 0 and 1, such as 0.999.")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of the training loop."""

    hours: float | None = None
    """Length of the run in hours; the learning-rate schedule ends with it."""
    tokens: int | None = None
    """Length of the run in tokens, over all epochs."""
    steps: int | None = None
    """Length of the run in steps."""
    seed: int = 1
    """Random seed."""
    batch: BatchSettings = field(default_factory=BatchSettings)
    """Batch size."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """Dropout, frozen parts and precision."""
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    """The optimiser."""
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    """Learning-rate schedule."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """Evaluation and early stopping."""
    saving: SavingSettings = field(default_factory=SavingSettings)
    """How often the training state is saved, and which weights are kept."""

    def __post_init__(self) -> None:
        chosen = {name: value for name, value in self.length_of_run.items() if value is not None}
        if len(chosen) > 1:
            raise BadSetting(
                f"The length of the run is given by {' and '.join(chosen)}. Give one of hours, tokens and steps."
            )
        for name, value in chosen.items():
            if not 0 < value < float("inf"):
                raise BadSetting(f"`{name}` is {value}; the length of a run is a positive number.")
        if not 0 <= self.seed < 2**63:
            raise BadSetting(f"`seed` is {self.seed}; expected a whole number from 0, below 2 to the power of 63.")

    @property
    def length_of_run(self) -> dict[str, float | None]:
        """Return the three measures, of which at most one is set."""
        return {"hours": self.hours, "tokens": self.tokens, "steps": self.steps}


def check_share(name: str, value: float) -> None:
    """Refuse what is no share."""
    if not 0 <= value <= 1:
        raise BadSetting(f"`{name}` is {value}; expected a share from 0 to 1.")
