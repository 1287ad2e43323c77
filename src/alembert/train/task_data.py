"""The data of a fine-tuning run: read, divided, freed of overlaps, understood by the task and encoded.

In: files of training and development examples, or one set of files to be divided. Out: `Prepared`. What was decided on
the way is said in sentences: it is what people doubt later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from alembert.corpus.readers.contract import ReadOptions, Remark, SetAside
from alembert.errors import BadFile, BadSetting
from alembert.files.checkpoint import Checkpoint
from alembert.files.resize import with_markers
from alembert.tasks.data_report import DataReport, Part, data_report
from alembert.tasks.example import Reading, without
from alembert.tasks.splitting import Shares, overlaps, parse_split, split
from alembert.tasks.task import AnyTask, task_class
from alembert.text.tokenizer import Tokenizer
from alembert.train.own_pieces import OwnPieces
from alembert.train.task_lesson import Examples

AUTOMATIC: Final = Shares(90, 10)
"""How training data are divided if no development data are given."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which files a run learns from: training and development, or one set that is divided."""

    train: tuple[Path, ...] = ()
    dev: tuple[Path, ...] = ()
    whole: tuple[Path, ...] = ()
    """Files that are divided by `split`."""
    split: str = "80/10/10"
    options: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if bool(self.train) == bool(self.whole):
            raise BadSetting(
                "Give either training files (--train), or files to be divided (--data), not both."
            )
        if self.whole and self.dev:
            raise BadSetting("--data is divided into training and development parts; leave --dev out.")
        for path in self.files:
            if not path.exists():
                raise BadFile(f"There is no file {path}. Check the path.")

    @property
    def files(self) -> tuple[Path, ...]:
        return self.train + self.dev + self.whole


@dataclass(frozen=True)
class Divided:
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


@dataclass(frozen=True)
class Prepared:
    """Everything that a run learns from."""

    task: AnyTask
    train: Examples
    dev: Examples
    pieces: OwnPieces
    """What the numbers in the rows of `train` and `dev` stand for."""
    divided: Divided
    checkpoint: Checkpoint
    """The model that learns, with rows for the markers of the task."""

    @property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_of(self.checkpoint)

    @property
    def longest(self) -> int:
        """Tokens that the model reads at once."""
        return self.checkpoint.blueprint.config.max_position_embeddings


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """Give the tokenizer of a model that must have one."""
    if checkpoint.tokenizer is None:
        raise BadFile(
            "The model has no tokenizer: neither tokenizer.json nor vocab.txt is in its folder. "
            "Put the files of the tokenizer it was trained with there."
        )
    return checkpoint.tokenizer


def divide(task: type[AnyTask], data: Data, settings: Any, seed: int) -> Divided:
    """Read the files, and see to it that no development example is among those that are trained on."""
    if data.whole:
        reading = task.read(data.whole, settings, data.options)
        train, dev, test = split(reading.examples, parse_split(data.split), seed)
        notes = [
            f"divided by content, {data.split}: {len(train):,} to train on, {len(dev):,} for development"
            + (f", {len(test):,} left for `evaluate --part test`" if test else "")
        ]
        aside, remarks, how = reading.set_aside, reading.remarks, _split(data.split, seed)
        return _checked(Divided(train, dev, tuple(notes), aside, remarks, data.options, how))
    reading = task.read(data.train, settings, data.options)
    others = task.read(data.dev, settings, data.options) if data.dev else Reading(())
    # An empty file of development data is met below, so it is nothing that was left out.
    set_aside = tuple(each for each in others.set_aside if each.kind != "file" or others.examples)
    aside, remarks = reading.set_aside + set_aside, reading.remarks + others.remarks
    if not others.examples:
        why = "the development files have no example" if data.dev else "no development files were given"
        train, dev, _ = split(reading.examples, AUTOMATIC, seed)
        note = f"{why}: {len(dev):,} of the training examples, a tenth, were set apart for development"
        return _checked(Divided(train, dev, (note,), aside, remarks, data.options, _split("90/10", seed)))
    return _checked(Divided(reading.examples, others.examples, (), aside, remarks, data.options))


def _split(shares: str, seed: int) -> dict[str, Any]:
    return {"shares": shares, "seed": seed}


def _without_overlap(divided: Divided) -> Divided:
    shared = overlaps(divided.dev, divided.train)
    if not shared.count:
        return divided
    note = f"{shared.count:,} training examples have the text of a development example, and were left out of training"
    kept = without(divided.train, (example.key for example in shared.examples))
    return replace(divided, train=kept, notes=(*divided.notes, note))


def _checked(divided: Divided) -> Divided:
    divided = _without_overlap(divided)
    for name, examples in (("train on", divided.train), ("judge by", divided.dev)):
        if not examples:
            raise BadFile(
                f"There is no example to {name}.{_why(divided)} Check the files and their format; docs/finetune.md "
                "shows it."
            )
    return divided


def _why(divided: Divided) -> str:
    """Say what became of the examples, where none is left."""
    notes = f" What was decided: {'; '.join(divided.notes)}." if divided.notes else ""
    if not divided.set_aside:
        return notes
    first = divided.set_aside[0]
    return f"{notes} The first that was set aside: {first.source}, {first.position}: {first.reason}."


def prepare(
    name: str, divided: Divided, settings: Any, checkpoint: Checkpoint, *, balanced: bool
) -> Prepared:
    """Let the task understand the examples, and encode them."""
    task = task_class(name).learn(divided.train, settings)
    task.check(divided.dev)
    checkpoint = with_markers(checkpoint, tokenizer_of(checkpoint), task.markers)
    tokenizer, longest = tokenizer_of(checkpoint), checkpoint.blueprint.config.max_position_embeddings
    trained = task.for_training().encode(divided.train, tokenizer, longest)
    judged = task.encode(divided.dev, tokenizer, longest)
    size = checkpoint.blueprint.config.vocab_size
    pieces = OwnPieces.all(size) if task.whole_vocabulary else OwnPieces.of([*trained, *judged])
    return Prepared(
        task.balanced(trained) if balanced else task,
        Examples(divided.train, pieces.renumbered(trained)),
        Examples(divided.dev, pieces.renumbered(judged)),
        pieces,
        divided,
        checkpoint,
    )


def report_of(prepared: Prepared, data: Data) -> DataReport:
    """Say what one should know about the data before a model is trained on them."""
    divided = prepared.divided
    return data_report(
        prepared.task,
        [
            Part("train", Reading(divided.train, divided.set_aside, divided.remarks), prepared.train.encoded),
            Part("dev", Reading(divided.dev), prepared.dev.encoded),
        ],
        prepared.tokenizer,
        longest=prepared.longest,
        tag_problems=prepared.task.problems(data.files, data.options),
        decided=divided.notes,
    )
