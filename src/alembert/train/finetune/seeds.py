"""One seed of a run for a task: train, choose thresholds on the development data, write everything into a folder.

A folder is done when its `run/scores.json` is there, which is written last: a run of several seeds that was stopped
goes on with the one that was not done.

Who learns in a fine-tuning run, and what: a Checkpoint with the heads that the tasks need, and the lesson for it.
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
from alembert.artifact.json_files import to_json_bytes
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_dropout, with_heads
from alembert.nn.heads import HeadSpec
from alembert.nn.model import Model
from alembert.settings import to_toml
from alembert.tasks.confidence import build_curve_table, collect_confidences
from alembert.tasks.data_report import DataReport
from alembert.tasks.example import count_surfaces
from alembert.tasks.files import (
    COLUMN_OPTIONS,
    get_run_path,
    write_surfaces,
    write_task,
    write_tasks,
    write_train_keys,
)
from alembert.tasks.runtime.torch import ModelRunner
from alembert.tasks.task import AnyTask, TaskScores
from alembert.train.curves import write_curves
from alembert.train.distributed import Processes
from alembert.train.finetune.data import PreparedData, PreparedTask
from alembert.train.finetune.masked_lm import AuxiliaryMaskedLM, get_masked_lm_head
from alembert.train.finetune.objective import MultiTaskObjective, TaskObjective, combine_scores
from alembert.train.finetune.settings import EpochSettings, FinetuneSettings
from alembert.train.loop import TrainingLoop
from alembert.train.objective import Objective
from alembert.train.run import RunContext
from alembert.train.runlog import RunLog
from alembert.train.state import RunStates


def with_training_heads(prepared: PreparedData, settings: FinetuneSettings) -> Checkpoint:
    """Give the model a head for each task, and one for masked LM if that goes along."""
    if not settings.masked_lm.weight:
        return with_task_heads(prepared, settings.seed)
    name, spec = get_masked_lm_head(prepared.checkpoint.blueprint)
    return with_task_heads(prepared, settings.seed, {name: spec})


def with_task_heads(prepared: PreparedData, seed: int, others: Mapping[str, HeadSpec] | None = None) -> Checkpoint:
    """Give the model a head for each task, and others, unless a task has one of this name.

    A head that it has already is kept only if its labels are the same, in this order.
    """
    heads = {**(others or {}), **{each.head: each.task.head() for each in prepared.tasks}}
    labels = {each.head: each.task.labels for each in prepared.tasks if each.task.labels}
    learner = with_heads(_without_mismatched_heads(prepared), heads, pooler=False, seed=seed)
    return replace(learner, blueprint=replace(learner.blueprint, labels=labels))


def _without_mismatched_heads(prepared: PreparedData) -> Checkpoint:
    """Leave out heads that are called as those of the tasks and have other labels."""
    checkpoint, strangers = prepared.checkpoint, _mismatched_heads(prepared)
    kept = {name: spec for name, spec in checkpoint.blueprint.heads.items() if name not in strangers}
    return with_heads(checkpoint, kept) if strangers & checkpoint.blueprint.heads.keys() else checkpoint


def _mismatched_heads(prepared: PreparedData) -> set[str]:
    known = prepared.checkpoint.blueprint.labels
    return {each.head for each in prepared.tasks if known.get(each.head, ()) != each.task.labels}


def has_task_head(prepared: PreparedData, task: PreparedTask) -> bool:
    """Tell whether the model came with a head for a task, of the same labels in the same order."""
    return task.head in prepared.checkpoint.blueprint.heads.keys() - _mismatched_heads(prepared)


def without_training_heads(trained: Checkpoint, prepared: PreparedData) -> Checkpoint:
    """Leave out what served the training alone."""
    own = {name: trained.blueprint.heads[name] for name in (each.head for each in prepared.tasks)}
    return trained if own == dict(trained.blueprint.heads) else with_heads(trained, own)


def build_objective(prepared: PreparedData, settings: FinetuneSettings) -> Objective:
    """Put together what the model learns: a task, or several in turn, with masked LM beside them if wanted."""
    lessons = [
        TaskObjective(
            each.task,
            each.train,
            each.dev,
            settings,
            name=each.name,
            head=each.head,
            regularise=settings.regularise,
        )
        for each in prepared.tasks
    ]
    weights = {each.name: each.spec.weight for each in prepared.tasks}
    lesson: Objective = MultiTaskObjective(lessons, settings, weights) if prepared.is_multitask else lessons[0]
    if not settings.masked_lm.weight:
        return lesson
    head, _ = get_masked_lm_head(prepared.checkpoint.blueprint)
    return AuxiliaryMaskedLM(lesson, prepared.tokenizer, settings.masked_lm, head=head, seed=settings.seed)


RUN_FOLDER: Final = "run"
SEEDS_FOLDER: Final = "seeds"
STATE_FOLDER: Final = ".state"
SCORES_FILE: Final = "scores.json"


def check_seeds(count: int) -> None:
    """Refuse a number of seeds that nobody means."""
    if not 1 <= count <= 100:
        raise BadSetting(f"The number of seeds is {count}; expected 1 to 100.")


def get_seed_folder(whole: Path, seed: int, seeds: int) -> Path:
    """Say where a seed goes: into a folder of its own, unless it is the only one."""
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
    lesson: Callable[[], Objective]
    """Makes what the model learns."""
    around: RunContext
    processes: Processes
    phase: str = "fine-tuning"
    card_facts: Mapping[str, str] = field(default_factory=dict)
    """More for the model card."""
    toml: str | None = None
    """All settings as they were given; none: those of the loop."""
    forget_training: bool = False
    """Write no hashes of the training data."""

    def check(self) -> None:
        """Refuse what cannot run, before anything is written."""
        self.processes.agree(lambda: self._loop)

    def run(self) -> SeedResult:
        """Train, or give the result of a seed that is done."""
        done = self.folder / RUN_FOLDER / SCORES_FILE
        if self.processes.broadcast(done.is_file()):
            return SeedResult.from_json(done.read_bytes())
        loop = self._loop
        loop.run()
        loop.log.close()
        result: list[SeedResult] = []
        self.processes.on_first(lambda: result.append(self._written(loop)))
        found: SeedResult = self.processes.broadcast(result[0] if result else None)
        del self._loop  # states of the optimiser take twice the memory of the model
        return found

    @cached_property
    def _loop(self) -> TrainingLoop:
        wanted = self.settings.model
        prepared = self.prepared
        return TrainingLoop(
            prepared.vocabulary.shrink(with_dropout(self.checkpoint, wanted.dropout, wanted.attention_dropout)),
            self.lesson(),
            self.settings,
            states=RunStates(self.folder / STATE_FOLDER),
            log=RunLog(self.folder / RUN_FOLDER, tensorboard=self.processes.is_first),
            processes=self.processes,
            device=self.around.device,
            sharded=self.around.shard,
            tell=lambda progress: self.around.on_progress(replace(progress, phase=self.phase)),
        )

    def _written(self, loop: TrainingLoop) -> SeedResult:
        """Choose thresholds, score, and write the folder; the scores come last."""
        tuned = {each.name: _tune_task(each, loop.model) for each in self.prepared.tasks}
        scores = _overall_scores(self.prepared, {name: each.scores for name, each in tuned.items()})
        draft = Draft(self.folder, resumed=True)
        trained = replace(self.checkpoint, model=self.prepared.vocabulary.restore(loop.model.cpu(), self.checkpoint))
        without_training_heads(trained, self.prepared).write(draft, training=self._card(tuned))
        counts = {**draft.counts, **loop.position.done.counts, "kept_step": loop.kept}
        measured = scores.main, scores.measures, scores.by_label
        result = SeedResult(self.settings.seed, *measured, counts, scores.notes)
        self._write_tasks(tuned)
        self._write_run(loop)
        atomic_write(self.folder / RUN_FOLDER / SCORES_FILE, to_json_bytes(asdict(result)))
        shutil.rmtree(self.folder / STATE_FOLDER, ignore_errors=True)
        return result

    def _write_tasks(self, tuned: Mapping[str, TunedTask]) -> None:
        """Write what the tasks are; files for other programs only where these can open the model."""
        facts = {
            each.name: {**self._facts(each), "confidence": tuned[each.name].confidence} for each in self.prepared.tasks
        }
        if self.prepared.is_multitask:
            write_tasks(self.folder, {name: (each.task, facts[name]) for name, each in tuned.items()})
            return
        for name, each in tuned.items():
            write_task(self.folder, each.task, facts[name])
            for path, content in each.task.extra_files().items():
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self.folder / path, content)

    def _write_run(self, loop: TrainingLoop) -> None:
        for each in self.prepared.tasks:
            if not self.forget_training:
                self._write_hashes(each)
            report = self.reports[each.name].to_table()
            atomic_write(get_run_path(self.folder, each.multitask_name, "data.json"), to_json_bytes(report))
        atomic_write(self.folder / RUN_FOLDER / "settings.toml", (self.toml or to_toml(self.settings)).encode())
        write_curves(loop.log, self.folder / RUN_FOLDER, self.phase.capitalize())

    def _write_hashes(self, part: PreparedTask) -> None:
        train = part.train.examples
        write_train_keys(self.folder, (example.key for example in train), part.multitask_name)
        write_surfaces(self.folder, count_surfaces(part.task.entity_surfaces(train)), part.multitask_name)

    def _facts(self, part: PreparedTask) -> dict[str, Any]:
        divided = part.splits
        facts = {"examples": len(divided.train), "seed": self.settings.seed, "split": divided.split}
        reading = {name: value for name, value in asdict(divided.options).items() if name in COLUMN_OPTIONS}
        return {**facts, "reading": reading}

    def _card(self, tuned: Mapping[str, TunedTask]) -> dict[str, str]:
        """Say on the model card what the model was trained for, and with what result."""
        settings = self.settings
        told: dict[str, str] = {}
        for each in self.prepared.tasks:
            task, scores = tuned[each.name].task, tuned[each.name].scores
            of = f" of {each.multitask_name}" if each.multitask_name else ""
            told |= {
                f"task{of}": f"{task.name}: {'; '.join(each.rstrip('.') for each in task.describe())}",
                f"examples{of}": f"{len(each.splits.train):,} to train on, {len(each.splits.dev):,} for development",
                f"development data{of}": ", ".join(f"{n} {value:.4g}" for n, value in scores.measures.items()),
            }
        passes = f"{settings.epochs:g} passes" if settings.tokens else "see run/settings.toml"
        return {
            **told,
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
    predictions = [bound.decode(each, found) for each, found in zip(dev.encoded, outputs, strict=True)]
    confidence = build_curve_table(collect_confidences(bound, dev.examples, predictions))
    return TunedTask(bound, bound.score(dev.examples, predictions), confidence)


def _overall_scores(prepared: PreparedData, scores: Mapping[str, TaskScores]) -> TaskScores:
    return combine_scores(scores) if prepared.is_multitask else next(iter(scores.values()))
