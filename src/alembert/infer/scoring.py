"""Models on the same examples: what each of them predicted, how good that was, and how far two are apart.

In: models that answer the same question, and labelled files, which the first of them reads, and which are refused if
they cannot be scored. Out: a `ModelComparison`, which `evaluate` and the comparison of models are both made of, so that
a model runs over the examples once for either. All models are in memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.artifact import shortlist
from alembert.corpus.inputs import list_input_files
from alembert.corpus.jobs import Progress
from alembert.corpus.readers.contract import ReadOptions, Remark
from alembert.errors import BadFile, BadSetting
from alembert.tasks import metrics
from alembert.tasks.example import ReadResult, get_group_ids
from alembert.tasks.files import NO_HASHES_REASON, TASK_FILE, read_tasks
from alembert.tasks.metrics import Interval
from alembert.tasks.reading import parse_split, split_examples
from alembert.tasks.task import SampleMetric, TaskScores

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel


SPLIT_NAMES: Final = ("train", "dev", "test")
"""Parts of a file that `finetune` makes with run.split, in the order of the shares."""


def read_gold(
    model: TaskModel, files: Sequence[Path], options: ReadOptions, part: str | None = None
) -> ReadResult[Any]:
    """Read the examples of files, or the part of them that was kept apart when the model was fine-tuned.

    A folder or a pattern stands for all files in it.
    """
    listed = list_input_files(files)
    model.task.check_reading(options, listed.paths)
    reading = model.read(listed.paths, options)
    reading = replace(reading, remarks=(*reading.remarks, *listed.remarks(files)))
    named = ", ".join(map(str, files))
    if not reading.examples:
        aside = ""
        if reading.set_aside:
            first = reading.set_aside[0]
            aside = f" ({len(reading.set_aside):,} set aside; {first.position}: {first.reason})"
        raise BadFile(f"{named} has no example that can be scored{aside}. Give a file with labelled examples.")
    examples = reading.examples if part is None else _take_split(model, reading.examples, part)
    if model.task.labels and not any(model.task.gold_answers(example) for example in examples):
        usual = "Check that the file is annotated, and that its format and columns were recognised."
        raise BadFile(
            f"None of the {len(examples):,} examples of {named} has a right answer to compare with. "
            + (" ".join(model.task.data_notes(examples)) or usual)
        )
    model.task.check(examples)
    model.task.check_gold(examples)
    if part is not None and model.train_keys() is None:
        reason = f"may be other files than those that the model was fine-tuned on, which cannot be checked: {NO_HASHES_REASON}"
        reading = replace(reading, remarks=(*reading.remarks, Remark(named, reason, 1)))
    return replace(reading, examples=tuple(examples))


def _take_split(model: TaskModel, examples: Sequence[Any], part: str) -> Sequence[Any]:
    """Split as fine-tuning did: by text and seed, so that the same file has the same parts."""
    if part not in SPLIT_NAMES:
        raise BadSetting(f"There is no part {part!r} of a file; expected one of {', '.join(SPLIT_NAMES)}.")
    how = model.training_facts.get("split")
    if not isinstance(how, dict) or not {"shares", "seed"} <= how.keys():
        raise BadSetting(
            f"{model.folder} was not fine-tuned on a part of a file ({TASK_FILE} has no split), so there is no part "
            f"{part!r}. Leave the part out to score all examples."
        )
    parts = split_examples(examples, parse_split(str(how["shares"])), int(how["seed"]))
    chosen = parts[SPLIT_NAMES.index(part)]
    if not chosen:
        raise BadFile(f"The split {how['shares']} leaves no example in the part {part!r}. Choose another part.")
    # A text may stand in two documents, one in each part: only what left the training part tells of other files.
    strange = (model.train_keys() or set()) - {example.key for example in parts[0]}
    if strange:
        raise BadFile(
            f"{len(strange):,} texts that {model.folder} was trained on are not in the training part of these files, so "
            "they are not those that it was fine-tuned on, or they have changed. Give the same files."
        )
    return chosen


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class ScoredModel:
    """A model with its predictions."""

    model: TaskModel
    predictions: list[Any]
    scores: TaskScores
    measure: SampleMetric
    interval: Interval
    """Of its main score."""


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Models that have answered the same examples."""

    files: tuple[str, ...]
    reading: ReadResult[Any]
    models: tuple[ScoredModel, ...]
    rounds: int
    seed: int

    @property
    def examples(self) -> tuple[Any, ...]:
        return self.reading.examples

    @property
    def documents(self) -> int:
        """How many documents the examples are from: what samples are drawn of."""
        return len({example.group_id for example in self.examples})

    def paired_bootstrap(self, one: ScoredModel, other: ScoredModel) -> metrics.PairedComparison:
        """Compare two models by paired bootstrap: the score of one minus that of the other."""
        chance = {"rounds": self.rounds, "seed": self.seed}
        kin = get_group_ids(self.examples)
        return metrics.compare_paired(one.measure, other.measure, len(self.examples), **chance, kin=kin)


