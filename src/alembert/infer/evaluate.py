"""The verb `evaluate`: how good a fine-tuned model is on labelled files, and how far that number can be trusted.

In: a model and files. Out: scores with coverage, the interval that another choice of examples would move the main
score in, the spread over seeds, what is left of the score without examples that were trained on, how well the model's
confidence fits, and the difference to another model. Nothing here knows a task but by its contract. The models of
several seeds, and the one that is compared with, are each run over all examples, which is what the time goes into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.infer.scoring import ModelComparison, ProgressCallback, ScoredModel, predict_with_progress, score_models
from alembert.tasks.metrics import Interval
from alembert.tasks.metrics.calibration import (
    ConfidenceCurve,
    build_confidence_curve,
    build_confusion_matrix,
    collect_confidences,
)
from alembert.tasks.task import SampleMetric, TaskScores

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


@dataclass(frozen=True, kw_only=True)
class SeedScore:
    """One of several models that differ by their seed alone."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """The main score of the models of several seeds."""

    seeds: tuple[SeedScore, ...]

    @property
    def mean(self) -> float:
        return fmean(seed.value for seed in self.seeds)

    @property
    def deviation(self) -> float:
        """Standard deviation of a sample, which is divided by one less than the number of seeds."""
        return stdev(seed.value for seed in self.seeds)


@dataclass(frozen=True, kw_only=True)
class TrainingOverlap:
    """Examples whose text the model was trained on."""

    count: int
    value_without: float | None
    """The main score of the others; none: there are no others."""


@dataclass(frozen=True, kw_only=True)
class BaselineComparison:
    """Another model on the same examples."""

    model: str
    scores: TaskScores
    interval: Interval
    """Of its main score."""
    difference: float
    """Main score of the evaluated model minus that of the other."""
    difference_interval: Interval
    p_value: float
    """How often chance alone would make a difference as large as this."""


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Examples by right label (rows) and guessed label (columns)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All that is known about the quality of a model on some files."""

    model: str
    task: str
    files: tuple[str, ...]
    examples: int
    documents: int
    """Documents that the examples are from; samples for the interval are drawn of these."""
    scores: TaskScores
    interval: Interval
    rounds: int
    spread: SeedSpread | None = None
    seen: TrainingOverlap | None = None
    """None: the model's folder has no hashes of its training data."""
    trust: ConfidenceCurve | None = None
    confusion: ConfusionMatrix | None = None
    against: BaselineComparison | None = None
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def to_table(self) -> dict[str, Any]:
        """Return everything as plain values."""
        table = asdict(self)
        if self.spread:
            table["spread"] |= {"mean": self.spread.mean, "deviation": self.spread.deviation}
        return table

    to_dict = to_table


def evaluate(
    model: TaskModel,
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    against: TaskModel | None = None,
    rounds: int = 1000,
    seed: int = 1,
    device: str = "cpu",
    on_progress: ProgressCallback = lambda _: None,
) -> Evaluation:
    """Score a model on labelled files; `device` is for the models of its other seeds."""
    models = [model] if against is None else [model, against]
    contest = score_models(models, files, options, part=part, rounds=rounds, seed=seed, on_progress=on_progress)
    return build_evaluation(contest, device=device, on_progress=on_progress)


def evaluate_tasks(
    model: TaskModel,
    files: Mapping[str, Sequence[str | Path]],
    options: ReadOptions | None = None,
    *,
    against: TaskModel | None = None,
    **how: Any,
) -> dict[str, Evaluation]:
    """Score several tasks of a model, each on its own files, which are given by the names of the tasks."""
    return {
        name: evaluate(
            model.select(name), own, options, against=None if against is None else against.select(name), **how
        )
        for name, own in files.items()
    }


def build_evaluation(
    contest: ModelComparison, *, device: str = "cpu", on_progress: ProgressCallback = lambda _: None
) -> Evaluation:
    """Evaluate the first model of a contest, against the second if there is one."""
    first, *others = contest.models
    model, examples = first.model, contest.examples
    answers = collect_confidences(model.task, examples, first.predictions)
    return Evaluation(
        model=str(model.folder),
        task=model.task.name,
        files=contest.files,
        examples=len(examples),
        documents=contest.documents,
        scores=first.scores,
        interval=first.interval,
        rounds=contest.rounds,
        spread=_measure_spread(model, examples, device, on_progress),
        seen=_measure_overlap(model, examples, first.measure),
        trust=None if answers is None else build_confidence_curve(answers),
        confusion=_build_confusion(model, examples, first.predictions),
        against=_compare_baseline(contest, first, others[0]) if others else None,
        set_aside=contest.reading.set_aside,
        remarks=contest.reading.remarks,
    )


def _measure_spread(
    model: TaskModel, examples: Sequence[Any], device: str, on_progress: ProgressCallback
) -> SeedSpread | None:
    folders = model.seed_folders()
    if len(folders) < 2:
        return None
    seeds = []
    for folder in folders:
        member = type(model).open(folder, device, model.only.name)
        value = member.task.score(examples, predict_with_progress(member, examples, on_progress)).value
        seeds.append(SeedScore(name=folder.name, value=value))
    return SeedSpread(seeds=tuple(seeds))


def _measure_overlap(model: TaskModel, examples: Sequence[Any], measure: SampleMetric) -> TrainingOverlap | None:
    keys = model.train_keys()
    if keys is None:
        return None
    fresh = np.array([number for number, each in enumerate(examples) if each.key not in keys], np.int64)
    return TrainingOverlap(count=len(examples) - len(fresh), value_without=measure(fresh) if len(fresh) else None)


def _build_confusion(model: TaskModel, examples: Sequence[Any], predictions: Sequence[Any]) -> ConfusionMatrix | None:
    found = build_confusion_matrix(model.task, examples, predictions)
    return None if found is None else ConfusionMatrix(labels=found[0], counts=found[1])


def _compare_baseline(contest: ModelComparison, first: ScoredModel, other: ScoredModel) -> BaselineComparison:
    found = contest.paired_bootstrap(first, other)
    return BaselineComparison(
        model=str(other.model.folder),
        scores=other.scores,
        interval=other.interval,
        difference=found.difference,
        difference_interval=found.interval,
        p_value=found.p_value,
    )
