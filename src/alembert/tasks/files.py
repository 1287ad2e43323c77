"""What a task leaves in a Checkpoint folder beside the weights.

    task.json                the task: its name, labels, settings, thresholds; and a few facts of the training
    run/train.keys.npy       64 bits for each training example, so that overlaps with test data are found
    run/surfaces.json        how often each entity was seen in training, by 64 bits for each

None of them holds text of the training data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from alembert.artifact import atomic_write
from alembert.errors import BadFile
from alembert.tasks.task import TASKS, AnyTask, task_class

TASK: Final = "task.json"
FORMAT: Final = 1
KEYS: Final = "run/train.keys.npy"
SURFACES: Final = "run/surfaces.json"


def write_task(folder: Path, task: AnyTask, training: Mapping[str, Any]) -> None:
    """Write what the task is, and facts of its training."""
    table = {"task": task.name, "format": FORMAT, **task.to_table(), "training": dict(training)}
    atomic_write(folder / TASK, (json.dumps(table, indent=2, ensure_ascii=False) + "\n").encode())


def open_task(folder: Path) -> AnyTask:
    """Open the task of a fine-tuned model."""
    table = read_table(folder)
    name = table.get("task")
    if name not in TASKS or table.get("format") != FORMAT:
        raise BadFile(
            f"{folder / TASK} is of the task {name!r}, format {table.get('format')!r}; this version of alembert reads "
            f"{', '.join(TASKS)} in format {FORMAT}."
        )
    try:
        return task_class(str(name)).from_table(table)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadFile(f"{folder / TASK} is damaged: it does not describe a {name} task.") from None


def read_table(folder: Path) -> dict[str, Any]:
    """Read `task.json`."""
    path = folder / TASK
    if not path.is_file():
        raise BadFile(
            f"{folder} has no {TASK}, so it was not fine-tuned for a task here. Fine-tune it first: alembert finetune."
        )
    try:
        table = json.loads(path.read_bytes())
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise BadFile(f"{path} is damaged: it is no JSON object.")
    return table


def write_keys(folder: Path, keys: Iterable[int]) -> None:
    """Write which examples were trained on."""
    stream = BytesIO()
    np.save(stream, np.unique(np.fromiter(keys, np.uint64)), allow_pickle=False)
    (folder / KEYS).parent.mkdir(exist_ok=True)
    atomic_write(folder / KEYS, stream.getvalue())


def read_keys(folder: Path) -> set[int] | None:
    """Read which examples were trained on; none: it is not known."""
    path = folder / KEYS
    if not path.is_file():
        return None
    try:
        return set(np.load(path, allow_pickle=False).tolist())
    except (ValueError, EOFError):
        raise BadFile(_damaged(path)) from None


def write_surfaces(folder: Path, surfaces: Mapping[str, int]) -> None:
    """Write how often entities were seen in training."""
    (folder / SURFACES).parent.mkdir(exist_ok=True)
    atomic_write(folder / SURFACES, json.dumps(surfaces).encode())


def read_surfaces(folder: Path) -> dict[str, int] | None:
    """Read how often entities were seen in training; none: it is not known."""
    path = folder / SURFACES
    if not path.is_file():
        return None
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise BadFile(_damaged(path)) from None


def _damaged(path: Path) -> str:
    return f"{path} is damaged. Restore it, or delete it: then it is not known what the model was trained on."
