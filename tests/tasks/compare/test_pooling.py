"""How folders state what a vector is: read, written, and refused where two statements differ."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alembert.errors import BadFile
from alembert.tasks.compare.columns import CompareSettings
from alembert.tasks.compare.pooling import (
    MODULES_FILE,
    Pooling,
    PoolingName,
    build_sentence_transformers_files,
    read_pooling,
)
from alembert.tasks.compare.task import CompareTask
from alembert.tasks.files import write_tasks

LAYER = {"weight": np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)}


def state(folder: Path, pooling: Pooling) -> None:
    for path, content in build_sentence_transformers_files(pooling, LAYER if pooling.layer else None).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)


def write_own(folder: Path, name: PoolingName, **more: object) -> None:
    task = CompareTask(CompareSettings(), "unsupervised", name, dimension=4)
    write_tasks(folder, {"compare": (replace(task, **more), {})})


@pytest.mark.parametrize(
    "pooling",
    [
        Pooling(mode="cls", dimension=4),
        Pooling(mode="mean", dimension=4, normalise=True, length=256),
        Pooling(mode="mean", dimension=1024, length=16),
    ],
    ids=Pooling.in_words,
)
def test_what_is_written_is_read_again(pooling: Pooling, tmp_path: Path) -> None:
    state(tmp_path, pooling)
    assert read_pooling(tmp_path) == pooling


@pytest.mark.parametrize("name", ["cls", "cls_layer", "cls_train_layer", "mean"])
def test_a_task_states_what_its_companions_state(name: PoolingName, tmp_path: Path) -> None:
    write_own(tmp_path, name, window=32)
    own = read_pooling(tmp_path)
    assert own == Pooling.named(name, 4, length=32)
    state(tmp_path, own)
    assert read_pooling(tmp_path) == own


def test_a_folder_that_says_nothing_states_nothing(tmp_path: Path) -> None:
    assert read_pooling(tmp_path) is None
    (tmp_path / "task.json").write_text('{"task": "tag", "format": 1}')
    assert read_pooling(tmp_path) is None


@pytest.mark.parametrize("change", [{"mode": "mean"}, {"normalise": True}, {"dimension": 5}, {"layer": True}])
def test_two_statements_that_differ_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    write_own(tmp_path, "cls_train_layer")
    state(tmp_path, replace(Pooling(mode="cls", dimension=4), **change))
    with pytest.raises(BadFile, match="One of them was changed"):
        read_pooling(tmp_path)


def test_a_layer_of_others_is_not_read(tmp_path: Path) -> None:
    state(tmp_path, Pooling(mode="cls", dimension=4, layer=True))
    with pytest.raises(BadFile, match="has a trained layer"):
        read_pooling(tmp_path)


def test_the_mode_may_be_given_by_its_name(tmp_path: Path) -> None:
    state(tmp_path, Pooling(mode="cls", dimension=4))
    newer = {"embedding_dimension": 4, "pooling_mode": "mean"}
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(newer))
    assert read_pooling(tmp_path) == Pooling(mode="mean", dimension=4)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (MODULES_FILE, "{}", "has no pooling"),
        (MODULES_FILE, "[1]", "no list of modules"),
        (MODULES_FILE, "[", "no JSON"),
        (MODULES_FILE, '[{"type": "x.Router", "path": ""}]', "a module Router"),
        ("1_Pooling/config.json", "[]", "no JSON object"),
        ("1_Pooling/config.json", "[" * 100_000, "no JSON"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "asks for pooling_mode_max_tokens"),
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', "states no pooling"),
        ("sentence_bert_config.json", '{"max_seq_length": "long"}', "states no pooling"),
    ],
)
def test_a_damaged_statement_is_a_sentence(file: str, content: str, message: str, tmp_path: Path) -> None:
    state(tmp_path, Pooling(mode="cls", dimension=4))
    (tmp_path / file).write_text(content)
    with pytest.raises(BadFile, match=message):
        read_pooling(tmp_path)


def test_a_task_without_a_known_pooling_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text('{"task": "compare", "format": 1, "pooling": "max"}')
    with pytest.raises(BadFile, match="expected one of cls"):
        read_pooling(tmp_path)


def test_a_published_folder_states_its_pooling(minilm: Path) -> None:
    assert read_pooling(minilm) == Pooling(mode="mean", dimension=384, normalise=True, length=256)


def write_several(folder: Path, *names: PoolingName) -> None:
    tasks = {
        f"task{number}": CompareTask(CompareSettings(), "unsupervised", name, dimension=4)
        for number, name in enumerate(names)
    }
    write_tasks(folder, {name: (task, {}) for name, task in tasks.items()})


@pytest.mark.parametrize("names", [["cls_layer"], ["mean"], ["cls", "cls_train_layer"]])
def test_a_model_of_several_tasks_states_the_pooling_of_those_that_compare(
    names: list[PoolingName], tmp_path: Path
) -> None:
    write_several(tmp_path, *names)
    assert read_pooling(tmp_path) == Pooling.named(names[0], 4)


@pytest.mark.parametrize("names", [["cls", "mean"], ["cls_layer", "cls_layer"]])
def test_tasks_whose_vectors_differ_state_nothing_together(names: list[PoolingName], tmp_path: Path) -> None:
    write_several(tmp_path, *names)
    with pytest.raises(BadFile, match="2 tasks that compare, and their vectors differ"):
        read_pooling(tmp_path)
