"""One seed of a run for tasks: add the heads, train, choose thresholds on the development data, write a folder.

A folder is done when its `run/scores.json` is there, which is written last: a run of several seeds that was stopped
goes on with the one that was not done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert.artifact import Draft, atomic_write
from alembert.artifact.disk import to_json_bytes
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_heads, with_token_features
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.tasks.data_report import DataReport
from alembert.tasks.example import count_surfaces
from alembert.tasks.files import (
    COLUMN_OPTIONS,
    get_run_folder,
    has_task,
    read_tasks,
    write_surfaces,
    write_tasks,
    write_train_keys,
)
from alembert.tasks.metrics.calibration import build_curve_table, collect_confidences
from alembert.tasks.runtime.torch import ModelRunner
from alembert.tasks.task import AnyTask, TaskScores
from alembert.train.distributed import Processes
from alembert.train.finetune.data import PreparedData, PreparedTask
from alembert.train.finetune.masked_lm import AuxiliaryMaskedLM, get_masked_lm_head
from alembert.train.finetune.objective import MultiTaskObjective, TaskObjective, combine_scores
from alembert.train.finetune.settings import EpochSettings, FinetuneSettings
from alembert.train.objective import Objective
from alembert.train.run import RunContext
from alembert.train.training_run import RUN_FOLDER, STATE_FOLDER, TrainingRun


def with_training_heads(prepared: PreparedData, settings: FinetuneSettings) -> Checkpoint:
    """Add a head for each task, and one for masked LM if that goes along."""
    if not settings.masked_lm.weight:
        return with_task_heads(prepared, settings.seed)
    name, spec = get_masked_lm_head(prepared.checkpoint.blueprint)
    return with_task_heads(prepared, settings.seed, {name: spec})


def with_task_heads(prepared: PreparedData, seed: int, others: Mapping[str, HeadSpec] | None = None) -> Checkpoint:
    """Add a head for each task, and others, unless a task has one of this name.

    A head that it has already is kept only if its labels are the same, in this order.
    """
    heads = {**(others or {}), **{part.head: part.task.head() for part in prepared.tasks}}
    labels = {part.head: part.task.labels for part in prepared.tasks if part.task.labels}
    features = _choose_token_features(prepared)
    known = find_token_features(prepared.checkpoint, features)
    start = with_token_features(_without_mismatched_heads(prepared), features, known)
    checkpoint = with_heads(start, heads, pooler=False, seed=seed)
    return replace(checkpoint, blueprint=replace(checkpoint.blueprint, labels=labels))


def find_token_features(checkpoint: Checkpoint, assumed: Mapping[str, int] | None = None) -> Mapping[str, int]:
    """Return the features that a checkpoint reads, as rows by what they stand for.

    The tasks of its folder say it; of one without a folder, those that are assumed, if they are as many.
    """
    rows, folder = checkpoint.blueprint.config.token_features, checkpoint.folder
    if rows is None:
        return {}
    saved = [] if folder is None or not has_task(folder) else read_tasks(folder).values()
    candidates = [each.open().token_features for each in saved] or [assumed or {}]
    return next((features for features in candidates if sum(features.values()) == rows), {"unknown": rows})


def _choose_token_features(prepared: PreparedData) -> Mapping[str, int]:
    features = [dict(part.task.token_features) for part in prepared.tasks if part.task.token_features]
    if any(list(other.items()) != list(features[0].items()) for other in features):
        raise BadSetting(
            "The tasks read different features beside the pieces (letter case, lexicons). Give all of them the same, or none."
        )
    return next(iter(features), {})


def _without_mismatched_heads(prepared: PreparedData) -> Checkpoint:
    """Leave out heads that are called as those of the tasks and have other labels."""
    checkpoint, mismatched = prepared.checkpoint, _mismatched_heads(prepared)
    kept = {name: spec for name, spec in checkpoint.blueprint.heads.items() if name not in mismatched}
    return with_heads(checkpoint, kept) if mismatched & checkpoint.blueprint.heads.keys() else checkpoint


def _mismatched_heads(prepared: PreparedData) -> set[str]:
    labels = prepared.checkpoint.blueprint.labels
    return {part.head for part in prepared.tasks if labels.get(part.head, ()) != part.task.labels}


def has_task_head(prepared: PreparedData, task: PreparedTask) -> bool:
    """Return whether the model came with a head for a task, of the same labels in the same order."""
    return task.head in prepared.checkpoint.blueprint.heads.keys() - _mismatched_heads(prepared)


def without_training_heads(trained: Checkpoint, prepared: PreparedData) -> Checkpoint:
    """Leave out what served the training alone."""
    own = {name: trained.blueprint.heads[name] for name in (part.head for part in prepared.tasks)}
    return trained if own == dict(trained.blueprint.heads) else with_heads(trained, own)


def build_objective(prepared: PreparedData, settings: FinetuneSettings) -> Objective:
    """Build the objective: a task, or several in turn, with masked LM beside them if its weight is not 0."""
    objectives = [
        TaskObjective(
            part.task,
            part.train,
            part.dev,
            settings,
            name=part.name,
            head=part.head,
            regularise=settings.regularise,
        )
        for part in prepared.tasks
    ]
    weights = {part.name: part.spec.weight for part in prepared.tasks}
    objective: Objective = MultiTaskObjective(objectives, settings, weights) if len(objectives) > 1 else objectives[0]
    if not settings.masked_lm.weight:
        return objective
    head, _ = get_masked_lm_head(prepared.checkpoint.blueprint)
    return AuxiliaryMaskedLM(objective, prepared.tokenizer, settings.masked_lm, head=head, seed=settings.seed)


SEEDS_FOLDER: Final = "seeds"
SCORES_FILE: Final = "scores.json"


def check_seeds(count: int) -> None:
    """Refuse a number of seeds that nobody means."""
    if not 1 <= count <= 100:
        raise BadSetting(f"The number of seeds is {count}; expected 1 to 100.")


def get_seed_folder(whole: Path, seed: int, seeds: int) -> Path:
    """Choose where a seed goes: into a folder of its own, unless it is the only one."""
    return whole / SEEDS_FOLDER / str(seed) if seeds > 1 else whole


@dataclass(frozen=True)
class SeedResult:
    """How well one seed does on the development data."""

    seed: int
    main: str
    measures: Mapping[str, float]
    by_label: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    """Steps, tokens and seconds of the run, and parameters of the model."""
    notes: tuple[str, ...] = ()
    """What must be known with the scores."""

    @property
    def value(self) -> float:
        return self.measures[self.main]

    @classmethod
    def from_json(cls, content: bytes) -> SeedResult:
        """Open the scores of a seed that is done."""
        table = json.loads(content)
        return cls(**{**table, "notes": tuple(table.get("notes", ()))})


@dataclass
class SeedRun:
    """A run with one seed in a folder of its own."""

    folder: Path
    prepared: PreparedData
    reports: Mapping[str, DataReport]
    checkpoint: Checkpoint
    """The model with the heads of the run, before training."""
    settings: EpochSettings
    objective: Callable[[], Objective]
    context: RunContext
    processes: Processes
    phase: str = "fine-tuning"
    card_facts: Mapping[str, str] = field(default_factory=dict)
    """More for the model card."""
    toml: str | None = None
    """All settings as they were given; none: those of the loop."""
    forget_training: bool = False
    """Write no hashes of the training data."""
    first_stage: Callable[[Checkpoint], Checkpoint] | None = None
    """Trains the model on something else before, with its states in a folder inside; none: the run is the only stage."""

    def check(self) -> None:
        """Refuse what cannot run, before anything is written."""
        self._training.check()

    def run(self) -> SeedResult:
        """Train, or return the result of a seed that is done."""
        done = self.folder / RUN_FOLDER / SCORES_FILE
        is_done = self.processes.broadcast(done.is_file())
        result = SeedResult.from_json(done.read_bytes()) if is_done else self._train()
        self.processes.on_first(self._remove_states)
        return result

    def _train(self) -> SeedResult:
        if self.first_stage is not None:
            self.checkpoint = self.first_stage(self.checkpoint)
        self._training.train()
        results: list[SeedResult] = []
        self.processes.on_first(lambda: results.append(self._write()))
        result: SeedResult = self.processes.broadcast(results[0] if results else None)
        del self._training  # states of the optimiser take twice the memory of the model
        return result

    @cached_property
    def _training(self) -> TrainingRun:
        return TrainingRun(
            self.checkpoint,
            self.objective,
            self.settings,
            self.folder / RUN_FOLDER,
            self.folder / STATE_FOLDER,
            self.context,
            self.processes,
            self.phase,
            self.prepared.vocabulary,
        )

    def _write(self) -> SeedResult:
        """Choose thresholds, score, and write the folder; the scores come last."""
        training, loop = self._training, self._training.loop
        tuned = {part.name: _tune_task(part, loop.model) for part in self.prepared.tasks}
        scores = combine_scores({name: task.scores for name, task in tuned.items()})
        draft = Draft(self.folder, resumed=True)
        without_training_heads(training.trained, self.prepared).write(draft, training=self._card(tuned))
        counts = {**draft.counts, **loop.position.done.counts, "kept_step": loop.kept}
        measured = scores.main, scores.measures, scores.by_label
        result = SeedResult(self.settings.seed, *measured, counts, scores.notes)
        self._write_tasks(tuned)
        self._write_run()
        atomic_write(self.folder / RUN_FOLDER / SCORES_FILE, to_json_bytes(asdict(result)))
        return result

    def _remove_states(self) -> None:
        for states in (self.folder / STATE_FOLDER, *self.folder.glob(f"*/{STATE_FOLDER}")):
            shutil.rmtree(states, ignore_errors=True)

    def _write_tasks(self, tuned: Mapping[str, TunedTask]) -> None:
        """Write what the tasks are; files for other programs only where these can open the model."""
        facts = {
            part.name: (tuned[part.name].task, {**self._facts(part), "confidence": tuned[part.name].confidence})
            for part in self.prepared.tasks
        }
        write_tasks(self.folder, facts, {part.name: part.head for part in self.prepared.tasks})
        for task in (tuned[part.name].task for part in self.prepared.tasks if not part.spec.head):
            for path, content in task.extra_files().items():
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self.folder / path, content)

    def _write_run(self) -> None:
        for part in self.prepared.tasks:
            run = get_run_folder(self.folder, part.name, self.prepared.names)
            run.mkdir(parents=True, exist_ok=True)
            if not self.forget_training:
                _write_hashes(part, self.prepared.warm_up, run)
            atomic_write(run / "data.json", to_json_bytes(self.reports[part.name].to_table()))
        self._training.write_run(self.toml)

    def _facts(self, part: PreparedTask) -> dict[str, Any]:
        divided = part.splits
        facts = {"examples": len(divided.train), "seed": self.settings.seed, "split": divided.split}
        reading = {name: value for name, value in asdict(divided.options).items() if name in COLUMN_OPTIONS}
        return {**facts, "reading": reading}

    def _card(self, tuned: Mapping[str, TunedTask]) -> dict[str, str]:
        """Describe for the model card what the model was trained for, and with what result."""
        settings = self.settings
        facts: dict[str, str] = {}
        for part in self.prepared.tasks:
            task, scores = tuned[part.name].task, tuned[part.name].scores
            of = f" of {part.name}" if len(tuned) > 1 else ""
            facts |= {
                f"task{of}": f"{task.name}: {'; '.join(line.rstrip('.') for line in task.describe())}",
                f"examples{of}": f"{len(part.splits.train):,} to train on, {len(part.splits.dev):,} for development",
                f"development data{of}": ", ".join(f"{n} {value:.4g}" for n, value in scores.measures.items()),
            }
        passes = f"{settings.epochs:g} passes" if settings.tokens else "see run/settings.toml"
        return {
            **facts,
            **self.card_facts,
            "length of the run": passes,
            "optimiser": f"{settings.optimiser.name}, rate {settings.optimiser.learning_rate:g}",
            "seed": str(settings.seed),
        }


@dataclass(frozen=True)
class TunedTask:
    """A task with the thresholds that were chosen on the development data, and how well it does there."""

    task: AnyTask
    scores: TaskScores
    confidence: Mapping[str, Any] | None
    """Which score reached which precision; None if answers have no score."""


def _tune_task(part: PreparedTask, model: Model) -> TunedTask:
    """Look at the development data once more, now with the weights that are kept."""
    dev = part.dev
    bound = part.task.with_head_weights(model.head(part.head))
    outputs = bound.run(ModelRunner(model, part.head, bound.attention_pattern), dev.encoded)
    bound = bound.tune(dev.examples, dev.encoded, outputs)
    predictions = bound.decode_batch(dev.encoded, outputs)
    confidence = build_curve_table(collect_confidences(bound, dev.examples, predictions))
    return TunedTask(bound, bound.score(dev.examples, predictions), confidence)


def _write_hashes(part: PreparedTask, warm_up: PreparedData | None, run: Path) -> None:
    train = part.train.examples
    first = () if warm_up is None else warm_up.tasks[0].train.examples
    write_train_keys(run, (example.key for example in (*train, *first)))
    write_surfaces(run, count_surfaces(part.task.entity_surfaces(train)))
