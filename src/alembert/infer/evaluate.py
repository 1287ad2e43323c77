"""The verb `evaluate`: how good a fine-tuned model is on labelled files, and how far that number can be trusted.

In: a model and files. Out: scores with coverage, the interval that another choice of examples would move the main score
in, the spread over seeds, what is left of the score without examples that were trained on, how well the model's
confidence fits, and the difference to another model. Nothing here knows a task but by its contract. The models of several
seeds, and the one that is compared with, are each run over all examples, which is what the time goes into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from alembert.artifact import few
from alembert.corpus.jobs import Progress
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadSetting
from alembert.infer.gold import read_gold
from alembert.infer.trust import Trust, trust_of
from alembert.tasks.judged import confusion_of, judged
from alembert.tasks.metrics import bootstrap
from alembert.tasks.metrics.bootstrap import Interval
from alembert.tasks.task import Measure, Scores

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

Tell = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Seed:
    """One of several models that differ by their seed alone."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The main score of the models of several seeds."""

    seeds: tuple[Seed, ...]

    @property
    def mean(self) -> float:
        return fmean(seed.value for seed in self.seeds)

    @property
    def deviation(self) -> float:
        """Standard deviation of a sample, which is divided by one less than the number of seeds."""
        return stdev(seed.value for seed in self.seeds)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Examples whose text the model was trained on."""

    count: int
    value_without: float | None
    """The main score of the others; none: there are no others."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """Another model on the same examples."""

    model: str
    scores: Scores
    interval: Interval
    """Of its main score."""
    difference: float
    """Main score of the evaluated model minus that of the other."""
    difference_interval: Interval
    p_value: float
    """How often chance alone would make a difference as large as this."""


@dataclass(frozen=True, kw_only=True)
class Confusion:
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
    scores: Scores
    interval: Interval
    rounds: int
    spread: Spread | None = None
    seen: Seen | None = None
    """None: the model does not say what it was trained on."""
    trust: Trust | None = None
    confusion: Confusion | None = None
    against: Against | None = None
    set_aside: tuple[SetAside, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def to_table(self) -> dict[str, Any]:
        """Give everything as plain values."""
        table = asdict(self)
        if self.spread:
            table["spread"] |= {"mean": self.spread.mean, "deviation": self.spread.deviation}
        return table


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
    tell: Tell = lambda _: None,
) -> Evaluation:
    """Score a model on labelled files; `device` is for the models of its other seeds."""
    if rounds < 1:
        raise BadSetting(f"`rounds` is {rounds}; expected at least 1, and 1000 for an interval of 95 %.")
    if against is not None:
        _check_alike(model, against)
    paths = [Path(path) for path in files]
    reading = read_gold(model, paths, options or ReadOptions(), part)
    examples, task = reading.examples, model.task
    predictions = _predicted(model, examples, tell)
    measure, kin = task.measure(examples, predictions), _kin(examples)
    answers = judged(task, examples, predictions)
    other = None if against is None else _rival(against, examples, tell)
    return Evaluation(
        model=str(model.folder),
        task=task.name,
        files=tuple(map(str, paths)),
        examples=len(examples),
        scores=task.score(examples, predictions),
        interval=bootstrap.interval(measure, len(examples), rounds=rounds, seed=seed, kin=kin),
        rounds=rounds,
        spread=_spread(model, examples, device, tell),
        seen=_seen(model, examples, measure),
        trust=None if answers is None else trust_of(answers),
        confusion=_confusion(model, examples, predictions),
        against=None if other is None else _against(other, measure, rounds, seed, kin),
        set_aside=reading.set_aside,
        remarks=reading.remarks,
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
    return few(value) if isinstance(value, list) else str(value)


def _kin(examples: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Number the documents that examples belong to; none: each is one of its own."""
    number: dict[int | str, int] = {}
    found = [number.setdefault(example.kin, len(number)) for example in examples]
    return None if len(number) == len(found) else np.array(found, np.int64)


def _predicted(model: TaskModel, examples: Sequence[Any], tell: Tell) -> list[Any]:
    phase = f"evaluating {model.folder.name}"
    return model.predict(examples, lambda done: tell(Progress(phase, done, len(examples))))


def _spread(model: TaskModel, examples: Sequence[Any], device: str, tell: Tell) -> Spread | None:
    folders = model.members()
    if len(folders) < 2:
        return None
    seeds = []
    for folder in folders:
        member = type(model).open(folder, device, model.name)
        value = member.task.score(examples, _predicted(member, examples, tell)).value
        seeds.append(Seed(name=folder.name, value=value))
    return Spread(seeds=tuple(seeds))


def _seen(model: TaskModel, examples: Sequence[Any], measure: Measure) -> Seen | None:
    keys = model.train_keys()
    if keys is None:
        return None
    fresh = np.array([number for number, each in enumerate(examples) if each.key not in keys], np.int64)
    return Seen(count=len(examples) - len(fresh), value_without=measure(fresh) if len(fresh) else None)


def _confusion(model: TaskModel, examples: Sequence[Any], predictions: Sequence[Any]) -> Confusion | None:
    found = confusion_of(model.task, examples, predictions)
    return None if found is None else Confusion(labels=found[0], counts=found[1])


@dataclass(frozen=True)
class _Rival:
    """What another model scores on the same examples."""

    model: str
    scores: Scores
    measure: Measure
    examples: int


def _rival(other: TaskModel, examples: Sequence[Any], tell: Tell) -> _Rival:
    other.task.check(examples)
    predictions = _predicted(other, examples, tell)
    scores, measure = other.task.score(examples, predictions), other.task.measure(examples, predictions)
    return _Rival(str(other.folder), scores, measure, len(examples))


def _against(
    other: _Rival, measure: Measure, rounds: int, seed: int, kin: npt.NDArray[np.int64] | None
) -> Against:
    found = bootstrap.paired(measure, other.measure, other.examples, rounds=rounds, seed=seed, kin=kin)
    return Against(
        model=other.model,
        scores=other.scores,
        interval=bootstrap.interval(other.measure, other.examples, rounds=rounds, seed=seed, kin=kin),
        difference=found.difference,
        difference_interval=found.interval,
        p_value=found.p_value,
    )
