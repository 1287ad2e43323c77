"""The verb `finetune`: labelled examples and a model to a model for a task, or for several on one encoder.

In: files of examples, a Checkpoint, settings. Out: a Checkpoint folder with `task.json`, which `predict`, `evaluate`
and `inspect errors` open, and with `run/`: log, settings, data report and curves. With several seeds, the one that did
best on the development data is the result, and all of them are in `seeds/`. The same call goes on with a run that was
stopped.

`tune` searches over rates and epochs first, within a time budget, judged on the development data. Rates come first,
outwards from the one given, then numbers of epochs at the best of them. A trial is a whole run with the same seed;
another is begun as long as it can be expected to end in time, and at least one is made. Trials that are done are on the
disk, so a stopped search goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, TypeVar

from alembert.artifact import Draft, atomic_write
from alembert.artifact.opening import locate_artifact
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.hub import find_folder, is_hub_id
from alembert.nn.heads import check_head_name
from alembert.settings import as_table
from alembert.tasks.data_report import DataReport
from alembert.tasks.data_screen import format_data_report
from alembert.train.distributed import Processes
from alembert.train.finetune.data import DataFiles, PreparedData, TaskSpec, prepare_data
from alembert.train.finetune.data_reports import build_reports
from alembert.train.finetune.masked_lm import OBJECTIVE_NAME as MASKED_LM
from alembert.train.finetune.seeds import (
    SeedResult,
    SeedRun,
    build_objective,
    check_seeds,
    get_seed_folder,
    with_training_heads,
)
from alembert.train.finetune.settings import EpochSettings, FinetuneSettings, TaskRunSettings, format_finetune_toml
from alembert.train.finetune.warm_up import WARM_UP_FOLDER, WarmUpStage, prepare_warm_up
from alembert.train.run import OutputFolder, RunContext, join_processes

RATE_FACTORS: Final = (1.0, 0.5, 2.0, 0.25, 4.0)
EPOCH_FACTORS: Final = (0.6, 1.6)
TRIALS_FILE: Final = "tuning.json"
WEIGHTS_PATTERN: Final = "*.safetensors"


@dataclass(frozen=True)
class TuningTrial:
    """One try: what was changed, and how well it did."""

    rate: float
    epochs: float
    value: float
    seconds: int


def search_settings(
    settings: FinetuneSettings,
    seconds: float,
    folder: Path,
    run: Callable[[FinetuneSettings, Path], SeedRun],
    say: Callable[[str], None],
) -> tuple[FinetuneSettings, Path]:
    """Find the best settings; give them and the folder of their run."""
    trials: list[tuple[FinetuneSettings, Path, SeedResult]] = []
    for candidate in _candidate_settings(settings, trials):
        if trials and not _fits_budget(candidate, trials, seconds):
            continue
        trial_folder = folder / str(len(trials) + 1)
        result = run(candidate, trial_folder).run()
        trials.append((candidate, trial_folder, result))
        say(
            f"try {len(trials)}: rate {candidate.optimiser.learning_rate:g}, {candidate.epochs:g} epochs: "
            f"{result.main} {result.value:.4f} on the development data"
        )
        _delete_weights(trials)
    best, trial_folder, _ = _best_trial(trials)
    table = [asdict(_summarise_trial(tried, result)) for tried, _, result in trials]
    atomic_write(folder / TRIALS_FILE, (json.dumps(table, indent=2) + "\n").encode())
    return best, trial_folder


def _candidate_settings(
    settings: FinetuneSettings, trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]]
) -> Iterator[FinetuneSettings]:
    for factor in RATE_FACTORS:
        yield replace(
            settings, optimiser=replace(settings.optimiser, learning_rate=settings.optimiser.learning_rate * factor)
        )
    best, _, _ = _best_trial(trials)
    if any(settings.length_of_run.values()):  # epochs say nothing about the length of the run
        return
    for epochs in sorted({max(1.0, round(best.epochs * factor)) for factor in EPOCH_FACTORS} - {best.epochs}):
        yield replace(best, epochs=epochs)


def _best_trial(
    trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]],
) -> tuple[FinetuneSettings, Path, SeedResult]:
    return max(trials, key=lambda trial: trial[2].value)


def _fits_budget(
    candidate: FinetuneSettings, trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]], seconds: float
) -> bool:
    spent = sum(result.counts["seconds"] for _, _, result in trials)
    epochs = sum(tried.epochs for tried, _, _ in trials)
    return spent + spent / epochs * candidate.epochs <= seconds


def _delete_weights(trials: Sequence[tuple[FinetuneSettings, Path, SeedResult]]) -> None:
    """Keep the weights of the best try alone; the others keep their log and scores."""
    _, kept, _ = _best_trial(trials)
    for _, trial_folder, _ in trials:
        if trial_folder != kept:
            for path in trial_folder.glob(WEIGHTS_PATTERN):
                path.unlink()


def _summarise_trial(tried: FinetuneSettings, result: SeedResult) -> TuningTrial:
    return TuningTrial(tried.optimiser.learning_rate, tried.epochs, result.value, result.counts["seconds"])


EpochSettingsT = TypeVar("EpochSettingsT", bound=EpochSettings)
TUNING_FOLDER: Final = "tuning"


@dataclass(frozen=True, kw_only=True)
class FinetuneJob:
    """The tasks that a model learns, each with its data and under a name; an only task is mostly called as its kind."""

    model: str
    """A Checkpoint folder, or hub:organisation/name."""
    tasks: Mapping[str, TaskSpec]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise BadSetting("There is no task to learn. Give at least one.")
        for name in self.tasks:
            check_head_name(name)
            if name == MASKED_LM:
                raise BadSetting(f"A task cannot be called {name}: masked LM beside the tasks has this name.")
        object.__setattr__(self, "tasks", {name: self._with_head(name) for name in self.tasks})

    def _with_head(self, name: str) -> TaskSpec:
        """Call the head as the task; that of an only task without a name of its own is called as published models do."""
        spec = self.tasks[name]
        return spec if spec.head or [*self.tasks] == [spec.task] else replace(spec, head=name)


def build_task_specs(
    kinds: Mapping[str, str], data: Mapping[str, DataFiles], settings: Mapping[str, TaskRunSettings]
) -> dict[str, TaskSpec]:
    """Put the kind, files and settings of each task together."""
    return {
        name: TaskSpec(task=kind, data=data[name], settings=settings[name].of_task, weight=settings[name].weight)
        for name, kind in kinds.items()
    }


@dataclass(frozen=True)
class FinetuneRunResult:
    """What a run has done, and how well the result does on the development data."""

    reports: Mapping[str, DataReport]
    """The report on the data of each task."""
    results: tuple[SeedResult, ...]
    """One for each seed."""
    best: int
    """Which of them the result is."""

    @property
    def report(self) -> DataReport:
        """The report on the data of the task, or of the first of several."""
        return next(iter(self.reports.values()))

    @property
    def measures(self) -> Mapping[str, float]:
        """Scores of the result on the development data."""
        return self.results[self.best].measures

    @property
    def main(self) -> str:
        return self.results[0].main

    @property
    def mean(self) -> float:
        return fmean(result.value for result in self.results)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds; 0 for one."""
        return stdev(result.value for result in self.results) if len(self.results) > 1 else 0.0