def score_models(
    models: Sequence[TaskModel],
    files: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    part: str | None = None,
    rounds: int = 1000,
    seed: int = 1,
    on_progress: ProgressCallback = lambda _: None,
) -> ModelComparison:
    """Let models answer the examples of files; `rounds` samples give the intervals of their scores."""
    if rounds < 1:
        raise BadSetting(f"`rounds` is {rounds}; expected at least 1, and 1000 for an interval of 95 %.")
    first, *others = models
    for other in others:
        _check_comparable(first, other)
    paths = [Path(path) for path in files]
    reading = read_gold(first, paths, options or ReadOptions(), part)
    for other in others:
        other.task.check(reading.examples)
    return ModelComparison(
        files=tuple(map(str, paths)),
        reading=reading,
        models=tuple(_score_model(model, reading.examples, rounds, seed, on_progress) for model in models),
        rounds=rounds,
        seed=seed,
    )


def open_models(folders: Sequence[Path], device: str = "cpu", task: str | None = None) -> list[TaskModel]:
    """Open models; of those after the first, one that has no other task needs no name of it."""
    from alembert.infer.task_model import TaskModel

    first, *others = folders
    named = [(first, task), *((other, task if task and len(read_tasks(other)) > 1 else None) for other in others)]
    return [TaskModel.open(folder, device, name) for folder, name in named]


def predict_with_progress(model: TaskModel, examples: Sequence[Any], on_progress: ProgressCallback) -> list[Any]:
    """Predict examples, and report progress."""
    phase = f"evaluating {model.folder.name}"
    return model.predict(examples, lambda done: on_progress(Progress(phase, done, len(examples))))


def _score_model(
    model: TaskModel, examples: Sequence[Any], rounds: int, seed: int, on_progress: ProgressCallback
) -> ScoredModel:
    predictions = predict_with_progress(model, examples, on_progress)
    measure = model.task.sample_metric(examples, predictions)
    kin = get_group_ids(examples)
    return ScoredModel(
        model=model,
        predictions=predictions,
        scores=model.task.score(examples, predictions),
        measure=measure,
        interval=metrics.bootstrap_interval(measure, len(examples), rounds=rounds, seed=seed, kin=kin),
    )


def _check_comparable(model: TaskModel, other: TaskModel) -> None:
    """Refuse to compare what does not answer the same question."""
    one, two = model.task, other.task
    if one.name != two.name:
        raise BadSetting(
            f"{model.folder} is a model for the task {one.name}, {other.folder} for {two.name}; "
            "only models for the same task can be compared."
        )
    mine, theirs = one.comparison_key(), two.comparison_key()
    for what in mine:
        if mine[what] != theirs[what]:
            raise BadSetting(
                f"{model.folder} and {other.folder} cannot be compared: they differ in their {what}, "
                f"{_brief(mine[what])} against {_brief(theirs[what])}. Compare models that answer the same question."
            )


def _brief(value: Any) -> str:
    return shortlist(value) if isinstance(value, list) else str(value)
