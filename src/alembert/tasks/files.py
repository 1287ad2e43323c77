"""What a task leaves in a Checkpoint folder beside the weights.

    task.json                the task: its name, labels, settings, thresholds; and a few facts of the training
    run/train.keys.npy       64 bits for each training example, so that overlaps with test data are found
    run/surfaces.json        how often each entity was seen in training, by 64 bits for each

None of them holds text of the training data, but whoever has the last two can test a guess: whether this text, or this
name, was trained on. Exports leave them out unless they are asked for, and `forget_training` copies a folder without
them. A model of several tasks has the same for each: `task.json` is then a table of such tables under `tasks`, by the
name of the task, and the other files are in `run/<name>/`. Where functions here take a name, none stands for the one
task of a model that has no others. A model that was fine-tuned elsewhere has no `task.json`: the table is then made of
its Hugging Face files (`hf_tasks`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from alembert.artifact import atomic_write, create, explain_missing, open_artifact
from alembert.artifact.json_files import (
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
    "the model's folder has no hashes of its training data (an Export has them with training_hashes alone, and "
    "forget_training leaves them out)"
)
COLUMN_OPTIONS: Final = ("id", "text", "title", "label", "entities", "entity_label", "token_labels")
"""Options of reading that say what is where in a file; what else was said about files is of those files alone."""


def write_task(folder: Path, task: AnyTask, training: Mapping[str, Any]) -> None:
    """Write what the task is, and facts of its training."""
    _write_task_file(folder, _build_task_table(task, training))


def write_tasks(folder: Path, tasks: Mapping[str, tuple[AnyTask, Mapping[str, Any]]]) -> None:
    """Write several tasks, each with facts of its training, by their names."""
    tables = {name: _build_task_table(task, training) for name, (task, training) in tasks.items()}
    _write_task_file(folder, {"format": TASK_FORMAT, TASKS_KEY: tables})


def _build_task_table(task: AnyTask, training: Mapping[str, Any]) -> dict[str, Any]:
    return {"task": task.name, "format": TASK_FORMAT, **task.to_table(), "training": dict(training)}


def _write_task_file(folder: Path, table: Mapping[str, Any]) -> None:
    atomic_write(folder / TASK_FILE, to_json_bytes(table))


def open_task(folder: Path, name: str | None = None) -> AnyTask:
    """Open the task of a fine-tuned model, or of several the one of this name."""
    table = read_task_table(folder, name)
    kind, form = table.get("task"), table.get("format")
    if not isinstance(kind, str) or kind not in TASKS or type(form) is not int or form != TASK_FORMAT:
        raise BadFile(
            f"{folder / TASK_FILE} is of the task {kind!r}, format {form!r}; this version of alembert reads "
            f"{', '.join(TASKS)} in format {TASK_FORMAT}."
        )
    try:
        return get_task_class(kind).from_table(table)
    except MALFORMED_ERRORS as wrong:
        reason = f" ({wrong})" if isinstance(wrong, ValueError) else ""
        raise BadFile(
            f"{folder / TASK_FILE} is damaged: it does not describe a {kind} task{reason}. Restore the file."
        ) from None


def read_task_names(folder: Path) -> tuple[str, ...]:
    """Name the tasks of a model that has several; empty: it has one, without a name."""
    return tuple(_read_task_tables(folder) or ())


def read_task_table(folder: Path, name: str | None = None) -> dict[str, Any]:
    """Read `task.json`, or of several tasks the table of this name."""
    tables = _read_task_tables(folder)
    if tables is None:
        table = _read_task_file(folder)
        if name not in (None, table.get("task")):
            raise BadSetting(f"{folder} was fine-tuned for the task {table.get('task')} alone, not for {name!r}.")
        return table
    if name not in tables:
        known = ", ".join(f"{each} ({table.get('task')})" for each, table in tables.items())
        wrong = "" if name is None else f" {name!r} is none of them."
        raise BadSetting(
            f"{folder} was fine-tuned for several tasks: {known}.{wrong} Say which of them is meant: --task NAME, or "
            "task=NAME from Python."
        )
    return tables[name]


def _read_task_tables(folder: Path) -> dict[str, dict[str, Any]] | None:
    tables = _read_task_file(folder).get(TASKS_KEY)
    if tables is None:
        return None
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise BadFile(f"{folder / TASK_FILE} is damaged: `{TASKS_KEY}` is no table of tasks.")
    return tables


def _read_task_file(folder: Path) -> dict[str, Any]:
    path = folder / TASK_FILE
    if not path.is_file():
        return _inferred_table(folder)
    return read_json(path)


def _inferred_table(folder: Path) -> dict[str, Any]:
    inferred = infer_task(folder)
    if inferred is None:
        raise BadFile(explain_missing(folder) or explain_missing_task(folder))
    return {"format": TASK_FORMAT, **inferred.table}


def has_task(folder: Path) -> bool:
    """Tell whether a folder is a model that was fine-tuned for a task, here or elsewhere."""
    return (folder / TASK_FILE).is_file() or _infer_task_or_none(folder) is not None


def describe_inferred_task(folder: Path, model: str | None = None) -> str | None:
    """Say what a folder without `task.json` is taken for; none: it has one, or is no fine-tuned model."""
    found = None if (folder / TASK_FILE).is_file() else _infer_task_or_none(folder)
    return None if found is None else found.remark(model or str(folder))


def _infer_task_or_none(folder: Path) -> InferredTask | None:
    try:
        return infer_task(folder)
    except BadFile:  # who opens it as a model is told why
        return None


def apply_training_columns(training: Mapping[str, Any], options: ReadOptions, where: str) -> ReadOptions:
    """Give options of reading with the columns that a model was trained on, by the facts kept, unless others are named."""
    kept, usual = training.get("reading", {}), ReadOptions()
    columns = {
        name: kept[name] for name in COLUMN_OPTIONS if name in kept and getattr(options, name) == getattr(usual, name)
    }
    return apply_changes(options, columns, where)


def get_run_path(folder: Path, name: str | None, file: str) -> Path:
    """Find a file of the training of a task."""
    return folder / RUN_FOLDER / file if name is None else folder / RUN_FOLDER / name / file


def write_train_keys(folder: Path, keys: Iterable[int], name: str | None = None) -> None:
    """Write which examples were trained on."""
    stream = BytesIO()
    np.save(stream, np.unique(np.fromiter(keys, np.uint64)), allow_pickle=False)
    path = get_run_path(folder, name, TRAIN_KEYS_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, stream.getvalue())


def read_train_keys(folder: Path, name: str | None = None) -> set[int] | None:
    """Read which examples were trained on; none: it is not known."""
    path = get_run_path(folder, name, TRAIN_KEYS_FILE)
    if not path.is_file():
        return None
    try:
        return set(np.load(path, allow_pickle=False).tolist())
    except (ValueError, EOFError):
        raise BadFile(_damaged_message(path)) from None


def write_surfaces(folder: Path, surfaces: Mapping[str, int], name: str | None = None) -> None:
    """Write how often entities were seen in training."""
    path = get_run_path(folder, name, SURFACES_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(surfaces).encode())


def read_surfaces(folder: Path, name: str | None = None) -> dict[str, int] | None:
    """Read how often entities were seen in training; none: it is not known."""
    path = get_run_path(folder, name, SURFACES_FILE)
    if not path.is_file():
        return None
    with refuse_malformed(_damaged_message(path)):
        return {key: check_whole_number(count) for key, count in parse_json(path.read_bytes()).items()}


def forget_training(folder: str | Path, out: str | Path, *, overwrite: bool = False) -> None:
    """Copy the folder of a fine-tuned model without hashes of its training data, and without the names of its files."""
    source, manifest = Path(folder), open_artifact(folder)
    _read_task_file(source)  # what has no task is refused
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
