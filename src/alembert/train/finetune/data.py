"""The data of a fine-tuning run: read, divided, freed of overlaps, understood by the tasks and encoded.

In: for each task, files of training and development examples, or one set of files to be divided. Out:
`PreparedData`, with a part for each task. Decisions made on the way are reported in sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from alembert.corpus.inputs import InputFiles, expand_patterns, list_input_files
from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadSetting, UserError
from alembert.files.checkpoint import Checkpoint
from alembert.files.surgery import with_markers
from alembert.settings import as_table
from alembert.tasks.example import EncodedExample, ReadResult, exclude_examples
from alembert.tasks.reading import SplitShares, find_overlap, parse_split, split_examples
from alembert.tasks.task import AnyTask, get_task_class
from alembert.text.lexicon import parse_lexicon_option
from alembert.text.tokenizer import Tokenizer
from alembert.train.finetune.objective import EncodedExamples
from alembert.train.training_run import VocabularySubset

DEFAULT_SHARES: Final = SplitShares(90, 10)
"""How training data are divided if no development data are given."""
SPLIT_SEED: Final = 1
"""Decides which part a text falls into. Not the seed of the run: runs with other seeds are judged by the same texts."""


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """Which files a run learns from: training and development, or one set that is divided.

    A folder or a pattern stands for all files in it.
    """

    train: tuple[Path, ...] = ()
    dev: tuple[Path, ...] = ()
    unsplit: tuple[Path, ...] = ()
    """Files that are divided by `split_examples`."""
    warm_up: tuple[Path, ...] = ()
    """Files with silver labels, which are learnt from first."""
    split: str = "80/10/10"
    options: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if bool(self.train) == bool(self.unsplit):
            raise BadSetting("Give either training files, or files to be split, not both.")
        if self.unsplit and self.dev:
            raise BadSetting("The training files are split, which makes development data: leave --dev out.")
        self.parts, self.warm_up_files  # noqa: B018 (refuses what is not there)

    @cached_property
    def parts(self) -> tuple[InputFiles, InputFiles, InputFiles]:
        """The files of each part: train, dev and whole."""
        train, dev, whole = (
            list_input_files(paths) if paths else InputFiles(()) for paths in (self.train, self.dev, self.unsplit)
        )
        return train, dev, whole

    @cached_property
    def warm_up_files(self) -> InputFiles:
        """The files of the warm-up."""
        return list_input_files(self.warm_up) if self.warm_up else InputFiles(())

    @property
    def _all_parts(self) -> tuple[InputFiles, ...]:
        return (*self.parts, *((self.warm_up_files,) if self.warm_up else ()))

    @property
    def files(self) -> tuple[Path, ...]:
        """All files; a folder that a reader takes whole, as brat has them, is one."""
        return tuple(path for part in self._all_parts for path in part.paths)

    @property
    def contents(self) -> tuple[Path, ...]:
        """Everything that is read: of a brat pair, both files."""
        return tuple(path for part in self._all_parts for path in part.contents)

    @property
    def sizes(self) -> list[int]:
        """How many of the contents belong to each part."""
        return [len(part.contents) for part in self._all_parts]

    @property
    def sources(self) -> list[Path]:
        """The files and folders to train on, as they were named."""
        return expand_patterns(self.train or self.unsplit)


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task, and the data that it is learnt from."""

    task: str
    data: DataFiles
    settings: Any = None
    """Settings of the task; none: the usual ones."""
    weight: float = 1.0
    """How much its loss counts beside those of other tasks."""
    head: str | None = None
    """The name of its head in the model; none: that of the head's kind, which published models have."""

    def __post_init__(self) -> None:
        usual = get_task_class(self.task).settings_class
        if self.settings is None:
            object.__setattr__(self, "settings", usual())
        elif not isinstance(self.settings, usual):
            raise BadSetting(f"The task {self.task} takes {usual.__name__}, not {type(self.settings).__name__}.")
        if not 0 < self.weight < float("inf"):
            raise BadSetting(f"The weight of a task {self.task} is {self.weight}; expected a positive number.")

    @property
    def contents(self) -> tuple[Path, ...]:
        """All files that decide about the run."""
        return (*self.data.contents, *(path for _, path in self._lexicons))

    @property
    def _lexicons(self) -> list[tuple[str, Path]]:
        return list(map(parse_lexicon_option, getattr(self.settings, "lexicons", ())))

    def as_table(self) -> dict[str, Any]:
        """Return what decides about the run, without the names of files, as plain values."""
        data, lexicons = self.data, [label for label, _ in self._lexicons]
        return {
            "task": self.task,
            "split": data.split if data.unsplit else None,
            "reading": asdict(data.options),
            "parts": data.sizes,
            "of_the_task": as_table(self.settings) | ({"lexicons": lexicons} if lexicons else {}),
            "weight": self.weight,
        }


