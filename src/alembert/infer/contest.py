"""Models on the same examples: what each of them said, how good that was, and how far two are apart.

In: models that answer the same question, and labelled files, which the first of them reads. Out: a `Contest`, which
`evaluate` and the comparison of models are both made of, so that a model runs over the examples once for either. All
models are in memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alembert.artifact import shortlist
from alembert.corpus.jobs import Progress
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadSetting
from alembert.infer.gold import read_gold
from alembert.tasks.example import ReadResult, get_group_ids
from alembert.tasks.files import read_task_names
from alembert.tasks.metrics import bootstrap
from alembert.tasks.metrics.bootstrap import Interval
from alembert.tasks.task import SampleMetric, TaskScores

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

Tell = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A model with what it said."""

    model: TaskModel
    predictions: list[Any]
    scores: TaskScores
    measure: SampleMetric
    interval: Interval
    """Of its main score."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Models that have answered the same examples."""

    files: tuple[str, ...]
    reading: ReadResult[Any]
    entrants: tuple[Entrant, ...]
    rounds: int
    seed: int

    @property
    def examples(self) -> tuple[Any, ...]:
        return self.reading.examples

    @property
    def documents(self) -> int:
        """How many documents the examples are from: what samples are drawn of."""
        return len({example.kin for example in self.examples})

    def paired(self, one: Entrant, other: Entrant) -> bootstrap.PairedComparison:
        """Compare two models by paired bootstrap: the score of one minus that of the other."""
        chance = {"rounds": self.rounds, "seed": self.seed}
        kin = get_group_ids(self.examples)
        return bootstrap.compare_paired(one.measure, other.measure, len(self.examples), **chance, kin=kin)


def hold(
    models: Sequence[TaskModel],
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    rounds: int = 1000,
    seed: int = 1,
    tell: Tell = lambda _: None,
) -> Contest:
    """Let models answer the examples of files; `rounds` samples give the intervals of their scores."""
    if rounds < 1:
        raise BadSetting(f"`rounds` is {rounds}; expected at least 1, and 1000 for an interval of 95 %.")
    first, *others = models
    for other in others:
        _check_alike(first, other)
    paths = [Path(path) for path in files]
    reading = read_gold(first, paths, options or ReadOptions(), part)
    for other in others:
        other.task.check(reading.examples)
    return Contest(
        files=tuple(map(str, paths)),
        reading=reading,
        entrants=tuple(_entrant(model, reading.examples, rounds, seed, tell) for model in models),
        rounds=rounds,
        seed=seed,
    )


def open_all(folders: Sequence[Path], device: str = "cpu", task: str | None = None) -> list[TaskModel]:
    """Open models; of those after the first, one that has no other task needs no name of it."""
    from alembert.infer.task_model import TaskModel

    first, *others = folders
    named = [(first, task), *((other, task if task and read_task_names(other) else None) for other in others)]
    return [TaskModel.open(folder, device, name) for folder, name in named]


def predicted(model: TaskModel, examples: Sequence[Any], tell: Tell) -> list[Any]:
    """Predict examples, and tell how far it is."""
    phase = f"evaluating {model.folder.name}"
    return model.predict(examples, lambda done: tell(Progress(phase, done, len(examples))))


def _entrant(model: TaskModel, examples: Sequence[Any], rounds: int, seed: int, tell: Tell) -> Entrant:
    predictions = predicted(model, examples, tell)
    measure = model.task.measure(examples, predictions)
    kin = get_group_ids(examples)
    return Entrant(
        model=model,
        predictions=predictions,
        scores=model.task.score(examples, predictions),
        measure=measure,
        interval=bootstrap.bootstrap_interval(measure, len(examples), rounds=rounds, seed=seed, kin=kin),
    )


def _check_alike(model: TaskModel, other: TaskModel) -> None:
    """Refuse to compare what does not answer the same question."""
    one, two = model.task, other.task
    if one.name != two.name:
        raise BadSetting(
            f"{model.folder} is a model for the task {one.name}, {other.folder} for {two.name}; "
            "only models for the same task can be compared."
        )
    mine, theirs = one.question(), two.question()
    for what in mine:
        if mine[what] != theirs[what]:
            raise BadSetting(
                f"{model.folder} and {other.folder} cannot be compared: they differ in their {what}, "
                f"{_brief(mine[what])} against {_brief(theirs[what])}. Compare models that answer the same question."
            )


def _brief(value: Any) -> str:
    return shortlist(value) if isinstance(value, list) else str(value)
