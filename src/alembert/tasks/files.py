"""What the tasks of a model leave in its folder beside the weights.

    task.json                a table for each task under `tasks`, by its name: kind, head, labels, settings, thresholds,
                             and a few facts of the training
    run/train.keys.npy       64 bits for each training example, so that overlaps with test data are found
    run/surfaces.json        how often each entity was seen in training, by 64 bits for each

None of them holds text of the training data, but whoever has the last two can test a guess: whether this text, or
this name, was trained on. Exports leave them out unless they are asked for, and `forget_training` copies a folder
without them. With several tasks they are in `run/<name>/`. A model that was fine-tuned elsewhere has no `task.json`:
the table is then made of its Hugging Face files (`hf_tasks`). Earlier versions wrote the table of an only task without
`tasks` around it, and no name of a head; both are read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from alembert.artifact import atomic_write, create, explain_missing, open_artifact
from alembert.artifact.disk import (
    MALFORMED_ERRORS,
    check_whole_number,
    parse_json,
    read_json,
    refuse_malformed,
    to_json_bytes,
)
from alembert.corpus.readers.contract import ReadOptions
from alembert.errors import BadFile, BadSetting
from alembert.settings import apply_changes
from alembert.tasks import TASKS
from alembert.tasks.hf_tasks import InferredTask, explain_missing_task, infer_task
from alembert.tasks.task import AnyTask, get_task_class

TASK_FILE: Final = "task.json"
TASK_FORMAT: Final = 1
TASKS_KEY: Final = "tasks"
RUN_FOLDER: Final = "run"
TRAIN_KEYS_FILE: Final = "train.keys.npy"
SURFACES_FILE: Final = "surfaces.json"
HASH_FILES: Final = (TRAIN_KEYS_FILE, SURFACES_FILE)
"""Files with hashes of the training data."""
NO_HASHES_REASON: Final = (
    "the model's folder has no hashes of its training data (an Export has them only with `training_hashes = true`, and "
    "`forget_training = true` leaves them out)"
)
COLUMN_OPTIONS: Final = ("id", "text", "title", "label", "entities", "entity_label", "token_labels")
"""Options of reading that say what is where in a file; what else was said about files is of those files alone."""


def write_tasks(
    folder: Path, tasks: Mapping[str, tuple[AnyTask, Mapping[str, Any]]], heads: Mapping[str, str] | None = None
) -> None:
    """Write the tasks by their names, with facts of their training and the files that they need.

    Heads are called as their kinds if not given.
    """
    tables = {
        name: {
            "task": task.name,
            "format": TASK_FORMAT,
            "head": (heads or {}).get(name) or task.head().kind,
            **task.to_table(),
            "training": dict(training),
        }
        for name, (task, training) in tasks.items()
    }
    for path, content in {
        path: data for task, _ in tasks.values() for path, data in task.resource_files().items()
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / path, content)
    atomic_write(folder / TASK_FILE, to_json_bytes({"format": TASK_FORMAT, TASKS_KEY: tables}))


@dataclass(frozen=True)
class SavedTask:
    """A task as the folder of a fine-tuned model describes it."""

    folder: Path
    name: str
    table: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.table.get("task"))

    @property
    def head(self) -> str | None:
        """The name of its head in the model; none: that of its kind, or the only one of an Export."""
        head = self.table.get("head")
        return None if head is None else str(head)

    @property
    def training(self) -> Mapping[str, Any]:
        """The facts of the training that were kept."""
        facts: Mapping[str, Any] = self.table.get("training", {})
        return facts

    def open(self) -> AnyTask:
        """Make the task again."""
        file, kind, form = self.folder / TASK_FILE, self.table.get("task"), self.table.get("format")
        if not isinstance(kind, str) or kind not in TASKS or type(form) is not int or form != TASK_FORMAT:
            raise BadFile(
                f"{file} is of the task {kind!r}, format {form!r}; this version of alembert reads "
                f"{', '.join(TASKS)} in format {TASK_FORMAT}."
            )
        try:
            return get_task_class(kind).from_table(self.table).load_resources(self.folder, self.table)
        except MALFORMED_ERRORS as wrong:
            reason = f" ({wrong})" if isinstance(wrong, ValueError) else ""
            raise BadFile(f"{file} is damaged: it does not describe a {kind} task{reason}. Restore the file.") from None

    def apply_columns(self, options: ReadOptions) -> ReadOptions:
        """Return options of reading with the columns that the model was trained on, unless others are named."""
        kept, usual = self.training.get("reading", {}), ReadOptions()
        columns = {
            name: kept[name]
            for name in COLUMN_OPTIONS
            if name in kept and getattr(options, name) == getattr(usual, name)
        }
        return apply_changes(options, columns, str(self.folder / TASK_FILE))

    def run_path(self, file: str) -> Path:
        """Find a file of the task's training."""
        run = self.folder / RUN_FOLDER
        return (run / self.name if (run / self.name).is_dir() else run) / file

    def train_keys(self) -> set[int] | None:
        """Read which examples were trained on; none: it is not known."""
        path = self.run_path(TRAIN_KEYS_FILE)
        if not path.is_file():
            return None
        try:
            return set(np.load(path, allow_pickle=False).tolist())
        except (ValueError, EOFError):
            raise BadFile(_damaged_message(path)) from None

    def surfaces(self) -> dict[str, int] | None:
        """Read how often entities were seen in training; none: it is not known."""
        path = self.run_path(SURFACES_FILE)
        if not path.is_file():
            return None
        with refuse_malformed(_damaged_message(path)):
            return {key: check_whole_number(count) for key, count in parse_json(path.read_bytes()).items()}


