"""The verb `finetune`: labelled examples and a model to a model for a task, or for several on one encoder.

In: files of examples, a Checkpoint, settings. Out: a Checkpoint folder with `task.json`, which `predict`, `evaluate` and
`inspect errors` open, and with `run/`: log, settings, data report and curves. With several seeds, the one that did best
on the development data is the result, and all of them are in `seeds/`. The same call goes on with a run that was
stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, TypeVar

from alembert.artifact import Draft
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.hub import existing_folder, is_hub_id
from alembert.nn.heads import check_head_name
from alembert.settings import as_table
from alembert.tasks.data_report import DataReport
from alembert.tasks.data_screen import format_data_report
from alembert.train.co_training import NAME as MASKED_LM
from alembert.train.distributed import Processes
from alembert.train.finetune_settings import EpochSettings, FinetuneSettings
from alembert.train.finetune_toml import TaskSettings, finetune_toml
from alembert.train.learner import learner_of, lesson_of
from alembert.train.one_seed import OneSeed, SeedResult, check_seeds, seed_folder
from alembert.train.surroundings import Surroundings, among_processes
from alembert.train.task_data import Data, Prepared, Subject, prepare, tokenizer_of
from alembert.train.task_reports import reports_of
from alembert.train.tuning import search
from alembert.train.workplace import Workplace

Epochs = TypeVar("Epochs", bound=EpochSettings)
TUNING: Final = "tuning"


@dataclass(frozen=True, kw_only=True)
class Assignment(Subject):
    """What is to be learnt: a task, its data, and the model that learns it."""

    model: str
    """A Checkpoint folder, or hub:organisation/name."""

    @property
    def subjects(self) -> dict[str | None, Subject]:
        return {None: self}


@dataclass(frozen=True, kw_only=True)
class Curriculum:
    """Several tasks, each with its data and a name of its own, and the one model that learns them."""

    model: str
    """A Checkpoint folder, or hub:organisation/name."""
    tasks: Mapping[str, Subject]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise BadSetting("There is no task to learn. Give at least one.")
        for name in self.tasks:
            check_head_name(name)
            if name == MASKED_LM:
                raise BadSetting(f"A task cannot be called {name}: masked LM beside the tasks has this name.")

    @property
    def subjects(self) -> dict[str | None, Subject]:
        return dict[str | None, Subject](self.tasks.items())


def subjects_of(
    kinds: Mapping[str, str], data: Mapping[str, Data], settings: Mapping[str, TaskSettings]
) -> dict[str, Subject]:
    """Put the kind, files and settings of each task together."""
    return {
        name: Subject(task=kind, data=data[name], settings=settings[name].of_task, weight=settings[name].weight)
        for name, kind in kinds.items()
    }


def job_of(model: str, tasks: Mapping[str, Subject], *, are_named: bool) -> Assignment | Curriculum:
    """Say what a model learns: one task as published models have it, or tasks with names of their own."""
    if are_named:
        return Curriculum(model=model, tasks=tasks)
    (only,) = tasks.values()
    return Assignment(task=only.task, data=only.data, settings=only.settings, model=model)


@dataclass(frozen=True)
class Finetuned:
    """What a run has done, and how well the result does on the development data."""

    reports: Mapping[str, DataReport]
    """What was said about the data of each task."""
    results: tuple[SeedResult, ...]
    """One for each seed."""
    best: int
    """Which of them the result is."""
    are_named: bool = False
    """Whether the result is a model of several tasks."""

    @property
    def report(self) -> DataReport:
        """What was said about the data of the task, or of the first of several."""
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
    assignment: Assignment | Curriculum,
    out: str | Path,
    settings: FinetuneSettings,
    *,
    seeds: int = 1,
    tune: float | None = None,
    around: Surroundings | None = None,
) -> Finetuned:
    """Fine-tune a model for a task or several, or go on with a run that was stopped; `tune` are seconds to search rates and epochs."""
    check_seeds(seeds)
    with among_processes(around) as (heard, processes):
        return _Run(assignment, Path(out), settings, seeds, tune, heard, processes).run()


def examine_data(assignment: Assignment, settings: FinetuneSettings) -> DataReport:
    """Look at the data of a run without running it."""
    return next(iter(examine_all_data(assignment, settings).values()))


def examine_all_data(assignment: Assignment | Curriculum, settings: FinetuneSettings) -> dict[str, DataReport]:
    """Look at the data of all tasks of a run without running it."""
    return reports_of(_prepared(assignment, settings, _open(assignment.model)))


@dataclass
class _Run:
    """One call of the verb."""

    assignment: Assignment | Curriculum
    out: Path
    settings: FinetuneSettings
    seeds: int
    tune: float | None
    around: Surroundings
    processes: Processes

    def run(self) -> Finetuned:
        place = Workplace(self.out, self._plan(), self.processes, self.around.overwrite)
        place.check()
        checkpoint = _open(self.assignment.model)
        prepared = self.processes.agree(lambda: _prepared(self.assignment, self.settings, checkpoint))
        reports = reports_of(prepared)
        for report in reports.values():
            self.around.show(format_data_report(report))
        start = partial(self._one_seed, prepared, reports)
        start(self.settings, place.unfinished).check()  # before anything is written: settings may be refused
        with place.begun() as draft:
            settings = self._tuned(start, draft)
            results = tuple(
                start(replace(settings, seed=settings.seed + number), self._folder(draft, number)).run()
                for number in range(self.seeds)
            )
            named = isinstance(self.assignment, Curriculum)
            folder = partial(self._folder, draft)
            return finished(draft, reports, results, folder, self.processes, are_named=named)

    def _folder(self, draft: Draft, number: int) -> Path:
        return seed_folder(draft.path, self.settings.seed + number, self.seeds)

    def _tuned(self, start: Callable[[FinetuneSettings, Path], OneSeed], draft: Draft) -> FinetuneSettings:
        """Search settings, if it was asked for; the run of the best is that of the first seed."""
        if self.tune is None:
            return self.settings
        settings, best = search(self.settings, self.tune, draft.path / TUNING, start, self.around.say)
        self.processes.first_alone(lambda: _copy(best, self._folder(draft, 0)))
        return settings

    def _plan(self) -> dict[str, Any]:
        model, subjects = self.assignment.model, self.assignment.subjects
        hub = model if is_hub_id(model) else None
        return {
            "config": {
                "verb": "finetune",
                "tasks": {name or subject.task: subject.as_table() for name, subject in subjects.items()},
                "named": isinstance(self.assignment, Curriculum),
                "hub": hub,
                "seeds": self.seeds,
                "tune": self.tune,
                **as_table(self.settings),
            },
            "inputs": [
                *(path for subject in subjects.values() for path in subject.data.contents),
                *([] if hub else [existing_folder(model)]),
            ],
            "seed": self.settings.seed,
        }

    def _one_seed(
        self,
        prepared: Prepared,
        reports: Mapping[str, DataReport],
        settings: FinetuneSettings,
        folder: Path,
    ) -> OneSeed:
        learner = learner_of(prepared, settings)
        tables = {
            name: TaskSettings(subject.settings, subject.data.options, subject.weight)
            for name, subject in self.assignment.subjects.items()
        }
        given, settings = settings, with_length(settings, prepared)
        masked = {"masked LM beside it": f"weight {settings.masked_lm.weight:g}"}
        return OneSeed(
            folder,
            prepared,
            reports,
            learner,
            settings,
            partial(lesson_of, prepared, settings),
            self.around,
            self.processes,
            told=masked if settings.masked_lm.weight else {},
            toml=finetune_toml(given, tables),
            forget_training=settings.forget_training,
        )


def finished(
    draft: Draft,
    reports: Mapping[str, DataReport],
    results: tuple[SeedResult, ...],
    folder: Callable[[int], Path],
    processes: Processes,
    *,
    are_named: bool = False,
) -> Finetuned:
    """Make the seed that did best the result; `folder` says where each is."""
    best = max(range(len(results)), key=lambda number: results[number].value)
    if processes.is_first:
        if len(results) > 1:
            _copy(folder(best), draft.path)
        draft.counts.update(results[best].counts)
    return Finetuned(reports, results, best, are_named)


def _open(model: str) -> Checkpoint:
    checkpoint = open_checkpoint(model)
    tokenizer_of(checkpoint)
    return checkpoint


def _prepared(assignment: Assignment | Curriculum, settings: FinetuneSettings, checkpoint: Checkpoint) -> Prepared:
    return prepare(
        assignment.subjects,
        checkpoint,
        balanced=settings.loss.class_weights == "balanced",
        whole_vocabulary=settings.masked_lm.weight > 0,
    )


def with_length(settings: Epochs, prepared: Prepared) -> Epochs:
    """Turn epochs into tokens, and looks in a pass into looks in the run."""
    if any(settings.length_of_run.values()):
        return settings
    times = max(1, round(settings.epochs * settings.looks))
    tokens = max(1, round(settings.epochs * prepared.train_tokens))
    return replace(settings, tokens=tokens, evaluation=replace(settings.evaluation, times=times))


def _copy(source: Path, target: Path) -> None:
    """Make the best seed the result; a kill in between is mended by doing it again."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
