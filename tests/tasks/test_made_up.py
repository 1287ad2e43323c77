"""A task that stands outside of the package is trained, evaluated, exported and predicted with, like those inside."""

import json
from pathlib import Path

import pytest

import alembert
from alembert.files import checkpoint as checkpoints
from alembert.infer.task_model import TaskModel
from alembert.nn.config import preset
from alembert.tasks.files import read_task
from alembert.tasks.task import Task
from made_up_task import GradeTask, made_up  # noqa: F401
from small_checkpoints import Blueprint, Checkpoint
from task_cases import TOKENIZER, Case


@pytest.fixture(scope="module")
def workplace(made_up: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A folder with a fine-tuned model and its training file."""
    folder = tmp_path_factory.mktemp("made-up")
    config = preset("tiny", vocab_size=TOKENIZER.vocab_size, max_position_embeddings=64)
    Checkpoint.new(Blueprint(config=config), TOKENIZER).save(folder / "start")
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, made_up.lines())) + "\n")
    alembert.finetune(
        "grade",
        model=folder / "start",
        train=folder / "train.jsonl",
        out=folder / "graded",
        epochs=30,
        learning_rate=3e-3,
        progress=False,
    )
    return folder


def test_it_writes_only_what_the_contract_lists() -> None:
    own = {name for name in vars(GradeTask) if hasattr(Task, name) and not name.startswith("_")}
    listed = {line.split("`")[1] for line in (Task.__doc__ or "").splitlines() if line.strip().startswith("- `")}
    assert own - {"name", "settings_class", "example_class", "labels"} == listed == set(Task.__abstractmethods__)


def test_it_learns(workplace: Path) -> None:
    scores = alembert.evaluate(workplace / "graded", workplace / "train.jsonl", rounds=20, progress=False)
    assert scores.scores.measures["accuracy"] > 0.9


def test_a_saved_task_is_its_dataclass(workplace: Path) -> None:
    table = read_task(workplace / "graded").table
    assert table["settings"] == {"max_length": 48}
    assert table["labels"] == sorted(table["labels"])
    model = TaskModel.open(workplace / "graded")
    assert model.task.to_table() == {"settings": {"max_length": 48}, "labels": tuple(table["labels"])}


def test_the_export_predicts_alike(workplace: Path) -> None:
    alembert.export(workplace / "graded", out=workplace / "exported", int8=False, speed=False, progress=False)
    torch, exported = (TaskModel.open(workplace / folder) for folder in ("graded", "exported"))
    examples = torch.task.examples_from_texts(["Imatinib for leukemia.", "Asthma in children."])
    records = [torch.task.to_record(*pair) for pair in zip(examples, torch.predict(examples), strict=True)]
    assert records == [
        exported.task.to_record(*pair) for pair in zip(examples, exported.predict(examples), strict=True)
    ]
    assert all(record["grade"] in torch.task.labels for record in records)


def test_a_prediction_is_the_record_of_the_task(workplace: Path) -> None:
    found = alembert.load(workplace / "graded").predict("Imatinib for leukemia.")
    assert found.to_dict()["grade"] in TaskModel.open(workplace / "graded").task.labels


def test_the_model_card_can_be_written(workplace: Path) -> None:
    assert checkpoints.open(workplace / "graded").blueprint.heads["grade"].kind == "grade"
    assert "head `grade`" in (workplace / "graded" / "README.md").read_text()