def read_tasks(folder: Path) -> dict[str, SavedTask]:
    """Read all tasks of a fine-tuned model, by their names."""
    return {name: SavedTask(folder, name, table) for name, table in _read_task_tables(folder).items()}


def read_task(folder: Path, name: str | None = None) -> SavedTask:
    """Read the task of a fine-tuned model, or of several the one of this name."""
    return choose_task(folder, read_tasks(folder), name)


def choose_task(folder: Path, tasks: Mapping[str, SavedTask], name: str | None) -> SavedTask:
    """Return the task of this name; an only one needs no name, or answers to its kind."""
    first, *others = tasks.values()
    if name is not None and name in tasks:
        return tasks[name]
    if not others and name in (None, first.kind):
        return first
    if not others:
        raise BadSetting(f"{folder} was fine-tuned for the task {first.name} alone, not for {name!r}.")
    known = ", ".join(f"{task.name} ({task.kind})" for task in tasks.values())
    wrong = "" if name is None else f" {name!r} is none of them."
    raise BadSetting(
        f"{folder} was fine-tuned for several tasks: {known}.{wrong} Say which of them is meant: --task NAME, or "
        "task=NAME from Python. To evaluate all of them, say whose each file is: NAME=FILE."
    )


def _read_task_tables(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / TASK_FILE
    whole = read_json(path) if path.is_file() else _inferred_table(folder)
    tables = whole.get(TASKS_KEY)
    if tables is None:  # an only task, as earlier versions wrote it
        return {str(whole.get("task")): whole}
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise BadFile(f"{path} is damaged: `{TASKS_KEY}` is no table of tasks.")
    return {name: {"head": name, **table} for name, table in tables.items()}  # which earlier versions did not write


def _inferred_table(folder: Path) -> dict[str, Any]:
    inferred = infer_task(folder)
    if inferred is None:
        raise BadFile(explain_missing(folder) or explain_missing_task(folder))
    return {"format": TASK_FORMAT, **inferred.table}


def has_task(folder: Path) -> bool:
    """Return whether a folder is a model that was fine-tuned for a task, here or elsewhere."""
    return (folder / TASK_FILE).is_file() or _infer_task_or_none(folder) is not None


def describe_inferred_task(folder: Path, model: str | None = None) -> str | None:
    """Explain what a folder without `task.json` is taken for; none: it has one, or is no fine-tuned model."""
    found = None if (folder / TASK_FILE).is_file() else _infer_task_or_none(folder)
    return None if found is None else found.remark(model or str(folder))


def _infer_task_or_none(folder: Path) -> InferredTask | None:
    try:
        return infer_task(folder)
    except BadFile:  # who opens it as a model is told why
        return None


def get_run_folder(folder: Path, name: str, names: Collection[str]) -> Path:
    """Return where the files of a task's training are written: an only one needs no folder of its own."""
    return folder / RUN_FOLDER / name if len(names) > 1 else folder / RUN_FOLDER


def write_train_keys(run: Path, keys: Iterable[int]) -> None:
    """Write which examples were trained on into the folder of a task's training."""
    stream = BytesIO()
    np.save(stream, np.unique(np.fromiter(keys, np.uint64)), allow_pickle=False)
    run.mkdir(parents=True, exist_ok=True)
    atomic_write(run / TRAIN_KEYS_FILE, stream.getvalue())


def write_surfaces(run: Path, surfaces: Mapping[str, int]) -> None:
    """Write how often entities were seen in training into the folder of a task's training."""
    run.mkdir(parents=True, exist_ok=True)
    atomic_write(run / SURFACES_FILE, json.dumps(surfaces).encode())


def forget_training(folder: str | Path, out: str | Path, *, overwrite: bool = False) -> None:
    """Copy the folder of a fine-tuned model without hashes of its training data, and without the names of its files."""
    source, manifest = Path(folder), open_artifact(folder)
    _read_task_tables(source)  # what has no task is refused
    kept = [name for name in manifest.files if PurePosixPath(name).name not in HASH_FILES]
    with create(
        out,
        manifest.kind,
        config=manifest.config,
        inputs=[source],
        seed=manifest.seed,
        overwrite=overwrite,
    ) as draft:
        for name in kept:
            (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, draft.path / name)
        draft.counts.update(manifest.counts)


def _damaged_message(path: Path) -> str:
    return f"{path} is damaged. Restore it, or delete it: then it is not known what the model was trained on."
