"""Labelled examples to score a model on: read as the model reads them, and refused if they cannot be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembert.corpus.inputs import list_input_files
from alembert.corpus.readers.contract import ReadOptions, Remark
from alembert.errors import BadFile, BadSetting
from alembert.tasks.example import ReadResult
from alembert.tasks.files import NO_HASHES_REASON, TASK_FILE
from alembert.tasks.splitting import parse_split, split_examples

if TYPE_CHECKING:
    from alembert.infer.task_model import TaskModel

PARTS: Final = ("train", "dev", "test")
"""Parts of a file that `finetune --split` makes, in the order of the shares."""


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
    examples = reading.examples if part is None else _part(model, reading.examples, part)
    if model.task.labels and not any(model.task.answers(example) for example in examples):
        usual = "Check that the file is annotated, and that its format and columns were recognised."
        raise BadFile(
            f"None of the {len(examples):,} examples of {named} has a right answer to compare with. "
            + (" ".join(model.task.notes(examples)) or usual)
        )
    model.task.check(examples)
    if part is not None and model.train_keys() is None:
        told = f"may be other files than those that the model was fine-tuned on, which cannot be checked: {NO_HASHES_REASON}"
        reading = replace(reading, remarks=(*reading.remarks, Remark(named, told, 1)))
    return replace(reading, examples=tuple(examples))


def _part(model: TaskModel, examples: Sequence[Any], part: str) -> Sequence[Any]:
    """Split as fine-tuning did: by text and seed, so that the same file has the same parts."""
    if part not in PARTS:
        raise BadSetting(f"There is no part {part!r} of a file; expected one of {', '.join(PARTS)}.")
    how = model.training().get("split")
    if not isinstance(how, dict) or not {"shares", "seed"} <= how.keys():
        raise BadSetting(
            f"{model.folder} was not fine-tuned on a part of a file ({TASK_FILE} has no split), so there is no part "
            f"{part!r}. Leave the part out to score all examples."
        )
    parts = split_examples(examples, parse_split(str(how["shares"])), int(how["seed"]))
    chosen = parts[PARTS.index(part)]
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
