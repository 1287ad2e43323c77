"""What tasks leave in model folders: numbers that make no sense are refused; copies without hashes of the training data."""

import json
from pathlib import Path
from typing import Any

import pytest

from alembert import artifact
from alembert.errors import BadFile
from alembert.infer.task_model import TaskModel
from alembert.tasks.files import (
    TASK_FILE,
    forget_training,
    read_task,
    write_surfaces,
    write_tasks,
    write_train_keys,
)
from small_checkpoints import examples_of, fine_tuned
from task_cases import CASES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Checkpoint of two seeds that says what it was trained on."""
    fine_tuned("tag", tmp_path / "model", tmp_path / "examples.jsonl")
    with artifact.create(tmp_path / "whole", "Checkpoint", config={"a": 1}, seed=3) as draft:
        for path in sorted((tmp_path / "model").iterdir()):
            if path.is_file() and path.name != "manifest.json":
                (draft.path / path.name).write_bytes(path.read_bytes())
        for part in (draft.path, draft.path / "seeds" / "1"):
            write_train_keys(part / "run", [1, 2])
            write_surfaces(part / "run/ner", {"0123456789abcdef": 1})
        draft.counts["parameters"] = 5
    return tmp_path / "whole"


def test_a_copy_forgets_what_was_trained_on_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    old, new = artifact.open_artifact(folder), artifact.verify(tmp_path / "copy")
    assert old.files.keys() - new.files.keys() == {
        "run/train.keys.npy",
        "run/ner/surfaces.json",
        "seeds/1/run/train.keys.npy",
        "seeds/1/run/ner/surfaces.json",
    }
    assert all(old.files[name] == digest for name, digest in new.files.items())
    assert (new.kind, new.config, new.seed, new.counts) == ("Checkpoint", {"a": 1}, 3, {"parameters": 5})


def test_a_copy_does_not_name_the_files_of_the_training(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    assert [each.name for each in artifact.open_artifact(tmp_path / "copy").inputs] == ["whole"]


def test_the_copy_opens_and_knows_of_no_training_data(folder: Path, tmp_path: Path) -> None:
    forget_training(folder, tmp_path / "copy")
    model = TaskModel.open(tmp_path / "copy")
    assert model.train_keys() is None
    assert model.surfaces() is None


def test_a_folder_without_a_task_is_refused(tmp_path: Path) -> None:
    with artifact.create(tmp_path / "corpus", "Corpus", config={}):
        pass
    with pytest.raises(BadFile, match=r"has no task\.json"):
        forget_training(tmp_path / "corpus", tmp_path / "copy")


def numbers_in(table: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the places of all numbers in a table, which are keys and indices."""
    if isinstance(table, dict | list):
        items = table.items() if isinstance(table, dict) else enumerate(table)
        return [found for key, value in items for found in numbers_in(value, (*place, key))]
    return [place] if isinstance(table, int | float) and not isinstance(table, bool) else []


def replaced(table: Any, place: tuple[Any, ...], value: Any) -> str:
    """Write a table with another value at a place."""
    changed = json.loads(json.dumps(table))
    inside = changed
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return json.dumps(changed)


@pytest.mark.parametrize("name", CASES)
def test_every_number_of_a_task_must_be_finite(name: str, tmp_path: Path) -> None:
    task, _ = examples_of(name, tmp_path / "examples.jsonl")
    write_tasks(tmp_path, {task.name: (task, {})})
    table = json.loads((tmp_path / TASK_FILE).read_text())
    places = [place for place in numbers_in(table) if place[-1] != "format"]
    for place in places:
        for value in (float("nan"), float("inf"), -float("inf")):
            (tmp_path / TASK_FILE).write_text(replaced(table, place, value))
            with pytest.raises(BadFile, match="damaged"):
                read_task(tmp_path).open()


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        *(
            (name, ("temperature",), value)
            for name in ("tag", "classify", "choose", "relate")
            for value in (0, -1, 1e-320, 1e9, 10**400, "nan", True, None)
        ),
        ("answer, label", ("classify", "temperature"), 0),
        ("classify, number", ("deviation",), 0),
        ("classify, number", ("deviation",), -1),
        ("classify, number", ("mean",), "inf"),
        ("classify, several", ("thresholds",), 1.5),
        ("answer, none", ("threshold",), "nan"),
        ("choose", ("choices",), [0, 4]),
        ("choose", ("choices",), [5, 4]),
        ("compare, scores", ("low",), "nan"),
        ("compare", ("window",), -3),
        ("compare", ("dimension",), -1),
        ("relate, documents", ("rules", "distance"), -1),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, place: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    task, _ = examples_of(name, tmp_path / "examples.jsonl")
    write_tasks(tmp_path, {task.name: (task, {})})
    table = json.loads((tmp_path / TASK_FILE).read_text())
    if place == ("thresholds",):
        value = dict.fromkeys(table["tasks"][task.name]["labels"], value)
    (tmp_path / TASK_FILE).write_text(replaced(table, ("tasks", task.name, *place), value))
    with pytest.raises(BadFile, match=r"task\.json is damaged: .* \(.*expected"):
        read_task(tmp_path).open()