@dataclass(frozen=True)
class DataSplits:
    """Examples to learn from and to judge by, and what was noticed on the way."""

    train: tuple[Any, ...]
    dev: tuple[Any, ...]
    notes: tuple[str, ...]
    set_aside: tuple[SetAside, ...]
    remarks: tuple[Remark, ...]
    options: ReadOptions
    """How the files were read."""
    split: Mapping[str, Any] | None = None
    """How the files were divided, by which shares and seed; none: they were given apart."""
    test: tuple[Any, ...] = ()
    """What was divided from the same files, and is not used here."""

    @property
    def all(self) -> tuple[Any, ...]:
        """All examples of files that were divided: they say which labels there are, wherever a rare one fell."""
        return (*self.train, *self.dev, *self.test)


@dataclass(frozen=True)
class PreparedTask:
    """What one task learns from."""

    name: str
    spec: TaskSpec
    task: AnyTask
    train: EncodedExamples
    dev: EncodedExamples
    splits: DataSplits

    @property
    def head(self) -> str:
        """The name of its head in the model."""
        return self.spec.head or self.task.head().kind


@dataclass(frozen=True)
class PreparedData:
    """Everything that a run learns from."""

    tasks: tuple[PreparedTask, ...]
    vocabulary: VocabularySubset
    """What the numbers in the rows of all examples stand for."""
    checkpoint: Checkpoint
    """The model that learns, with rows for the markers of the tasks."""
    warm_up: PreparedData | None = None
    """What it learns from before, if anything."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.require_tokenizer()

    @property
    def max_length(self) -> int:
        """Tokens that the model reads at once."""
        return self.checkpoint.max_tokens

    @property
    def names(self) -> list[str]:
        return [part.name for part in self.tasks]

    @property
    def train_tokens(self) -> int:
        """Tokens of a pass over the training data of all tasks."""
        return sum(each.train.tokens for each in self.tasks)


def read_splits(
    task: type[AnyTask], data: DataFiles, settings: Any, reading: ReadResult[Any] | None = None
) -> DataSplits:
    """Read the files, and see to it that no development example is among those that are trained on.

    `reading` is what was read of the files to train on, or to be divided, if they were read before.
    """
    in_train, in_dev, in_whole = (part.paths for part in data.parts)
    if reading is None:
        reading = task.read(in_whole or in_train, settings, data.options)
    if in_whole:
        train, dev, test = split_examples(reading.examples, parse_split(data.split), SPLIT_SEED)
        notes = [
            f"divided by content, {data.split}: {len(train):,} to train on, {len(dev):,} for development"
            + (f", {len(test):,} left for `evaluate --part test`" if test else "")
        ]
        aside, remarks, how = reading.set_aside, reading.remarks, _split_facts(data.split)
        return _check_splits(DataSplits(train, dev, tuple(notes), aside, remarks, data.options, how, test))
    settled = task.resolve_settings(reading.examples, settings)
    others = task.read(in_dev, settled, data.options) if in_dev else ReadResult(())
    # An empty file of development data is met below, so it is nothing that was left out.
    set_aside = tuple(each for each in others.set_aside if each.kind != "file" or not _is_blank(each.source))
    if lost := [each for each in set_aside if each.kind == "file" and not others.examples]:
        raise BadFile(
            f"The development data cannot be used: {lost[0].source}, {lost[0].position}: {lost[0].reason}. Mend the file, or "
            "leave --dev out: a tenth of the training examples is then set apart."
        )
    aside, remarks = reading.set_aside + set_aside, reading.remarks + others.remarks
    if reading.examples and not others.examples:
        why = "the development files have no example" if data.dev else "no development files were given"
        train, dev, _ = split_examples(reading.examples, DEFAULT_SHARES, SPLIT_SEED)
        if not (train and dev):  # files of another task are a better reason than too few examples
            task.learn(reading.examples, settings)
        note = f"{why}: {len(dev):,} of the training examples, a tenth, were set apart for development"
        return _check_splits(DataSplits(train, dev, (note,), aside, remarks, data.options, _split_facts("90/10")))
    return _check_splits(DataSplits(reading.examples, others.examples, (), aside, remarks, data.options))


def _is_blank(source: str) -> bool:
    """Return whether a file holds nothing but white space."""
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return not any(block.strip() for block in iter(lambda: file.read(1 << 16), b""))


def _split_facts(shares: str) -> dict[str, Any]:
    return {"shares": shares, "seed": SPLIT_SEED}


def _without_overlap(divided: DataSplits) -> DataSplits:
    shared = find_overlap(divided.dev, divided.train)
    if not shared.count:
        return divided
    have, were = ("example has", "was") if shared.count == 1 else ("examples have", "were")
    note = f"{shared.count:,} training {have} the text of a development example, and {were} left out of training"
    kept = exclude_examples(divided.train, (example.key for example in shared.examples))
    return replace(divided, train=kept, notes=(*divided.notes, note))


def _check_splits(divided: DataSplits) -> DataSplits:
    divided = _without_overlap(divided)
    for name, examples in (("train on", divided.train), ("judge by", divided.dev)):
        if not examples:
            raise BadFile(f"There is no example to {name}.{_explain_empty(divided)} {_suggest_fix(divided)}")
    return divided


def _suggest_fix(divided: DataSplits) -> str:
    if divided.train and not divided.set_aside:
        return "Give files of development data (--dev), or more examples."
    return "Check the files and their format; docs/finetune.md shows it."


def _explain_empty(divided: DataSplits) -> str:
    """Explain what became of the examples, where none is left."""
    notes = f" What was decided: {'; '.join(divided.notes)}." if divided.notes else ""
    if not divided.set_aside:
        return notes
    first = divided.set_aside[0]
    return f"{notes} The first that was set aside: {first.source}, {first.position}: {first.reason}."


def prepare_data(
    specs: Mapping[str, TaskSpec],
    checkpoint: Checkpoint,
    *,
    balanced: bool = False,
    whole_vocabulary: bool = False,
    known: Mapping[str, AnyTask] | None = None,
    readings: Mapping[str, ReadResult[Any]] | None = None,
    more: Callable[[AnyTask, Sequence[Any]], Sequence[Any]] = lambda task, examples: (),
) -> PreparedData:
    """Let each task understand its examples, and encode them.

    Tasks in `known` are taken as they are: their labels are not those of the data but of a model that has them already.
    `readings` has what was read before of the files to train on. `more` makes further training examples of those that
    there are.
    """
    learnt = {}
    for name, spec in specs.items():
        with _naming_task(name if len(specs) > 1 else None):
            learnt[name] = _fit_task(spec, checkpoint, (known or {}).get(name), (readings or {}).get(name))
    learnt = {name: (task, _add_examples(task, divided, more)) for name, (task, divided) in learnt.items()}
    markers = {marker: word for task, _ in learnt.values() for marker, word in task.special_tokens.items()}
    checkpoint = with_markers(checkpoint, checkpoint.require_tokenizer(), markers)
    encoded = {name: _encode_splits(task, divided, checkpoint) for name, (task, divided) in learnt.items()}
    needs_all = whole_vocabulary or any(task.needs_full_vocabulary for task, _ in learnt.values())
    own = (each for parts in encoded.values() for part in parts for each in part)
    pieces = VocabularySubset.all(checkpoint.blueprint.config.vocab_size) if needs_all else VocabularySubset.of(own)
    tasks = tuple(
        PreparedTask(
            name,
            specs[name],
            task.with_class_weights(encoded[name][0]) if balanced else task,
            EncodedExamples(divided.train, pieces.remap(encoded[name][0])),
            EncodedExamples(divided.dev, pieces.remap(encoded[name][1])),
            divided,
        )
        for name, (task, divided) in learnt.items()
    )
    return PreparedData(tasks, pieces, checkpoint)


def _add_examples(
    task: AnyTask, divided: DataSplits, more: Callable[[AnyTask, Sequence[Any]], Sequence[Any]]
) -> DataSplits:
    found = tuple(more(task, divided.train))
    if not found:
        return divided
    note = f"{len(found):,} of the examples to train on were added: copies with words replaced, or plain text"
    return replace(divided, train=(*divided.train, *found), notes=(*divided.notes, note))


@contextmanager
def _naming_task(name: str | None) -> Iterator[None]:
    """Name which of several tasks has refused its data."""
    try:
        yield
    except UserError as problem:
        if name is not None:
            problem.args = (f"Task {name}: {problem}",)
        raise


def _fit_task(
    spec: TaskSpec, checkpoint: Checkpoint, known: AnyTask | None, reading: ReadResult[Any] | None
) -> tuple[AnyTask, DataSplits]:
    kind = get_task_class(spec.task)
    divided = _mark_unknown(kind, read_splits(kind, spec.data, spec.settings, reading), spec)
    if known is None:
        task = kind.learn(divided.train, spec.settings)  # refuses what nothing can be learnt from
        task = kind.learn(divided.all, spec.settings) if divided.split else task
        task = task if checkpoint.folder is None else task.adopt_model_settings(checkpoint.folder)
    else:
        task = known
        task.check(divided.train)
    task.check_reading(divided.options, spec.data.files)
    task.check(divided.dev)
    task.check_gold(divided.dev)
    return task, divided


def _mark_unknown(kind: type[AnyTask], divided: DataSplits, spec: TaskSpec) -> DataSplits:
    """Let the task mark what training examples leave open; development data are judged as they were read."""
    train, notes = kind.mark_unknown(divided.train, spec.settings, spec.data.sources)
    return replace(divided, train=tuple(train), notes=(*notes, *divided.notes))


def _encode_splits(
    task: AnyTask, divided: DataSplits, checkpoint: Checkpoint
) -> tuple[list[EncodedExample], list[EncodedExample]]:
    tokenizer, longest = checkpoint.require_tokenizer(), checkpoint.max_tokens
    trained = task.for_training().encode(divided.train, tokenizer, longest)
    return trained, task.encode(divided.dev, tokenizer, longest)