def finetune(
    job: FinetuneJob,
    out: str | Path,
    settings: FinetuneSettings,
    *,
    seeds: int = 1,
    tune: float | None = None,
    context: RunContext | None = None,
) -> FinetuneRunResult:
    """Fine-tune a model, or continue a run that was stopped; `tune` are seconds to search rates and epochs."""
    check_seeds(seeds)
    with join_processes(context) as (own_context, processes):
        return _FinetuneRun(job, Path(out), settings, seeds, tune, own_context, processes).run()


def inspect_data(job: FinetuneJob, settings: FinetuneSettings) -> dict[str, DataReport]:
    """Report on the data of each task of a run without running it."""
    return build_reports(_prepare_data(job, settings, _open_checkpoint(job.model)))


@dataclass
class _FinetuneRun:
    """One call of the verb."""

    job: FinetuneJob
    out: Path
    settings: FinetuneSettings
    seeds: int
    tune: float | None
    context: RunContext
    processes: Processes

    def run(self) -> FinetuneRunResult:
        output = OutputFolder(self.out, self._plan(), self.processes, self.context.overwrite)
        output.check()
        checkpoint = _open_checkpoint(self.job.model)
        prepared = self.processes.agree(
            lambda: prepare_warm_up(_prepare_data(self.job, self.settings, checkpoint), self.settings, self.context.log)
        )
        reports = build_reports(prepared)
        for report in reports.values():
            self.context.print_table(format_data_report(report))
        start = partial(self._one_seed, prepared, reports)
        start(self.settings, output.partial_folder).check()  # before anything is written: settings may be refused
        with output.open() as draft:
            settings = self._tuned(start, draft)

            def train(seed: int, folder: Path) -> SeedResult:
                return start(replace(settings, seed=seed), folder).run()

            seeds = range(settings.seed, settings.seed + self.seeds)
            return train_seeds(draft, seeds, train, reports, self.processes)

    def _tuned(self, start: Callable[[FinetuneSettings, Path], SeedRun], draft: Draft) -> FinetuneSettings:
        """Search settings, if it was asked for; the run of the best is that of the first seed."""
        if self.tune is None:
            return self.settings
        settings, best = search_settings(self.settings, self.tune, draft.path / TUNING_FOLDER, start, self.context.log)
        first = get_seed_folder(draft.path, settings.seed, self.seeds)
        self.processes.on_first(lambda: _copy_folder(best, first))
        return settings

    def _plan(self) -> dict[str, Any]:
        model, specs = self.job.model, self.job.tasks
        hub = model if is_hub_id(model) else None
        return {
            "config": {
                "verb": "finetune",
                "tasks": {name: spec.as_table() for name, spec in specs.items()},
                "named": any(spec.head for spec in specs.values()),
                "hub": hub,
                "seeds": self.seeds,
                "tune": self.tune,
                **as_table(self.settings),
            },
            "inputs": [
                *(path for spec in specs.values() for path in spec.contents),
                *([] if hub else [find_folder(model)]),
            ],
            "seed": self.settings.seed,
        }

    def _one_seed(
        self,
        prepared: PreparedData,
        reports: Mapping[str, DataReport],
        settings: FinetuneSettings,
        folder: Path,
    ) -> SeedRun:
        is_shared = settings.warm_up.shared and prepared.warm_up is not None
        learner = with_training_heads(prepared, self.settings if is_shared else settings)
        tables = {
            name: TaskRunSettings(spec.settings, spec.data.options, spec.weight)
            for name, spec in self.job.tasks.items()
        }
        given, settings = settings, with_run_length(settings, prepared)
        masked = {"masked LM beside it": f"weight {settings.masked_lm.weight:g}"}
        return SeedRun(
            folder,
            prepared,
            reports,
            learner,
            settings,
            partial(build_objective, prepared, settings),
            self.context,
            self.processes,
            card_facts={**(masked if settings.masked_lm.weight else {}), **_describe_warm_up(prepared, settings)},
            toml=format_finetune_toml(given, tables),
            forget_training=settings.forget_training,
            first_stage=self._first_stage(prepared.warm_up, given, folder),
        )

    def _first_stage(
        self, warm_up: PreparedData | None, settings: FinetuneSettings, folder: Path
    ) -> Callable[[Checkpoint], Checkpoint] | None:
        if warm_up is None:
            return None
        if settings.warm_up.shared:
            folder, settings = locate_artifact(self.out).partial, self.settings
        return WarmUpStage(warm_up, settings, folder / WARM_UP_FOLDER, self.context, self.processes).train


