"""What every fine-tuned folder promises: whatever stands in its JSON files, it works or is refused with a sentence.

Each value of each file is replaced in turn, by values of other types and sizes and by nothing. The texts of refusals are
the business of the tests of their modules.
"""

import copy
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from alembert.compress import ExportSettings
from alembert.compress.export import export
from alembert.errors import UserError
from alembert.files import checkpoint as checkpoints
from alembert.infer.task_model import TaskModel
from alembert.tasks.files import read_task, write_tasks
from small_checkpoints import examples_of, fine_tuned
from task_cases import CASES

VALUES: list[Any] = [None, True, -1, 10**400, "\ud800", ["tag"], {}]
DEEP = 200_000
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CRF tagger and its Export."""
    place = tmp_path_factory.mktemp("damaged")
    fine_tuned("tag, crf", place / "checkpoint", place / "examples.jsonl")
    settings = ExportSettings(format="onnx", precision="fp32")
    export(checkpoints.open(place / "checkpoint"), place / "export", settings)
    return place


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Walk over the places of a JSON value; the first two of a list stand for the rest."""
    yield at
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*at, key))
    elif isinstance(value, list):
        for number, each in enumerate(value[:2]):
            yield from places(each, (*at, number))


def mutations(table: Any) -> Iterator[tuple[Place, Any]]:
    """Give the table with each value replaced by each other, and left out."""
    for at in places(table):
        if not at:
            continue
        for value in (*VALUES, ...):
            changed = copy.deepcopy(table)
            inner = changed
            for key in at[:-1]:
                inner = inner[key]
            if value is ...:
                del inner[at[-1]]
            else:
                inner[at[-1]] = value
            yield at, changed


def use(folder: Path) -> None:
    """Open a model and ask it; a refusal in a sentence is as good as an answer."""
    with suppress(UserError):
        model = TaskModel.open(folder)
        model.predict(model.task.examples_from_texts(["aspirin"]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("checkpoint", "task.json"), ("checkpoint", "config.json"), ("export", "manifest.json")],
)
def test_a_damaged_file_never_ends_in_a_traceback(kind: str, name: str, folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / kind
    shutil.copytree(folder / kind, copied)
    for at, changed in mutations(json.loads((copied / name).read_bytes())):
        (copied / name).write_text(json.dumps(changed))
        try:
            use(copied)
        except Exception as problem:
            pytest.fail(f"{name}, {at}: {problem!r}")


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_task_never_ends_in_a_traceback(case: str, tmp_path: Path) -> None:
    task, _ = examples_of(case, tmp_path / "examples.jsonl")
    write_tasks(tmp_path, {task.name: (task, {})})
    for at, changed in mutations(json.loads((tmp_path / "task.json").read_bytes())):
        (tmp_path / "task.json").write_text(json.dumps(changed))
        try:
            with suppress(UserError):
                read_task(tmp_path).open()
        except Exception as problem:
            pytest.fail(f"{at}: {problem!r}")


@pytest.mark.parametrize("name", ["task.json", "config.json", "manifest.json", "tokenizer.json"])
def test_deep_brackets_are_refused(name: str, folder: Path, tmp_path: Path) -> None:
    kind = "export" if name == "manifest.json" else "checkpoint"
    shutil.copytree(folder / kind, tmp_path / kind)
    (tmp_path / kind / name).write_text("[" * DEEP + "]" * DEEP)
    with pytest.raises(UserError):
        TaskModel.open(tmp_path / kind)
