"""The verb `finetune`: labelled examples and a model to a model for one task.

In: files of examples, a Checkpoint, settings. Out: a Checkpoint folder with `task.json`, which `predict`, `evaluate` and
`inspect errors` open, and with `run/`: log, settings, data report and curves. With several seeds, the one that did best
on the development data is the result, and all of them are in `seeds/`. The same call goes on with a run that was
stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from alembert.artifact import Draft
from alembert.errors import BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.checkpoint import open as open_checkpoint
from alembert.files.heads import with_heads
from alembert.files.hub import is_hub_id
from alembert.settings import as_table
from alembert.tasks.data_report import DataReport
from alembert.tasks.data_screen import lines
from alembert.tasks.task import task_class
from alembert.train.distributed import Processes
from alembert.train.finetune_settings import FinetuneSettings
from alembert.train.one_seed import OneSeed, SeedResult
from alembert.train.surroundings import Surroundings
from alembert.train.task_data import Data, Prepared, divide, prepare, report_of, tokenizer_of
from alembert.train.tuning import search
from alembert.train.workplace import Workplace

SEEDS: Final = "seeds"
TUNING: Final = "tuning"


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What is to be learnt: a task, its data, and the model that learns it."""

    task: str
    data: Data
    model: str
    """A Checkpoint folder, or hub:organisation/name."""
    settings: Any = None
    """Settings of the task; none: the usual ones."""

    def __post_init__(self) -> None:
        usual = task_class(self.task).settings_class
        if self.settings is None:
            object.__setattr__(self, "settings", usual())
        elif not isinstance(self.settings, usual):
            raise BadSetting(
                f"The task {self.task} takes {usual.__name__}, not {type(self.settings).__name__}."
            )


@dataclass(frozen=True)
class Finetuned:
    """What a run has done, and how well the result does on the development data."""

    report: DataReport
    results: tuple[SeedResult, ...]
    """One for each seed."""
    best: int
    """Which of them the result is."""

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
    assignment: Assignment,
    out: str | Path,
    settings: FinetuneSettings,
    *,
    seeds: int = 1,
    tune: float | None = None,
    around: Surroundings | None = None,
) -> Finetuned:
    """Fine-tune a model for a task, or go on with a run that was stopped; `tune` are seconds to search rates and epochs."""
    if not 1 <= seeds <= 100:
        raise BadSetting(f"The number of seeds is {seeds}; expected 1 to 100.")
    with Processes.join() as processes:
        around = around or Surroundings()
        heard = around if processes.is_first else around.silent()
        return _Run(assignment, Path(out), settings, seeds, tune, heard, processes).run()


def examine_data(assignment: Assignment, settings: FinetuneSettings) -> DataReport:
    """Look at the data of a run without running it."""
    return report_of(_prepared(assignment, settings, _open(assignment.model)), assignment.data)


@dataclass
class _Run:
    """One call of the verb."""

    assignment: Assignment
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
        report = report_of(prepared, self.assignment.data)
        self.around.show(lines(report))
        start = partial(self._one_seed, prepared, report)
        start(self.settings, place.unfinished).check()  # before anything is written: settings may be refused
        with place.begun() as draft:
            settings = self._tuned(start, draft)
            results = tuple(
                start(replace(settings, seed=settings.seed + number), self._folder(draft, number)).run()
                for number in range(self.seeds)
            )
            return self._finished(draft, report, results)

    def _folder(self, draft: Draft, number: int) -> Path:
        seed = self.settings.seed + number
        return draft.path / SEEDS / str(seed) if self.seeds > 1 else draft.path

    def _tuned(self, start: Callable[[FinetuneSettings, Path], OneSeed], draft: Draft) -> FinetuneSettings:
        """Search settings, if it was asked for; the run of the best is that of the first seed."""
        if self.tune is None:
            return self.settings
        settings, best = search(self.settings, self.tune, draft.path / TUNING, start, self.around.say)
        self.processes.first_alone(lambda: _copy(best, self._folder(draft, 0)))
        return settings

    def _plan(self) -> dict[str, Any]:
        given, data = self.assignment, self.assignment.data
        hub = given.model if is_hub_id(given.model) else None
        return {
            "config": {
                "verb": "finetune",
                "task": given.task,
                "hub": hub,
                "seeds": self.seeds,
                "tune": self.tune,
                "split": data.split if data.whole else None,
                "reading": asdict(data.options),
                "parts": [len(data.train), len(data.dev), len(data.whole)],
                "of_the_task": as_table(given.settings),
                **as_table(self.settings),
            },
            "inputs": [*data.files, *([] if hub else [Path(given.model)])],
            "seed": self.settings.seed,
        }

    def _one_seed(
        self,
        prepared: Prepared,
        report: DataReport,
        settings: FinetuneSettings,
        folder: Path,
    ) -> OneSeed:
        learner = _learner(prepared, settings.seed)
        settings = _with_length(settings, prepared)
        return OneSeed(folder, prepared, report, learner, settings, self.around, self.processes)

    def _finished(self, draft: Draft, report: DataReport, results: tuple[SeedResult, ...]) -> Finetuned:
        best = max(range(len(results)), key=lambda number: results[number].value)
        if self.processes.is_first:
            if self.seeds > 1:
                _copy(self._folder(draft, best), draft.path)
            draft.counts.update(results[best].counts)
        return Finetuned(report, results, best)


def _open(model: str) -> Checkpoint:
    checkpoint = open_checkpoint(model)
    tokenizer_of(checkpoint)
    return checkpoint


def _prepared(assignment: Assignment, settings: FinetuneSettings, checkpoint: Checkpoint) -> Prepared:
    divided = divide(task_class(assignment.task), assignment.data, assignment.settings, settings.seed)
    return prepare(
        assignment.task,
        divided,
        assignment.settings,
        checkpoint,
        balanced=settings.loss.class_weights == "balanced",
    )


def _with_length(settings: FinetuneSettings, prepared: Prepared) -> FinetuneSettings:
    """Turn epochs into tokens, and looks in a pass into looks in the run."""
    if any(settings.length_of_run.values()):
        return settings
    times = max(1, round(settings.epochs * settings.looks))
    tokens = max(1, round(settings.epochs * prepared.train.tokens))
    return replace(settings, tokens=tokens, evaluation=replace(settings.evaluation, times=times))


def _learner(prepared: Prepared, seed: int) -> Checkpoint:
    """Give the model the head of the task; one that it has is kept only if its labels are the same, in this order."""
    task, spec, checkpoint = prepared.task, prepared.task.head(), prepared.checkpoint
    known = checkpoint.blueprint.labels.get(spec.kind)
    bare = checkpoint if known == task.labels else with_heads(checkpoint, {}, pooler=True)
    learner = with_heads(bare, {spec.kind: spec}, pooler=False, seed=seed)
    if not task.labels:
        return learner
    blueprint = replace(learner.blueprint, labels={spec.kind: task.labels})
    return replace(learner, blueprint=blueprint)


def _copy(source: Path, target: Path) -> None:
    """Make the best seed the result; a kill in between is mended by doing it again."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