def _describe_warm_up(prepared: PreparedData, settings: FinetuneSettings) -> dict[str, str]:
    if prepared.warm_up is None:
        return {}
    examples, own = len(prepared.warm_up.tasks[0].train.examples), settings.warm_up
    return {"warm-up": f"{examples:,} examples with silver labels, {own.epochs:g} passes, rate {own.learning_rate:g}"}


def train_seeds(
    draft: Draft,
    seeds: range,
    train: Callable[[int, Path], SeedResult],
    reports: Mapping[str, DataReport],
    processes: Processes,
) -> FinetuneRunResult:
    """Train with each seed in a folder of its own; the one that does best is the result."""
    folders = [get_seed_folder(draft.path, seed, len(seeds)) for seed in seeds]
    results = tuple(train(seed, folder) for seed, folder in zip(seeds, folders, strict=True))
    best = max(range(len(seeds)), key=lambda number: results[number].value)
    if processes.is_first:
        if len(seeds) > 1:
            _copy_folder(folders[best], draft.path)
        draft.counts.update(results[best].counts)
    return FinetuneRunResult(reports, results, best)


def _open_checkpoint(model: str) -> Checkpoint:
    checkpoint = open_checkpoint(model)
    checkpoint.require_tokenizer()
    return checkpoint


def _prepare_data(job: FinetuneJob, settings: FinetuneSettings, checkpoint: Checkpoint) -> PreparedData:
    return prepare_data(
        job.tasks,
        checkpoint,
        balanced=settings.loss.class_weights == "balanced",
        whole_vocabulary=settings.masked_lm.weight > 0,
    )


def with_run_length(settings: EpochSettingsT, prepared: PreparedData) -> EpochSettingsT:
    """Turn epochs into tokens, and looks in a pass into looks in the run."""
    if any(settings.length_of_run.values()):
        return settings
    times = max(1, round(settings.epochs * settings.evals_per_epoch))
    tokens = max(1, round(settings.epochs * prepared.train_tokens))
    return replace(settings, tokens=tokens, evaluation=replace(settings.evaluation, times=times))


def _copy_folder(source: Path, target: Path) -> None:
    """Make the best seed the result; a kill in between is mended by doing it again."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
